"""No input from a peer makes a broker trap, stop serving, or grow."""

import os
import random
import re
import socket
import uuid

import zmq

from support import zmtp
from support.client import Client
from support.harness import Bus, TestCase
from support.origin import Origin, body
from support.processes import eventually, resident

MIB = 1 << 20

ATTEMPT = "0123456789abcdef.1.1"

CLIENT_MESSAGES = [
    b"HELLO EAR/1\nclient: %s\nwindow: 16\n", b"HELLO EAR/9\n",
    b"FETCH a/b 7 http://127.0.0.1:9/x\npriority: high\ntimeout: 1\n\naccept: image/*\n",
    b"FETCH a 8 http://127.0.0.1:9/y\nretries: 0\nreplace: yes\nmax-bytes: 10\ndeadline: 0.001\n",
    b"FETCH a 9 ftp://x/\nwarm: yes\nsubscribe: no\ndigest: sha-256=00\nkey: k\ntag: t\n",
    b"REMOVE a/b 7\n", b"REMOVE a\n", b"REMOVE a/\n", b"SUBSCRIBE a/b\n", b"UNSUBSCRIBE a/\n", b"PRIORITY a/b 7 low\n",
    b"ACK 1\n", b"ACK 18446744073709551615\n", b"QUERY ping\n", b"QUERY status\n", b"QUERY ledger\n",
    b"QUERY why a/b 7\n", b"BYE\n",
]

WORKER_MESSAGES = [
    b"READY EARW/1\nslots: 100\nschemes: http https\npid: 1\nhost: h\nsecret: 00ff\n",
    b"READY EARW/1\nslots: 0\nschemes: thumb\npid: 4294967296\nholds: " + ATTEMPT.encode() + b"\n",
    b"DONE " + ATTEMPT.encode() + b" 200\nlength: 3\nsha-256: 00\nelapsed-ms: 1\n\ncontent-type: x\n",
    b"DONE " + ATTEMPT.encode() + b" 200\nfile: ../../etc/passwd\nlength: 99999999999999999999\n",
    b"FAILED " + ATTEMPT.encode() + b" timeout\ndetail: \xc3\x28\n",
    b"PROGRESS " + ATTEMPT.encode() + b" 1/-\n", b"PONG\n", b"BYE\n", b"LIMITS\n", b"JOB x y\n",
]

NUMBERS = [b"0", b"-1", b"1", b"1e9", b"NaN", b"inf", b"0x10", b"99999999999999999999999", b"18446744073709551616", b""]
SPLICES = [b"\n", b"\n\n", b"\r\n", b"\0", b" ", b"  ", b": ", b"/", b"//", b"\xff\xfe", b"\xe2\x80\xa8", b"%00"]

AUTHORITY = re.compile(rb"(https?://)[^/\s]*", re.IGNORECASE)
"""Replaced after each mutation, so that no name is resolved in the DNS: loopback only."""


def mutate(random_, message):
    """Returns `message` after a few changes that leave it similar to valid input."""
    data = bytearray(message)
    for _ in range(random_.randrange(0, 4)):
        position = random_.randrange(len(data) + 1)
        kind = random_.randrange(6)
        if kind == 0 and data:
            data[position % len(data)] = random_.randrange(256)
        elif kind == 1:
            del data[position:position + random_.randrange(1, 9)]
        elif kind == 2:
            data[position:position] = random_.choice(SPLICES)
        elif kind == 3:
            data[position:position] = random_.choice(NUMBERS)
        elif kind == 4:
            data[position:position] = bytes(data[:position])[:200]
        else:
            data[position:position] = random_.choice(CLIENT_MESSAGES + WORKER_MESSAGES)
    return AUTHORITY.sub(rb"\g<1>127.0.0.1:9", bytes(data))


def frames(random_, seeds):
    """Returns one hostile message of one or more frames."""
    kind = random_.randrange(100)
    if kind < 20:
        head = random_.randbytes(random_.randrange(200))
    elif kind < 22:
        head = random_.choice(seeds)[:-1] + b"x" * random_.choice((65_000, 65_536, 70_000))
    elif kind < 24:
        head = random_.choice(seeds) + b"a: b\n" * random_.randrange(2000)
    else:
        head = mutate(random_, random_.choice(seeds))
    parts = [head]
    extra = random_.randrange(20)
    if extra == 0:
        parts.insert(0, b"")
    elif extra < 4:
        parts.append(random_.randbytes(random_.randrange(2000)))
    elif extra == 4:
        parts += [b"part"] * random_.randrange(1, 50)
    return parts


class IdentifiedClient(Client):
    """Clients with the same routing ID."""

    def _connect(self, address):
        self.socket.identity = b"same"
        super()._connect(address)


