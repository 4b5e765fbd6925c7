#!/usr/bin/perl
# adapter.pl FOLDER: Executes the commands on standard input, for the tests common to all languages
# (protocols/README.md). Writes bodies to files in FOLDER.
use v5.30;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use Earshot;

my ($folder) = @ARGV;
defined $folder or Earshot->usage('adapter.pl FOLDER');
$| = 1;

# Reports an error of the library on standard output, as a line of the protocol of the tests.
{
    no warnings 'redefine';
    *Earshot::fail = sub {
        my (undef, $text, $status) = @_;
        say(($status // 0) == Earshot::NO_BROKER ? 'gone' : "error $text");
        exit;
    };
}

# Returns the line for a message, or undef for a message without one.
sub line {
    my ($bus, $message) = @_;
    my @words = @{$message->{operands}};
    state $number = 0;
    if ($message->is_terminal) {
        my $path = "$folder/" . ++$number;
        open my $file, '>:raw', $path or die "$path: $!";
        print {$file} $message->content;
        close $file or die "$path: $!";
        $bus->acknowledge($message);
        return "result @words $path" if $message->{verb} eq 'RESULT';
        return "failed @words " . ($message->{fields}{status} // '-') . " $path";
    }
    return lc($message->{verb}) . " @words" if $message->{verb} =~ /\A(?:PROGRESS|REMOVED|CANCELLED)\z/;
    return $message->{verb} eq 'ANSWER' ? 'listening' : undef;
}

my $bus = Earshot->open;
say 'ready';
while (my $command = <STDIN>) {
    my ($verb, @words) = split ' ', $command;
    if ($verb eq 'fetch') {
        $bus->fetch(@words[0 .. 2], map { split /=/, $_, 2 } @words[3 .. $#words]);
    } elsif ($verb eq 'receive') {
        my $line;
        $line = line($bus, $bus->receive) until defined $line;
        say $line;
    } else {
        $bus->$verb(@words);
    }
}
