package Earshot::Place;

# Where the bus is: its directory on this machine, or its address on a network with the keys of both ends.

use v5.30;
use warnings;
use Fcntl qw(S_ISDIR S_IMODE);
use File::Basename qw(dirname);
use File::Spec::Functions qw(catfile file_name_is_absolute);
use IO::Socket::UNIX;
use ZMQ::FFI::Constants
    qw(ZMQ_CONNECT_TIMEOUT ZMQ_CURVE_PUBLICKEY ZMQ_CURVE_SECRETKEY ZMQ_CURVE_SERVERKEY ZMQ_HANDSHAKE_IVL ZMQ_HEARTBEAT_IVL
    ZMQ_HEARTBEAT_TIMEOUT);

# Runtime directory of a bus for several users of the machine.
use constant SHARED => '/run/earshot';
use constant { NO_BROKER => 69, USAGE => 64 };
use constant { CONNECT_MS => 5000, HEARTBEAT_MS => 5000, HEARTBEAT_TIMEOUT_MS => 15000 };

# Options: bus, key and server_key, by default EARSHOT_BUS, EARSHOT_BUS_KEY and EARSHOT_SERVER_KEY. `local` ignores the
# variables. `fail` is called with a sentence and an exit code.
sub new {
    my ($class, %options) = @_;
    my $self = bless { fail => $options{fail} }, $class;
    return $self if $options{local};
    $self->{bus} = $options{bus} || $ENV{EARSHOT_BUS};
    $self->{key} = $options{key} || $ENV{EARSHOT_BUS_KEY};
    $self->{server_key} = $options{server_key} || $ENV{EARSHOT_SERVER_KEY};
    return $self;
}

sub is_remote { my ($self) = @_; return !!$self->{bus} }

# Returns the address of a socket of the bus, `bus` or `work`. Fails if its directory is not trusted.
sub address {
    my ($self, $socket) = @_;
    return $self->{bus} if $self->is_remote;
    my $folder = $self->folder;
    my @found = lstat $folder or $self->no_broker;
    $self->{fail}->("$folder is not a directory private to this user: remove it, or set EARSHOT_RUNTIME", NO_BROKER)
        unless _is_trusted($folder, @found);
    return "ipc://$folder/$socket";
}

sub no_broker {
    my ($self) = @_;
    $self->{fail}->(
        "no bus answers at $self->{bus}: check the address, the key and the server key, and that its `earshot serve` has --listen",
        NO_BROKER)
        if $self->is_remote;
    my $folder = $self->folder;
    return $self->{fail}->("no broker answers in $folder: start one with `earshot serve`", NO_BROKER);
}

sub folder {
    return $ENV{EARSHOT_RUNTIME} if $ENV{EARSHOT_RUNTIME};
    return catfile($ENV{XDG_RUNTIME_DIR}, 'earshot') if $ENV{XDG_RUNTIME_DIR};
    my $own = catfile('/tmp', "earshot-$>");
    return $own if IO::Socket::UNIX->new(Peer => "$own/bus");
    my @found = lstat SHARED;
    return @found && _is_trusted(SHARED, @found) ? SHARED : $own;
}

# Returns whether the listener in the directory is trusted: of a directory of this user, or of one whose owner root decided.
sub _is_trusted {
    my ($folder, @found) = @_;
    my ($mode, $user) = @found[2, 4];
    return 0 unless S_ISDIR($mode);
    return !($mode & 077) || S_IMODE($mode) == 0755 if $user == $>;
    return !($mode & 022) && _only_root_decides($folder, $user == 0);
}

# Returns whether only root, or this user, can create and replace the directory. A path with links is not accepted.
sub _only_root_decides {
    my ($folder, $permits_sticky) = @_;
    return 0 unless file_name_is_absolute($folder);
    until ($folder eq '/') {
        $folder = dirname($folder);
        my ($mode, $user) = (lstat $folder)[2, 4] or return 0;
        return 0 unless S_ISDIR($mode) && ($user == 0 || $user == $>);
        return 0 if $mode & 022 && !($permits_sticky && $mode & 01000);
    }
    return 1;
}

# Sets the keys, the limits of time, and heartbeats of a connection over a network.
sub secure {
    my ($self, $socket) = @_;
    $self->{fail}->('the address of the bus is invalid: use tcp://HOST:PORT', USAGE) if $self->{bus} !~ m{\Atcp://.+:\d+\z};
    $self->{fail}->('a bus on a network needs the key file of this client and the server key', USAGE)
        unless $self->{key} && $self->{server_key};
    my %keys = (
        ZMQ_CURVE_PUBLICKEY, $self->_read($self->{key}, 'public-key', 1),
        ZMQ_CURVE_SECRETKEY, $self->_read($self->{key}, 'secret-key', 1),
        ZMQ_CURVE_SERVERKEY,
        -e $self->{server_key} ? $self->_read($self->{server_key}, 'public-key', 0) : $self->{server_key});
    $self->{fail}->('the server key is neither a key of 40 characters nor a file', USAGE)
        if length $keys{ZMQ_CURVE_SERVERKEY()} != 40;
    $socket->set($_, 'string', $keys{$_}) for keys %keys;
    $socket->set($_, 'int', CONNECT_MS) for ZMQ_CONNECT_TIMEOUT, ZMQ_HANDSHAKE_IVL;
    $socket->set(ZMQ_HEARTBEAT_IVL, 'int', HEARTBEAT_MS);
    $socket->set(ZMQ_HEARTBEAT_TIMEOUT, 'int', HEARTBEAT_TIMEOUT_MS);
    return;
}

# Returns the text of a line `name = "text"` of a file, with 40 characters.
sub _read {
    my ($self, $path, $name, $is_secret) = @_;
    open my $file, '<', $path or $self->{fail}->("cannot read the key file $path: $!", NO_BROKER);
    $self->{fail}->("the key file $path is accessible to other users: run `chmod 600` on it", NO_BROKER)
        if $is_secret && (stat $file)[2] & 077;
    while (my $line = <$file>) {
        # The output of `earshot key show` is a public key alone.
        return $1 if !$is_secret && $. == 1 && $line =~ /\A(\S{40})\s*\z/;
        return $2 if $line =~ /\A\s*\Q$name\E\s*=\s*(["'])(.{40})\1/;
    }
    return $self->{fail}->("the key file $path has no $name of 40 characters: create one with `earshot key new`", NO_BROKER);
}

1;