class HostileTests(TestCase):
    MESSAGES = 50_000 if os.environ.get("EARSHOT_LONG") else 10_000
    """Number for each of the two sockets."""

    def setUp(self):
        self.seed = random.SystemRandom().randrange(1 << 32)
        self.origin = self.enterContext(Origin())
        self.bus = self.enterContext(Bus(workers=1))

    def still_serves(self, request):
        client = self.bus.client()
        client.fetch("honest", request, f"{self.origin.url}/bytes/100?seed={request}")
        self.assertResult(client.terminal(), body(100, request))
        self.balance(client)
        client.close()

    def socket(self, kind):
        """Returns a socket that is closed at the end without lingering."""
        made = zmq.Context.instance().socket(kind)
        self.addCleanup(made.close, linger=0)
        return made

    def attack(self, endpoint, seeds, random_):
        """Sends over a few concurrent connections, each replaced occasionally; some read, some never do."""
        context = zmq.Context.instance()
        sent = 0
        while sent < self.MESSAGES:
            attacker = context.socket(zmq.DEALER)
            attacker.linger = 5000
            attacker.connect(f"ipc://{self.bus.runtime}/{endpoint}")
            listens = random_.random() < 0.7
            if endpoint == "bus" and random_.random() < 0.8:
                attacker.send(CLIENT_MESSAGES[0] % uuid.UUID(int=random_.getrandbits(128)).hex.encode())
            for _ in range(random_.randrange(1, 1000)):
                if not attacker.poll(5000, zmq.POLLOUT):
                    break  # The broker may stop accepting input from this one.
                attacker.send_multipart(frames(random_, seeds))
                sent += 1
                if listens:
                    while attacker.poll(0):
                        attacker.recv_multipart()
            attacker.close()

    def test_random_and_mutated_messages(self):
        random_ = random.Random(self.seed)
        self.still_serves("before")
        broker = self.bus.broker
        before = resident(broker)
        for endpoint, seeds in (("bus", CLIENT_MESSAGES), ("work", WORKER_MESSAGES)):
            with self.subTest(socket=endpoint, seed=self.seed):
                self.attack(endpoint, seeds, random_)
                self.still_serves(endpoint)
        self.assertEqual(self.bus.broker, broker, f"the same process, seed {self.seed}")
        # Memory of a burst is returned one second after it.
        eventually(lambda: resident(broker) - before <= 16 * MIB,
                   lambda: f"{(resident(broker) - before) / MIB:.1f} MiB more, seed {self.seed}")

    def test_bytes_that_are_not_even_zeromq(self):
        random_ = random.Random(self.seed)
        broker = self.bus.broker
        for endpoint in ("bus", "work"):
            for _ in range(200):
                with socket.socket(socket.AF_UNIX) as raw:
                    raw.connect(str(self.bus.runtime / endpoint))
                    try:
                        raw.sendall(random_.choice((b"", zmtp.GREETING[:10]))
                                    + random_.randbytes(random_.randrange(300)))
                    except (BrokenPipeError, ConnectionResetError):
                        pass
        self.still_serves("raw")
        self.assertEqual(self.bus.broker, broker, f"the same process, seed {self.seed}")

    def test_a_stranger_at_the_work_socket_gets_no_http_jobs(self):
        other = self.socket(zmq.DEALER)
        other.connect(f"ipc://{self.bus.runtime}/work")
        other.send(b"READY EARW/1\nslots: 1000\nschemes: http https\npid: 1\nhost: h\nsecret: " + b"0" * 64 + b"\n")
        self.assertTrue(other.poll(60_000), "it is told")
        self.assertTrue(other.recv_multipart()[0].startswith(b"ERROR not-a-child"))
        for index in range(20):
            self.still_serves(index)
        self.assertFalse(other.poll(0), "and nothing else")

    def test_one_who_says_no_hello_is_told_so(self):
        client = self.bus.client(hello=False)
        client.fetch("h", 1, f"{self.origin.url}/bytes/1")
        client.expect("ERROR", "hello-required")
        client.hello()
        client.send("NONSENSE a b")
        client.expect("ERROR", "unknown-verb")
        client.send("FETCH only-a-handler")
        client.expect("ERROR", "bad-message")
        self.assertEqual(self.origin.total, 0)

    def test_two_clients_with_the_same_routing_ID_are_two_clients(self):
        pair = [self.bus.client(IdentifiedClient) for _ in range(2)]
        for number, client in enumerate(pair):
            client.fetch(f"h{number}", "same", f"{self.origin.url}/bytes/{100 + number}?seed={number}")
        for number, client in enumerate(pair):
            result = client.terminal()
            self.assertEqual(result.id, (f"h{number}", "same"))
            self.assertResult(result, body(100 + number, number))

    def test_a_worker_with_a_routing_ID_is_taken_in(self):
        worker = self.socket(zmq.DEALER)
        worker.identity = b"i" * 255
        worker.connect(f"ipc://{self.bus.runtime}/work")
        worker.send(b"READY EARW/1\nslots: 1\nschemes: thumb\npid: 1\nhost: h\n")
        self.assertTrue(worker.poll(60_000), "it hears of the limits")
        self.assertTrue(worker.recv_multipart()[0].startswith(b"LIMITS"))
