#!/usr/bin/perl
# gallery.pl HANDLER URL...: Requests all URLs, and removes the handler after half of the results.
use v5.30;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use Earshot;

@ARGV >= 2 or Earshot->usage('gallery.pl HANDLER URL...');
my ($handler, @urls) = @ARGV;

my $bus = Earshot->open;
my $number = 0;
$bus->fetch($handler, ++$number, $_) for @urls;
my $heard = 0;
while (1) {
    my $message = $bus->receive;
    if ($message->is_terminal) {
        Earshot->print($message->line);
        $bus->acknowledge($message);
        $bus->remove($handler) if ++$heard == int((@urls + 1) / 2);
    } elsif ($message->{verb} eq 'REMOVED') {
        Earshot->print("dropped $message->{operands}[1]\n");
        last;
    }
}
