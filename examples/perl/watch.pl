#!/usr/bin/perl
# watch.pl HANDLER [COUNT]: Prints a line for each result of a handler. HANDLER/ selects all handlers below it.
use v5.30;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use Earshot;

my ($pattern, $count, @more) = @ARGV;
defined $pattern && ($count // 1) =~ /\A[1-9][0-9]*\z/ && !@more or Earshot->usage('watch.pl HANDLER [COUNT]');

my $bus = Earshot->open;
$bus->subscribe($pattern);
my $listening = 0;
while (1) {
    my $message = $bus->receive;
    if ($message->is_terminal) {
        Earshot->print($message->line);
        $bus->acknowledge($message);
        last if defined $count && --$count == 0;
    } elsif ($message->{verb} eq 'ANSWER' && !$listening++) {
        say STDERR "earshot: listening to $pattern";
    }
}
