"""Random bytes and messages for the gateway: before, in and after the handshake, while a good client works.

EARSHOT_FUZZ_SECONDS is the duration, EARSHOT_FUZZ_SEED the seed of a run that failed.
"""

import os
import random
import socket
import time
import unittest

import zmq

from support.figures import report
from support.harness import TestCase
from support.network import NetworkBus, Recorder
from support.origin import Origin, body
from support.processes import eventually, resident

IS_LONG = bool(os.environ.get("EARSHOT_LONG"))
SECONDS = float(os.environ.get("EARSHOT_FUZZ_SECONDS") or (60 if IS_LONG else 4))
SEED = int(os.environ.get("EARSHOT_FUZZ_SEED") or random.SystemRandom().randrange(1 << 32))
MIB = 1 << 20
#: Growth of the gateway: bytes of a few clients at a time, and of the allocator.
MOST_GROWTH = 64 * MIB
#: Heads that a client or a worker may say, as a start.
HEADS = [
    "HELLO EAR/1\nwindow: 8\nlease: 5\nbodies: pull\n", "HELLO EAR/1\nwindow: 8\nprincipal: key:other\n",
    "HELLO EAR/1\nwindow: 8\nproof: " + "0" * 64 + "\n", "FETCH h 1 http://127.0.0.1:1/\nstream: yes\n", "READ 1 0 262144\n",
    "READ h 1 0 5\ngeneration: x\n", "ACK 1\n", "REMOVE h 1\n", "REMOVE h/*\n", "SUBSCRIBE h\n", "QUERY status\n", "QUERY ping\n",
    "SET origin-limit 1\n", "BYE\n", "READY EARW/1\nslots: 3\nschemes: x y\nfiles: yes\n", "READY EARW/1\nslots: 1\nschemes: http\n",
    "DONE 0000000000000001.1.1 200\nlength: 3\n", "PONG\n", "COOKIES h http://o/\n\na=b\n",
]


class RandomInputTests(TestCase):
    def setUp(self):
        self.random = random.Random(SEED)
        self.origin = self.enterContext(Origin())
        self.bus = self.enterContext(NetworkBus(workers=1))
        self.worker_key = self.bus.new_key("worker", "--role", "worker", "--serves", "test")
        self.counts = dict.fromkeys(("handshakes", "connections", "messages", "requests"), 0)

    def mutated(self, data):
        """Returns bytes with a few random changes."""
        changed = bytearray(data)
        for _ in range(self.random.choice((1, 1, 2, 5, 30))):
            position = self.random.randrange(len(changed) + 1)
            kind = self.random.randrange(6)
            if kind < 3 and position < len(changed):
                changed[position] = self.random.choice((0, 1, 0x7f, 0xff, self.random.randrange(256), changed[position] ^ 1 << self.random.randrange(8)))
            elif kind == 3:
                changed[position:position] = self.random.randbytes(self.random.choice((1, 8, 300)))
            elif kind == 4:
                del changed[position:position + self.random.choice((1, 4, 64))]
            else:
                start = self.random.randrange(len(changed) + 1)
                changed[position:position] = changed[start:start + self.random.randrange(200)]
        return bytes(changed)

    # Hostile connections.

    def replay(self, recorded):
        """Sends a changed handshake, and perhaps more, in pieces of random lengths."""
        data = self.mutated(recorded) if self.random.random() < 0.9 else self.random.randbytes(self.random.randrange(3000))
        if self.random.random() < 0.3:
            data += self.random.randbytes(self.random.randrange(5000))
        self.counts["handshakes"] += 1
        with self.bus.connect() as connection:
            connection.settimeout(10)
            try:
                while data:
                    length = self.random.choice((1, 10, 64, 200, len(data)))
                    connection.sendall(data[:length])
                    data = data[length:]
                end = self.random.randrange(4)
                if end == 0:
                    connection.shutdown(socket.SHUT_WR)
                elif end == 1:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                elif end == 2:
                    connection.settimeout(0.01)
                    connection.recv(4096)
            except OSError:
                pass  # The gateway has ended the connection.

    def tamper(self):
        """Changes the bytes of a real client after some of them."""
        left = self.random.choice((64, 200, 270, 400, 600, 1500))

        def change(part):
            nonlocal left
            left -= len(part)
            return part if left > 0 else self.mutated(part)

        self.counts["connections"] += 1
        with Recorder(self.bus, change) as recorder:
            client = recorder.client(self.bus, self.bus.key, hello=False)
            self.converse(client)
            client.cut()

    def converse(self, client):
        """Sends random messages with a key that the gateway accepts."""
        for number in range(self.random.randrange(1, 12)):
            head = self.random.choice(HEADS).encode()
            if number == 0 and self.random.random() < 0.7:
                head = HEADS[0].encode()
            elif self.random.random() < 0.5:
                head = self.mutated(head)
            frames = [head]
            if self.random.random() < 0.3:
                frames += [self.random.randbytes(self.random.choice((0, 10, 70_000)))] * self.random.randrange(1, 4)
            if self.random.random() < 0.1:
                frames.insert(0, b"")
            try:
                client.socket.send_multipart(frames, zmq.DONTWAIT)
            except zmq.ZMQError:
                break
            self.counts["messages"] += 1
        while client.socket.poll(self.random.choice((0, 5))):
            client.socket.recv_multipart()

    def authorized(self):
        self.counts["connections"] += 1
        key = self.random.choice((self.bus.key, self.worker_key))
        client = self.bus.remote(key=key, hello=False)
        self.converse(client)
        client.cut()
        self.bus._clients.remove(client)

    # The test.

    @property
    def descriptors(self):
        return len(os.listdir(f"/proc/{self.bus.gateway}/fd"))

    def test_random_input_neither_ends_the_gateway_nor_leaks_nor_disturbs_a_client(self):
        with Recorder(self.bus) as recorder:
            first = recorder.client(self.bus, self.bus.key, bodies="pull")
            first.fetch("r", 1, f"{self.origin.url}/bytes/10")
            first.terminal()
            first.cut()
            recorded = recorder.sent
        self.assertGreater(len(recorded), 64 + 200)
        client = self.bus.remote()
        gateway = self.bus.gateway
        before, memory = self.descriptors, resident(gateway)
        end = time.monotonic() + SECONDS
        with self.subTest(f"EARSHOT_FUZZ_SEED={SEED}"):
            while time.monotonic() < end:
                for _ in range(10):
                    choice = self.random.randrange(10)
                    if choice < 5:
                        self.replay(recorded)
                    elif choice < 7:
                        self.tamper()
                    else:
                        self.authorized()
                self.counts["requests"] += 1
                number = self.counts["requests"]
                client.fetch("good", number, f"{self.origin.url}/bytes/1000?{number}")
                self.assertResult(client.terminal(), body(1000))
            self.assertEqual(self.bus.gateway, gateway)
            growth = resident(gateway) - memory
            self.assertLess(growth, MOST_GROWTH)
            # Handshakes that stopped end after 5 s, sessions with a lease need no connection.
            eventually(lambda: self.descriptors <= before + 2, lambda: f"{self.descriptors} descriptors, {before} before")
            newcomer = self.bus.remote()
            newcomer.fetch("new", 1, f"{self.origin.url}/bytes/1000")
            self.assertResult(newcomer.terminal(), body(1000))
        report(f"{SECONDS:g} s of random input: {self.counts}, gateway +{growth / MIB:.1f} MiB, {self.descriptors} descriptors, {before} before")


if __name__ == "__main__":
    unittest.main()
