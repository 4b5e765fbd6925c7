#!/usr/bin/perl
# Client of an Earshot bus (protocols/1-core.md) on a plain Unix socket, without a ZeroMQ library:
# client.pl URL... prints each body, or the reason of its failure.
use strict;
use warnings;
use IO::Socket::UNIX;

# Step 1: the runtime folder.

sub folder {
    my $folder = $ENV{EARSHOT_RUNTIME} || ($ENV{XDG_RUNTIME_DIR} ? "$ENV{XDG_RUNTIME_DIR}/earshot" : join("/", "/tmp", "earshot-$>"));
    my @entry = lstat $folder or die "no broker runs: $folder is missing\n";
    my $mode = $entry[2] & 0777;
    die "no broker runs: $folder is not private\n"
        unless -d _ && !-l _ && $entry[4] == $> && ($mode == 0755 || !($mode & 077));
    return $folder;
}

# Step 2: ZMTP. A frame has a byte of flags (1: more frames follow, 2: long, 4: a command), a length and bytes.

my ($socket, $unread, $is_welcome);

sub bytes {
    my ($count) = @_;
    while (length $unread < $count) {
        my $got = sysread $socket, $unread, 65536, length $unread;
        die "the connection ended\n" unless $got;
    }
    return substr $unread, 0, $count, "";
}

sub frame {
    my $flags = ord bytes(1);
    my $length = $flags & 2 ? unpack("Q>", bytes(8)) : ord bytes(1);
    return ($flags, bytes($length));
}

sub write_all {
    my ($rest) = @_;
    while (length $rest) {
        my $count = syswrite $socket, $rest;
        die "the connection ended\n" unless $count;
        substr $rest, 0, $count, "";
    }
}

sub send_head {
    my ($head) = @_;
    my $length = length $head;
    write_all(($length > 255 ? "\2" . pack("Q>", $length) : "\0" . chr $length) . $head);
}

sub receive {
    my @frames;
    while (1) {
        my ($flags, $bytes) = frame();
        next if $flags & 4;
        push @frames, $bytes;
        return @frames unless $flags & 1;
    }
}

sub connect_bus {
    my $path = folder() . "/bus";
    ($socket, $unread) = (IO::Socket::UNIX->new(Peer => $path), "");
    $socket or die "no broker runs: $path: $!\n";
    write_all("\xFF" . "\0" x 8 . "\x7F\3\0NULL" . "\0" x 48);
    write_all("\4\x1C\5READY\x0BSocket-Type\0\0\0\6DEALER");
    my $greeting = bytes(64);
    die "the peer does not speak ZMTP 3\n" unless $greeting =~ /^\xFF.{8}[\x01-\xFF][\x03-\xFF].NULL\0/s;
    my ($flags, $ready) = frame();
    die "the peer is no ROUTER\n" unless $flags & 4 && $ready =~ /^\x05READY.*ROUTER/s;
}

# Step 3: a head is a line of words, fields, and after an empty line the HTTP fields.

sub parse {
    my ($head) = @_;
    my ($lines) = split /\n\n/, $head, 2;
    my ($line, @fields) = split /\n/, $lines;
    my %field = map { /^([^:]+): *(.*?) *$/ ? ($1, $2) : () } @fields;
    return (\%field, split / /, $line);
}

sub hello {
    send_head("HELLO EAR/1\n");
    local $SIG{ALRM} = sub { die "no broker runs: no WELCOME\n" };
    alarm 15;
    my ($field, $verb, $operand) = parse(receive());
    alarm 0;
    die "the broker refuses: $operand: $field->{detail}\n" unless $verb eq "WELCOME";
    $is_welcome = 1;
}

# Step 4: requests and their terminals. The name of the handler has a random part, since others share the bus.

my $handler = sprintf "afternoon/%d-%08x", $$, rand 2**32;
my %open = map { $_ => $ARGV[$_ - 1] } 1 .. @ARGV;
my $status = 0;
my %losses;
my ($number, %sent);    # the number of the last FETCH, and their IDs by number

sub request {
    my ($id) = @_;
    $sent{++$number} = $id;
    send_head("FETCH $handler $id $open{$id}\nnumber: $number\n");
}

sub request_all {
    ($number, %sent) = 0;
    request($_) for sort { $a <=> $b } keys %open;
}

sub body {
    my ($field, $frame) = @_;
    return $frame // "" unless $field->{file};
    open my $file, "<:raw", $field->{file} or return undef;
    local $/;
    return scalar <$file>;
}

# Returns 0 if the file of a body is missing, twice at most; the request is then sent again.
sub finish {
    my ($verb, $id, $operand, $field, $frame) = @_;
    if ($verb eq "RESULT") {
        my $body = body($field, $frame);
        return 0 unless defined $body || ($losses{$id} // 0) >= 2;
        print $body // "";
        $status = 1 unless defined $body;
    } else {
        return 1 if $operand eq "stopping";    # The next broker gets it.
        print STDERR "$open{$id}: $operand: ", $field->{detail} // "", "\n";
        $status = 1;
    }
    delete $open{$id};
    return 1;
}

sub converse {
    my $highest = 0;
    connect_bus();
    hello();
    request_all();
    while (%open) {
        my ($head, $frame) = receive();
        my ($field, $verb, $name, $id, $operand) = parse($head);
        if ($verb eq "RESULT" || $verb eq "FAILED") {
            next unless defined $field->{seq} && $field->{seq} > $highest;
            $highest = $field->{seq};
            my $is_lost = $name eq $handler && $open{$id} && !finish($verb, $id, $operand, $field, $frame);
            send_head("ACK $highest\n");
            request($id) if $is_lost && $verb eq "RESULT" && ++$losses{$id};
        } elsif ($verb eq "ERROR" && $field->{to}) {
            my $refused = delete $sent{$field->{to}};
            finish("FAILED", $refused, $name, $field) if $refused && $open{$refused};
        }
    }
}

# Step 5: another connection when one ends. All requests are GET, so it is safe to send them again.

binmode STDOUT;
$SIG{PIPE} = "IGNORE";
my ($pause, $left) = (0.01, 20);
until (eval { converse(); 1 }) {
    die $@ unless $is_welcome && $@ =~ /^the connection ended|^no broker runs/ && $left--;
    select undef, undef, undef, $pause;
    $pause = $pause < 0.5 ? $pause * 2 : 1;
}
send_head("BYE\n");
exit $status;
