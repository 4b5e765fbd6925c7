package Earshot;

# A client of an Earshot bus, protocol EAR/1 (protocols/1-CLIENT.md), on ZMQ::FFI.

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

# Connects and is greeted, in at most 3 s. What the connection asked for ends with it.
sub open { my ($class) = @_; return $class->_socket->_greet('bus', 'HELLO', 'EAR/1') }

# Connects as a worker for URLs of a scheme, so many at once, in at most 3 s. Such a bus is used with `await`, `receive`,
# `done`, `failed`, `pong` and `bye`, and with nothing else.
sub register {
    my ($class, $scheme, $slots) = @_;
    my $self = $class->_socket;
    # A worker's socket is for one connection: what is meant for one broker shall not reach the next. Without a
    # connection nothing can be sent, and `await` notices that.
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
    # The context is kept because the socket closes, silently, when it goes.
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

# Fails unless the folder is this user's alone: in /tmp anybody can make one, and would hear what is asked for.
sub _look_at {
    my ($self, $folder) = @_;
    my ($mode, $user) = (lstat $folder)[2, 4] or $self->_no_broker($folder);
    return if S_ISDIR($mode) && $user == $> && !($mode & 077);
    $self->fail("$folder is not a folder of this user's alone: what runs there is not to be trusted", NO_BROKER);
}

sub _no_broker {
    my ($self, $folder) = @_;
    $self->fail("no broker answers in $folder: start one with `earshot serve`", NO_BROKER);
}

# Wants a URL. The fields are those of FETCH: priority => 'high', timeout => 5.
sub fetch {
    my ($self, $handler, $request, $url, %fields) = @_;
    return $self->_say('FETCH', $handler, $request, $url, \%fields);
}

# Nothing under the handler is wanted any more. Answered with REMOVED and how many requests had not ended.
sub remove { my ($self, $handler) = @_; return $self->_say('REMOVE', $handler) }

# One request is not wanted any more. Answered with CANCELLED.
sub cancel { my ($self, $handler, $request) = @_; return $self->_say('CANCEL', $handler, $request) }

# Hears what becomes of a handler's requests, or with a slash at its end of all below. Answered with ANSWER.
sub subscribe {
    my ($self, $pattern) = @_;
    $self->_say('SUBSCRIBE', $pattern);
    return $self->_say('QUERY', 'ping');    # SUBSCRIBE itself is not answered
}

# Unacknowledged terminals are in the way of the next.
sub acknowledge {
    my ($self, $message) = @_;
    my $number = $message->{fields}{seq};
    return defined $number ? $self->_say('ACK', $number) : undef;
}

# Answers a JOB with a body and its type.
sub done {
    my ($self, $attempt, $type, $body) = @_;
    my $head = $self->_head('DONE', $attempt, 200, { length => length $body });
    $self->{socket}->send_multipart(["$head\ncontent-type: $type\n", $body]);
    $self->_check('cannot send');
    return;
}

# Answers a JOB that came to nothing; `detail` is a line for who asked, if the code is worker-failed.
sub failed {
    my ($self, $attempt, $code, $detail) = @_;
    return $self->_say('FAILED', $attempt, $code, { detail => $detail });
}

# Answers PING.
sub pong { my ($self) = @_; return $self->_say('PONG') }

# Leaves.
sub bye { my ($self) = @_; return $self->_say('BYE') }

# Waits until a worker has something to do, or the seconds are over, or there is something in the pipe, if there is one.
# Whether it is a message.
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

# The next message, however long it takes, a terminal once: a broker may say it again, with the number that it had.
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

# The next message. A broker that ends tells nobody: after some silence it is asked for a sign of life.
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

# The message in these frames, unless it is an ERROR.
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

# Says on standard error why it cannot go on, and ends the program with the exit status that fits.
sub fail {
    my (undef, $text, $status) = @_;
    say STDERR "earshot: $text";
    exit($status // FAILED);
}

# Ends a program that was called wrongly.
sub usage {
    my (undef, $text) = @_;
    say STDERR "usage: $text";
    exit USAGE;
}

# Writes bytes to standard output, or fails.
sub print {
    my ($class, $bytes) = @_;
    binmode STDOUT;
    local $| = 1;
    print {*STDOUT} $bytes or $class->fail("cannot write: $!");
}

# The frames of the next message; undef when none comes in time.
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

# The words as a line, and a line for each of the fields that may be the last of them.
sub _head {
    my ($self, @words) = @_;
    my $fields = ref $words[-1] ? pop @words : {};
    # One with a line end in it could say anything.
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

# A message of the broker: its first line in words, its fields, the HTTP fields one a line, its body if it has one.
package Earshot::Message;

sub new {
    my ($class, $head, $body) = @_;
    my ($top, $http) = split /\n\n/, $head, 2;
    my ($line, @fields) = split /\n/, $top;
    my ($verb, @operands) = split / /, $line;
    my %fields = map { /\A([^:]*):? *(.*)\z/s } @fields;
    return bless { verb => $verb, operands => \@operands, fields => \%fields, http => $http, body => $body }, $class;
}

# Whether it is the last one of a request.
sub is_terminal { my ($self) = @_; return $self->{verb} eq 'RESULT' || $self->{verb} eq 'FAILED' }

# The body. To be read before the acknowledgement: then the file that it may be in is gone.
sub content {
    my ($self) = @_;
    my $path = $self->{fields}{file} // return $self->{body} // '';
    open my $file, '<:raw', $path or Earshot->fail("$path: $!");
    local $/;
    return <$file> // Earshot->fail("$path: $!");
}

# What became of a request, as a line.
sub line {
    my ($self) = @_;
    return "@{$self->{operands}} " . ($self->{fields}{url} // '-') . "\n";
}

1;
