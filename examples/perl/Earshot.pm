package Earshot;

# Client of an Earshot bus, protocol EAR/1 (protocols/1-CLIENT.md), on ZMQ::FFI.

use v5.30;
use warnings;
use Digest::SHA;
use Earshot::Place;
use Errno qw(EAGAIN EINTR);
use List::Util qw(first min);
use Time::HiRes qw(sleep time);
use ZMQ::FFI;
use ZMQ::FFI::Constants
    qw(ZMQ_DEALER ZMQ_EVENTS ZMQ_IMMEDIATE ZMQ_LINGER ZMQ_POLLIN ZMQ_POLLOUT ZMQ_RCVTIMEO ZMQ_RECONNECT_IVL ZMQ_SNDHWM
    ZMQ_SNDTIMEO);

use constant { FAILED => 1, USAGE => 64, NO_BROKER => 69 };
use constant { GREETING_MS => 3000, REMOTE_GREETING_MS => 8000, SILENCE_MS => 5000, LINGER_MS => 500 };

# Interval in milliseconds between two checks that the connection of a session with a lease stands.
use constant LOOK_MS => 1000;
use constant { PIECE_BYTES => 256 << 10, OPEN_READS => 4 };

# Exception: the connection of a session with a lease has ended.
use constant LOST => "lost\n";

# Message that each reply answers, and the number of their common operands.
my %questions = (
    RESULT => ['FETCH', 2], FAILED => ['FETCH', 2], REMOVED => ['REMOVE', 1], CANCELLED => ['CANCEL', 2],
    ANSWER => ['QUERY', 1]);

# Connects and performs the handshake, within 3 s. Closing the connection removes its requests.
#
# pull => 1: bodies come over the connection and not in files, for programs that cannot open the files of the broker.
# lease => 60: seconds for which the broker keeps the session of a broken connection; `receive` resumes the session.
# bus => 'tcp://HOST:PORT', key => FILE, server_key => KEY: a bus on a network. Bodies are then always pulled, the lease is 60 s by
# default, and the limit 8 s.
sub open {
    my ($class, %options) = @_;
    my $self = $class->_new(%options);
    my $welcome = $self->_hello or $self->_no_broker;
    $self->{token} = $welcome->{fields}{token};
    return $self;
}

# Connects as a worker for URLs of a scheme, with `$slots` concurrent jobs, within 3 s. Such a bus works only with `await`,
# `receive`, `done`, `failed`, `pong` and `bye`.
sub register {
    my ($class, $scheme, $slots) = @_;
    my $self = $class->_new(local => 1);
    $self->_make_socket;
    $self->_serve_one_connection;    # `await` detects its end.
    $self->_greet('work', 'READY', 'EARW/1', { slots => $slots, schemes => $scheme, pid => $$, drain => 'yes' })
        or $self->_no_broker;
    return $self;
}

sub _new {
    my ($class, %options) = @_;
    # The object keeps the context, because the socket closes silently with the last reference to it.
    my $place = Earshot::Place->new(%options, fail => sub { $class->fail(@_) });
    my %usual = $place->is_remote ? (lease => 60) : (lease => 0);
    $options{pull} = 1 if $place->is_remote;
    return bless {
        context => ZMQ::FFI->new, place => $place, %usual, %options, client => "perl-$$-" . int rand 2**32, heard => 0, sent => 0,
        replies => 0, connection => 0,
        waiting => [],    # messages received while a body was read
        log => [],        # messages of a session with a lease that the broker may not have received
    }, $class;
}

sub _make_socket {
    my ($self) = @_;
    my $socket = $self->{socket} = $self->{context}->socket(ZMQ_DEALER);
    $socket->die_on_error(0);
    $socket->set(ZMQ_LINGER, 'int', LINGER_MS);
    $self->_serve_one_connection if $self->{lease};
    $self->{place}->secure($socket) if $self->{place}->is_remote;
    return;
}

# Limits the socket to one connection, so that messages for it never reach the next one. Without it a send fails.
sub _serve_one_connection {
    my ($self) = @_;
    my $socket = $self->{socket};
    $socket->set(ZMQ_RECONNECT_IVL, 'int', -1);
    $socket->set(ZMQ_IMMEDIATE, 'int', 1);
    $socket->set(ZMQ_SNDTIMEO, 'int', $self->_greeting_ms);
    $socket->set(ZMQ_SNDHWM, 'int', 0);
    return;
}

# Opens or resumes the session. Returns the answer, or undef if no broker answers.
sub _hello {
    my ($self) = @_;
    my %fields = $self->{lease} ? (client => $self->{client}, lease => $self->{lease}) : ();
    $fields{bodies} = 'pull' if $self->{pull};
    @fields{qw(token replies)} = @$self{qw(token replies)} if $self->{token};
    $self->_make_socket;
    return $self->_greet('bus', 'HELLO', 'EAR/1', \%fields);
}

