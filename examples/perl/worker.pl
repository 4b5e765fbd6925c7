#!/usr/bin/perl
# worker.pl [MILLISECONDS]: Answers URLs such as upper:hello, with HELLO. Each job takes MILLISECONDS.
use v5.30;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);
use Earshot;

use constant SLOTS => 4;

my $delay = shift // 0;
!@ARGV && $delay =~ /\A[0-9]{1,7}\z/ or Earshot->usage('worker.pl [MILLISECONDS]');

# The signal handler writes to a pipe, so that a signal just before the wait still ends the wait.
my $leaving = 0;
pipe my $wake, my $woken or die "pipe: $!\n";
$SIG{TERM} = sub { $leaving = 1; syswrite $woken, '.' };

my @jobs;    # Running jobs. All take the same time, so the first one is due first.

sub begin {
    my ($bus, $attempt, $url) = @_;
    return $bus->failed($attempt, 'worker-lost', 'no room') if $leaving || @jobs == SLOTS;
    my $text = $url =~ s/\A[^:]*://r;
    return $bus->failed($attempt, 'worker-failed', 'no text follows upper:') if $text eq '';
    push @jobs, { attempt => $attempt, text => uc $text, due => clock_gettime(CLOCK_MONOTONIC) + $delay / 1000 };
    return;
}

# Cancels a running job. Ignores a job that has ended.
sub cancel {
    my ($bus, $attempt) = @_;
    my @others = grep { $_->{attempt} ne $attempt } @jobs;
    $bus->failed($attempt, 'cancelled', 'the broker cancelled the job') if @others < @jobs;
    @jobs = @others;
    return;
}

my $bus = Earshot->register('upper', SLOTS);
say STDERR 'earshot: serving upper:';
while (!$leaving || @jobs) {
    my $left = @jobs ? $jobs[0]{due} - clock_gettime(CLOCK_MONOTONIC) : undef;
    $left = 0 if defined $left && $left < 0;
    if ($bus->await($leaving ? undef : $wake, $left)) {
        my $message = $bus->receive;
        my ($verb, @words) = ($message->{verb}, @{$message->{operands}});
        if ($verb eq 'JOB') { begin($bus, @words) }
        elsif ($verb eq 'CANCEL') { cancel($bus, @words) }
        elsif ($verb eq 'PING') { $bus->pong }
        elsif ($verb eq 'DRAIN') { $leaving = 1 }
    }
    while (@jobs && $jobs[0]{due} <= clock_gettime(CLOCK_MONOTONIC)) {
        my $job = shift @jobs;
        $bus->done($job->{attempt}, 'text/plain', $job->{text});
    }
}
$bus->bye;
