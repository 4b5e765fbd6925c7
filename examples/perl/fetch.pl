#!/usr/bin/perl
# fetch.pl URL: Writes the body of a URL to standard output.
use v5.30;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use Earshot;

@ARGV == 1 or Earshot->usage('fetch.pl URL');
my ($url) = @ARGV;

# All programs of the user share the handler names, so a random part keeps this one unique.
open my $random, '<:raw', '/dev/urandom' or die "/dev/urandom: $!\n";
read($random, my $bytes, 8) == 8 or die "/dev/urandom: $!\n";

my $bus = Earshot->open;
$bus->fetch('fetch/' . unpack('H*', $bytes), 1, $url);
my $message;
do { $message = $bus->receive } until $message->is_terminal;
if ($message->{verb} eq 'RESULT') {
    Earshot->print($message->content);
    $bus->acknowledge($message);
} else {
    $bus->acknowledge($message);
    my $reason = join ' ', $message->{operands}[2], $message->{fields}{status} // ();
    $bus->fail("$url: $message->{fields}{detail} ($reason)");
}