# Connects to the endpoint, sends the first message, and returns the answer, or undef if no broker answers.
sub _greet {
    my ($self, $endpoint, @words) = @_;
    my $socket = $self->{socket};
    $socket->connect($self->{place}->address($endpoint));
    $self->_check('cannot connect');
    my $answer = $self->_transmit($self->_head(@words)) && $self->_await($self->_greeting_ms)
        or return;
    # From now on a send waits for nothing.
    $socket->set(ZMQ_SNDTIMEO, 'int', 0) if $self->{lease};
    return $self->_understand($answer);
}

# Maximum time for a connection and its first answer. Over a network a lost packet takes a second or more.
sub _greeting_ms { my ($self) = @_; return $self->{place}->is_remote ? REMOTE_GREETING_MS : GREETING_MS }

sub _no_broker { my ($self) = @_; return $self->{place}->no_broker }

# Requests a URL. The fields are those of FETCH: priority => 'high', timeout => 5.
sub fetch {
    my ($self, $handler, $request, $url, %fields) = @_;
    return $self->_say('FETCH', $handler, $request, $url, \%fields);
}

# Removes a handler with all its requests. The answer is REMOVED with the number of pending requests.
sub remove { my ($self, $handler) = @_; return $self->_say('REMOVE', $handler) }

# Cancels one request. The answer is CANCELLED.
sub cancel { my ($self, $handler, $request) = @_; return $self->_say('CANCEL', $handler, $request) }

# Subscribes to a handler, or with a trailing slash to all handlers below it. The answer is ANSWER.
sub subscribe {
    my ($self, $pattern) = @_;
    $self->_say('SUBSCRIBE', $pattern);
    return $self->_say('QUERY', 'ping');    # SUBSCRIBE has no answer
}

# Acknowledges a terminal. Unacknowledged terminals fill the delivery window.
sub acknowledge {
    my ($self, $message) = @_;
    my $number = $message->{fields}{seq};
    return if !defined $number;
    $self->{acknowledged} = $number;
    return $self->_say('ACK', $number);
}

# Completes a JOB with a body and its content type.
sub done {
    my ($self, $attempt, $type, $body) = @_;
    my $head = $self->_head('DONE', $attempt, 200, { length => length $body });
    $self->{socket}->send_multipart(["$head\ncontent-type: $type\n", $body]);
    $self->_check('cannot send');
    return;
}

# Fails a JOB. With the code worker-failed, clients receive `detail`, which is one line.
sub failed {
    my ($self, $attempt, $code, $detail) = @_;
    return $self->_say('FAILED', $attempt, $code, { detail => $detail });
}

# Answers a PING of the broker.
sub pong { my ($self) = @_; return $self->_say('PONG') }

# Ends the worker's session.
sub bye { my ($self) = @_; return $self->_say('BYE') }

# Waits for a message, for input on the pipe if there is one, or for the time limit in seconds; undef means no limit.
# Returns whether a message can be received.
sub await {
    my ($self, $pipe, $seconds) = @_;
    my $events = $self->{socket}->get(ZMQ_EVENTS, 'int');
    $self->_check('cannot poll');
    return 1 if $events & ZMQ_POLLIN;
    $self->fail('the broker is gone', NO_BROKER) unless $events & ZMQ_POLLOUT;
    my $readable = '';
    vec($readable, $_, 1) = 1 for $self->{socket}->get_fd, $pipe ? fileno $pipe : ();
    select $readable, undef, undef, $seconds;
    return 0;
}

# Waits for the next message without a time limit. Skips terminals that the broker redelivers with the same number.
sub receive {
    my ($self) = @_;
    my $message = shift @{$self->{waiting}};
    $message = $self->_receive_or_resume until $message;
    return $message;
}

# Calls a function with each part of a body with the field `pull`, in order.
sub pull {
    my ($self, $message, $take) = @_;
    my ($number, $length, $hash) = @{$message->{fields}}{qw(seq length sha-256)};
    my $digest = Digest::SHA->new(256);
    my ($asked, $taken, $connection, %parts) = (0, 0, $self->{connection});
    while ($taken < $length) {
        if ($connection != $self->{connection}) {    # The broken connection had READs without an answer.
            $connection = $self->{connection};
            $asked = $taken;
            %parts = ();
        } elsif ($asked < min($length, $taken + OPEN_READS * PIECE_BYTES)) {
            $self->_say('READ', $number, $asked, min(PIECE_BYTES, $length - $asked));
            $asked += PIECE_BYTES;
        } else {
            $self->_keep_data($number, \%parts);
            while (defined(my $part = delete $parts{$taken})) {
                $self->fail('a part of the body is missing') if length $part != min(PIECE_BYTES, $length - $taken);
                $digest->add($part);
                $take->($part);
                $taken += length $part;
            }
        }
    }
    $self->fail('the body has another hash than its result') if defined $hash && $hash ne $digest->hexdigest;
    return;
}

