package Earshot;

# Client of an Earshot bus, protocol EAR/1 (protocols/1-CLIENT.md), on ZMQ::FFI.

use v5.30;
use warnings;
use Errno qw(EAGAIN EINTR);
use Fcntl qw(S_ISDIR);
use File::Spec::Functions qw(catfile);
use ZMQ::FFI;
use ZMQ::FFI::Constants
    qw(ZMQ_DEALER ZMQ_EVENTS ZMQ_IMMEDIATE ZMQ_LINGER ZMQ_POLLIN ZMQ_POLLOUT ZMQ_RCVTIMEO ZMQ_RECONNECT_IVL ZMQ_SNDTIMEO);

use constant { FAILED => 1, USAGE => 64, NO_BROKER => 69 };
use constant { GREETING_MS => 3000, SILENCE_MS => 5000, LINGER_MS => 500 };

# Connects and performs the handshake, within 3 s. Closing the connection removes its requests.
sub open { my ($class) = @_; return $class->_socket->_greet('bus', 'HELLO', 'EAR/1') }

# Connects as a worker for URLs of a scheme, with `$slots` concurrent jobs, within 3 s. Such a bus works only with `await`,
# `receive`, `done`, `failed`, `pong` and `bye`.
sub register {
    my ($class, $scheme, $slots) = @_;
    my $self = $class->_socket;
    # A worker's socket serves one connection, so that messages for one broker never reach the next one. Without a
    # connection a send fails, and `await` detects that.
    $self->{socket}->set(ZMQ_RECONNECT_IVL, 'int', -1);
    $self->{socket}->set(ZMQ_IMMEDIATE, 'int', 1);
    $self->{socket}->set(ZMQ_SNDTIMEO, 'int', GREETING_MS);
    return $self->_greet('work', 'READY', 'EARW/1', { slots => $slots, schemes => $scheme, pid => $$, drain => 'yes' });
}

sub _socket {
    my ($class) = @_;
    my $context = ZMQ::FFI->new;
    my $socket = $context->socket(ZMQ_DEALER);
    $socket->die_on_error(0);
    $socket->set(ZMQ_LINGER, 'int', LINGER_MS);
    # The object keeps the context, because the socket closes silently with the last reference to it.
    return bless { context => $context, socket => $socket, heard => 0 }, $class;
}

sub _greet {
    my ($self, $endpoint, @words) = @_;
    my $folder = $ENV{EARSHOT_RUNTIME} || ($ENV{XDG_RUNTIME_DIR} && catfile($ENV{XDG_RUNTIME_DIR}, 'earshot'))
        || catfile('/tmp', "earshot-$>");
    $self->_look_at($folder);
    my $socket = $self->{socket};
    $socket->connect("ipc://$folder/$endpoint");
    $self->_check('cannot connect');
    $socket->send($self->_head(@words));
    my $is_refused = $socket->has_error && $socket->last_errno == EAGAIN;
    $self->_check('cannot send') unless $is_refused;
    my $answer = !$is_refused && $self->_await(GREETING_MS)
        or $self->_no_broker($folder);
    $self->_understand($answer);
    return $self;
}

# Fails unless the directory is private to this user. In /tmp any user can create one and would receive requests.
sub _look_at {
    my ($self, $folder) = @_;
    my ($mode, $user) = (lstat $folder)[2, 4] or $self->_no_broker($folder);
    return if S_ISDIR($mode) && $user == $> && !($mode & 077);
    $self->fail("$folder is not a directory private to this user: remove it, or set EARSHOT_RUNTIME", NO_BROKER);
}

sub _no_broker {
    my ($self, $folder) = @_;
    $self->fail("no broker answers in $folder: start one with `earshot serve`", NO_BROKER);
}

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
    return defined $number ? $self->_say('ACK', $number) : undef;
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
        $frames = $self->_await(SILENCE_MS)
            or $self->fail('the broker is gone: start one with `earshot serve`', NO_BROKER);
    }
    return $self->_understand($frames);
}

# Returns the message in these frames. Fails if it is an ERROR.
sub _understand {
    my ($self, $frames) = @_;
    my $message = Earshot::Message->new(@$frames);
    if ($message->{verb} eq 'ERROR') {
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

# Returns the frames of the next message, or undef after a time-out.
sub _await {
    my ($self, $milliseconds) = @_;
    my $socket = $self->{socket};
    $socket->set(ZMQ_RCVTIMEO, 'int', $milliseconds);
    my @frames;
    do { @frames = $socket->recv_multipart } while $socket->has_error && $socket->last_errno == EINTR;
    return if $socket->last_errno == EAGAIN;
    $self->_check('cannot receive');
    return \@frames;
}

sub _say {
    my ($self, @words) = @_;
    $self->{socket}->send($self->_head(@words));
    $self->_check('cannot send');
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
    my ($class, $head, $body) = @_;
    my ($top, $http) = split /\n\n/, $head, 2;
    my ($line, @fields) = split /\n/, $top;
    my ($verb, @operands) = split / /, $line;
    my %fields = map { /\A([^:]*):? *(.*)\z/s } @fields;
    return bless { verb => $verb, operands => \@operands, fields => \%fields, http => $http, body => $body }, $class;
}

# Returns whether the message is a terminal, RESULT or FAILED.
sub is_terminal { my ($self) = @_; return $self->{verb} eq 'RESULT' || $self->{verb} eq 'FAILED' }

# Returns the body. Call it before `acknowledge`, which lets the broker delete the body.
sub content {
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
