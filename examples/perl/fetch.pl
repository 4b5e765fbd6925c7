#!/usr/bin/perl
# fetch.pl [--pull] [--bus ADDRESS --bus-key FILE --server-key KEY] URL: Writes the body of a URL to standard output. With
# --pull, and over a network, it comes over the connection, and a broken connection is resumed.
use v5.30;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use Earshot;
use Getopt::Long;

my %options;
my $usage = 'fetch.pl [--pull] [--bus ADDRESS --bus-key FILE --server-key KEY] URL';
GetOptions(
    'pull' => sub { @options{qw(pull lease)} = (1, 60) },
    'bus=s' => \$options{bus}, 'bus-key=s' => \$options{key}, 'server-key=s' => \$options{server_key},
) or Earshot->usage($usage);
@ARGV == 1 or Earshot->usage($usage);
my ($url) = @ARGV;

# All programs of the user share the handler names, so a random part keeps this one unique.
open my $random, '<:raw', '/dev/urandom' or die "/dev/urandom: $!\n";
read($random, my $bytes, 8) == 8 or die "/dev/urandom: $!\n";

my $bus = Earshot->open(%options);
$bus->fetch('fetch/' . unpack('H*', $bytes), 1, $url);
my $message;
do { $message = $bus->receive } until $message->is_terminal;
if ($message->{verb} eq 'RESULT') {
    $message->each_part(sub { Earshot->print(@_) });
    $bus->acknowledge($message);
} else {
    $bus->acknowledge($message);
    my $reason = join ' ', $message->{operands}[2], $message->{fields}{status} // ();
    $bus->fail("$url: $message->{fields}{detail} ($reason)");
}