# Receives a message. Keeps the bytes of DATA by their offset, and other messages for `receive`.
sub _keep_data {
    my ($self, $number, $parts) = @_;
    my $message = $self->_receive_or_resume or return;
    my ($reference, $offset) = @{$message->{operands}};
    if ($message->{verb} eq 'DATA') { $parts->{$offset} = $message->content if $reference eq $number }
    elsif ($message->{verb} ne 'PROGRESS') { push @{$self->{waiting}}, $message }
    return;
}

# Returns the next message, or undef after it has resumed the session over a new connection.
sub _receive_or_resume {
    my ($self) = @_;
    my $message = eval { $self->_receive_new };
    return $message if $message;
    die $@ if $@ ne LOST;
    $self->_resume;
    return;
}

sub _receive_new {
    my ($self) = @_;
    while (1) {
        my $message = $self->_receive;
        return $message unless $message->is_terminal;
        my $number = $message->{fields}{seq};

        # The refusal of a durable request has no number, and needs no acknowledgement.
        return $message unless defined $number;
        next if $number <= $self->{heard};
        $self->{heard} = $number;
        return $message;
    }
}

# Waits for the next message. A broker that ends sends no message, so a QUERY checks that it is alive after some silence.
sub _receive {
    my ($self) = @_;
    my $frames = $self->_await(SILENCE_MS);
    if (!$frames) {
        $self->_say('QUERY', 'ping');
        $frames = $self->_await(SILENCE_MS);
    }
    if (!$frames) {
        die LOST if $self->{token};
        $self->_gone;
    }
    my $message = $self->_understand($frames) or die LOST;
    $self->_confirm($message);
    return $message;
}

sub _gone { my ($self) = @_; return $self->fail('the broker is gone: start one with `earshot serve`', NO_BROKER) }

# Connects again, resumes the session, and repeats the messages that the broker has not received.
sub _resume {
    my ($self) = @_;
    my $end = time + $self->{lease};
    for (my $pause = 0.01; time < $end; $pause = min(1, 2 * $pause)) {
        sleep $pause;
        $self->{socket}->close;
        my $welcome = eval { $self->_hello };
        die $@ if $@ && $@ ne LOST;
        next unless $welcome;
        my $resumed = $welcome->{fields}{resumed}
            // $self->fail('the session has ended: ask again', NO_BROKER);
        return if $self->_send_again($resumed);
    }
    return $self->_gone;
}

sub _send_again {
    my ($self, $resumed) = @_;
    $self->{connection}++;
    $self->{sent} = $resumed;
    $self->{log} = [grep { $_->{number} > $resumed } @{$self->{log}}];
    if (defined $self->{acknowledged}) {
        $self->{sent}++;
        $self->_transmit("ACK $self->{acknowledged}\n") or return 0;
    }
    for my $entry (@{$self->{log}}) {
        $entry->{number} = ++$self->{sent};
        $self->_transmit($entry->{head}) or return 0;
    }
    return 1;
}

