#!/usr/bin/perl
# Client of an Earshot bus (protocols/1-core.md), on ZMQ::FFI:
# earshot.pl fetch URL | cancel HANDLER | watch HANDLER [COUNT]

# Connection to a bus. Its end removes its requests. Methods die with a sentence.
package Bus;

use v5.30;
use warnings;
use Errno qw(EAGAIN EINTR);
use ZMQ::FFI;
use ZMQ::FFI::Constants qw(ZMQ_DEALER ZMQ_LINGER ZMQ_RCVTIMEO ZMQ_RECONNECT_IVL);

use constant { GREETING_MS => 15_000, SILENCE_MS => 5000 };

sub open {
    my ($class) = @_;
    my $runtime = $ENV{EARSHOT_RUNTIME} || ($ENV{XDG_RUNTIME_DIR} && "$ENV{XDG_RUNTIME_DIR}/earshot")
        or die "set EARSHOT_RUNTIME to the directory of the bus\n";
    # The object keeps the context, because the socket closes silently with the last reference to it.
    my $context = ZMQ::FFI->new;
    my $socket = $context->socket(ZMQ_DEALER);
    my $self = bless { context => $context, socket => $socket }, $class;
    $socket->set(ZMQ_LINGER, 'int', 500);
    $socket->set(ZMQ_RCVTIMEO, 'int', GREETING_MS);
    # One connection: the next broker would not know this session. With -1 libzmq drops messages that have arrived.
    $socket->set(ZMQ_RECONNECT_IVL, 'int', 3_600_000);
    $socket->connect("ipc://$runtime/bus");
    $socket->die_on_error(0);
    $self->send('HELLO', 'EAR/1');
    $self->_understand($self->_read // die "no broker answers in $runtime: start one with `earshot serve`\n");
    $socket->set(ZMQ_RCVTIMEO, 'int', SILENCE_MS);
    return $self;
}

sub send {
    my ($self, @words) = @_;
    # A line feed in a word would inject fields into the message.
    /\A[^\x00-\x20\x7f]+\z/ or die "a URL or name is empty, or has a space or control character\n" for @words;
    # The answer to a message with a number names it.
    my $number = $words[0] =~ /\A(?:HELLO|ACK)\z/ ? q() : 'number: ' . ++$self->{number} . "\n";
    $self->{socket}->send("@words\n$number");
    $self->_check;
    return;
}

# Returns the next message. A broker that has ended sends none, so a QUERY checks it after some silence.
sub receive {
    my ($self) = @_;
    my $frames = $self->_read;
    if (!$frames) {
        $self->send('QUERY', 'ping');
        $frames = $self->_read // die "the broker is gone: start one with `earshot serve`\n";
    }
    return $self->_understand($frames);
}

sub acknowledge { my ($self, $message) = @_; return $self->send('ACK', $message->{fields}{seq}) }

# Returns the body of a RESULT. Call it before `acknowledge`, which lets the broker delete the file.
sub body {
    my ($self, $message) = @_;
    my $fields = $message->{fields};
    die "this bus belongs to another user, and this example cannot read its files\n" if exists $fields->{pull};
    return $message->{frame} // '' if !exists $fields->{file};
    CORE::open my $file, '<:raw', $fields->{file} or die "$fields->{file}: $!\n";
    my $body = do { local $/ = undef; <$file> };
    return $body // die "$fields->{file}: $!\n";
}

# Returns the frames of the next message, or undef after some silence.
sub _read {
    my ($self) = @_;
    while (1) {
        my @frames = $self->{socket}->recv_multipart;
        return \@frames if !$self->{socket}->has_error;
        return if $self->{socket}->last_errno == EAGAIN;
        $self->_check if $self->{socket}->last_errno != EINTR;
    }
}

# Message from the broker: the words of its first line, its fields, and its second frame.
sub _understand {
    my ($self, $frames) = @_;
    my ($head) = split /\n\n/, $frames->[0];
    my ($line, @fields) = split /\n/, $head;
    my $message = { words => [split / /, $line], fields => { map { split /: */, $_, 2 } @fields }, frame => $frames->[1] };
    die "$message->{words}[1]: $message->{fields}{detail}\n" if $message->{words}[0] eq 'ERROR';
    return $message;
}

sub _check { my ($self) = @_; die $self->{socket}->last_strerror . "\n" if $self->{socket}->has_error; return }

package main;

sub put { (print @_) && STDOUT->flush or die "cannot write: $!\n"; return }

sub is_terminal { my ($message) = @_; return $message->{words}[0] =~ /\A(?:RESULT|FAILED)\z/ }

# Writes the body of a URL to standard output.
sub fetch {
    my ($bus, $url) = @_;
    # All programs of the user share the handler names, so a random part keeps this one unique.
    CORE::open my $random, '<:raw', '/dev/urandom' or die "/dev/urandom: $!\n";
    read($random, my $bytes, 8) == 8 or die "/dev/urandom: $!\n";
    $bus->send('FETCH', 'perl/' . unpack('H*', $bytes), 1, $url);
    my $message;
    do { $message = $bus->receive } until is_terminal($message);
    put($bus->body($message)) if $message->{words}[0] eq 'RESULT';
    $bus->acknowledge($message);
    return if $message->{words}[0] eq 'RESULT';
    die "$url: $message->{fields}{detail} (" . join(' ', $message->{words}[3], $message->{fields}{status} // ()) . ")\n";
}

# Removes all requests of a handler, whichever program made them.
sub cancel {
    my ($bus, $handler) = @_;
    $bus->send('REMOVE', $handler);
    my $message;
    do { $message = $bus->receive } until $message->{words}[0] eq 'REMOVED';
    put("removed $message->{words}[2]\n");
    return;
}

# Prints a line for each result of a handler: handler, request, status or code, and URL.
sub watch {
    my ($bus, $handler, $count) = @_;
    $bus->send('SUBSCRIBE', $handler);
    my $listening;
    while (!defined $count || $count > 0) {
        my $message = $bus->receive;
        $listening ||= $message->{words}[0] eq 'OK' && print STDERR "earshot: listening to $handler\n";
        next if !is_terminal($message);
        my (undef, @words) = @{$message->{words}};
        put(join(q( ), @words, $message->{fields}{url} // q(-)) . "\n");
        $bus->acknowledge($message);
        $count-- if defined $count;
    }
    return;
}

my %commands = (fetch => [\&fetch, 1, 1], cancel => [\&cancel, 1, 1], watch => [\&watch, 1, 2]);
my ($name, @arguments) = @ARGV;
my ($command, $least, $most) = @{$commands{$name // ''} // [undef, 0, -1]};
my $done = eval {
    die "usage: earshot.pl fetch URL | cancel HANDLER | watch HANDLER [COUNT]\n"
        if @arguments < $least || @arguments > $most || ($arguments[1] // 1) !~ /\A\d+\z/;
    binmode STDOUT;
    $command->(Bus->open, @arguments);
    1;
};
print STDERR "earshot: $@" if !$done;
exit !$done;