# Counts a reply, and drops messages from the log: an answer to one shows that the broker has received all before it.
sub _confirm {
    my ($self, $message) = @_;
    my ($verb, @operands) = ($message->{verb}, @{$message->{operands}});
    $self->{replies}++ unless defined $message->{fields}{seq} || $verb =~ /\A(?:DATA|PROGRESS|GOODBYE)\z/;
    my ($asked, $count) = @{$questions{$verb} // return};
    my $start = join ' ', $asked, @operands[0 .. $count - 1];
    my $log = $self->{log};
    my $index = first { $log->[$_]{head} =~ /\A\Q$start\E[ \n]/ } 0 .. $#$log;
    splice @$log, 0, $index + 1 if defined $index;
    return;
}

# Returns the message in these frames, or undef if another connection has the session. Fails if it is another ERROR.
sub _understand {
    my ($self, $frames) = @_;
    my $message = Earshot::Message->new($self, @$frames);
    if ($message->{verb} eq 'ERROR') {
        return if $message->{operands}[0] eq 'session-in-use';
        $self->fail('the broker has ended and another one is there: ask again', NO_BROKER)
            if $message->{operands}[0] eq 'hello-required';
        $self->fail("$message->{operands}[0]: $message->{fields}{detail}");
    }
    return $message;
}

# Prints an error to standard error, and ends the program with its exit code.
sub fail {
    my (undef, $text, $status) = @_;
    say STDERR "earshot: $text";
    exit($status // FAILED);
}

# Prints the usage of a program and exits.
sub usage {
    my (undef, $text) = @_;
    say STDERR "usage: $text";
    exit USAGE;
}

# Writes bytes to standard output. Fails if they cannot be written.
sub print {
    my ($class, $bytes) = @_;
    binmode STDOUT;
    local $| = 1;
    print {*STDOUT} $bytes or $class->fail("cannot write: $!");
}

# Returns the frames of the next message, or undef after a time-out. Dies if a session with a lease has no connection.
sub _await {
    my ($self, $milliseconds) = @_;
    my $socket = $self->{socket};
    my $end = time + $milliseconds / 1000;
    $socket->set(ZMQ_RCVTIMEO, 'int', $self->{token} ? LOOK_MS : $milliseconds);
    while (1) {
        my @frames = $socket->recv_multipart;
        return \@frames if !$socket->has_error;
        next if $socket->last_errno == EINTR;
        $self->_check('cannot receive') if $socket->last_errno != EAGAIN;
        return if time >= $end;
        die LOST if $self->{token} && !($socket->get(ZMQ_EVENTS, 'int') & (ZMQ_POLLIN | ZMQ_POLLOUT));
    }
}

sub _say {
    my ($self, @words) = @_;
    my $head = $self->_head(@words);
    $self->{sent}++;
    push @{$self->{log}}, { number => $self->{sent}, head => $head }
        if $self->{token} && $words[0] !~ /\A(?:ACK|READ)\z/;
    return if $self->_transmit($head);
    $self->fail('cannot send: ' . $self->{socket}->last_strerror) if !$self->{token};
    $self->_resume;
    return;
}

# Sends a head. Returns whether there was a connection for it.
sub _transmit {
    my ($self, $head) = @_;
    my $socket = $self->{socket};
    $socket->send($head);
    return 0 if $socket->has_error && $socket->last_errno == EAGAIN;
    $self->_check('cannot send');
    return 1;
}

# Ends the session, so that its lease ends too.
sub DESTROY {
    my ($self) = @_;
    local $@;
    $self->{socket}->send("BYE\n") if $self->{token} && ${^GLOBAL_PHASE} ne 'DESTRUCT';
    return;
}

# Returns the head of a message: the words as a line, and a line for each field. The last word may be a hash of fields.
sub _head {
    my ($self, @words) = @_;
    my $fields = ref $words[-1] ? pop @words : {};
    # A line feed in a word would inject fields into the message.
    $self->fail('a URL or name is empty, or has a space or control character in it', USAGE)
        if grep { !/\A[^\x00-\x20\x7f]+\z/ } @words;
    return join '', "@words\n", map { "$_: $fields->{$_}\n" } sort keys %$fields;
}

sub _check {
    my ($self, $what) = @_;
    my $socket = $self->{socket};
    $self->fail("$what: " . $socket->last_strerror) if $socket->has_error;
    return;
}

# Message from the broker: the words of its first line, its fields, the HTTP fields as lines, and its body.
package Earshot::Message;

sub new {
    my ($class, $bus, $head, $body) = @_;
    my ($top, $http) = split /\n\n/, $head, 2;
    my ($line, @fields) = split /\n/, $top;
    my ($verb, @operands) = split / /, $line;
    my %fields = map { /\A([^:]*):? *(.*)\z/s } @fields;
    return bless {
        bus => $bus, verb => $verb, operands => \@operands, fields => \%fields, http => $http, body => $body,
    }, $class;
}

# Returns whether the message is a terminal, RESULT or FAILED.
sub is_terminal { my ($self) = @_; return $self->{verb} eq 'RESULT' || $self->{verb} eq 'FAILED' }

# Returns the body. Call it before `acknowledge`, which lets the broker delete the body.
sub content {
    my ($self) = @_;
    my $content = '';
    $self->each_part(sub { $content .= shift });
    return $content;
}

# Calls a function with each part of the body, in order. Call it before `acknowledge`.
sub each_part {
    my ($self, $take) = @_;
    return defined $self->{fields}{pull} ? $self->{bus}->pull($self, $take) : $take->($self->_whole);
}

sub _whole {
    my ($self) = @_;
    my $path = $self->{fields}{file} // return $self->{body} // '';
    open my $file, '<:raw', $path or Earshot->fail("$path: $!");
    local $/;
    return <$file> // Earshot->fail("$path: $!");
}

# Returns the terminal as a line: handler, request, status or code, and URL.
sub line {
    my ($self) = @_;
    return "@{$self->{operands}} " . ($self->{fields}{url} // '-') . "\n";
}

1;
