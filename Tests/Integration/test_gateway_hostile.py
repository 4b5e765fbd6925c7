"""Clients on other machines that are hostile, or do not read."""

import collections
import os
import resource
import socket
import time

import zmq

from support import zmtp
from support.figures import milliseconds, report
from support.network import Named, NetworkTestCase, Unreading
from support.processes import resident
from support.puller import OPEN_READS, PIECE, pull

IS_LONG = bool(os.environ.get("EARSHOT_LONG"))
MIB = 1 << 20


def curve_greeting():
    """Returns the greeting of a client with CURVE."""
    return zmtp.GREETING[:10] + b"\x03\x01" + b"CURVE".ljust(20, b"\0") + bytes(32)


class HostileTests(NetworkTestCase):
    # Hostile clients.

    def hostile(self):
        return self.bus.remote(hello=False)

    def assertCut(self, client):
        client.await_event(zmq.EVENT_DISCONNECTED)
        self.assertAnswers(self.bus.remote(), handler=f"h{time.monotonic_ns()}")

    def test_messages_of_many_frames_end_the_connection(self):
        client = self.bus.remote()
        client.socket.send_multipart([b"QUERY ping\n", b"", b"more"])
        self.assertCut(client)
        client = self.hostile()
        client.socket.send_multipart([b"x"] * 1000)
        self.assertCut(client)

    def test_a_message_that_does_not_end_is_cut_within_a_bound(self):
        client = self.bus.remote()
        gateway = self.bus.gateway
        before = resident(gateway)
        piece = bytes(MIB)
        while not client.event(0):
            client.socket.send(piece, zmq.SNDMORE)
        growth = resident(gateway) - before
        self.assertLess(growth, 64 * MIB)
        client.cut()
        self.assertAnswers(self.bus.remote())

    def test_frames_that_are_too_long_end_the_connection(self):
        client = self.bus.remote()
        client.socket.send(bytes(8 * MIB))
        self.assertCut(client)

    def test_garbage_ends_the_connection(self):
        for garbage in (b"GET / HTTP/1.1\r\n\r\n" + bytes(64), os.urandom(4096), curve_greeting() + os.urandom(2000)):
            with self.bus.connect() as connection:
                try:
                    connection.sendall(garbage)
                except ConnectionError:
                    continue
                self.assertTrue(zmtp.await_end(connection))
        self.assertAnswers(self.bus.remote())

    def test_half_open_handshakes_do_not_disturb_a_client(self):
        count = 10_000 if IS_LONG else 600
        client = self.bus.remote()
        busy = self.flood(client, self.bus.address, count, "gateway")
        report(f"p99 {milliseconds(busy, 99):.1f} ms beside {count} half-open handshakes")
        descriptors = len(os.listdir(f"/proc/{self.bus.gateway}/fd"))
        self.assertLess(descriptors, 512 * 6 + 200)
        newcomer = self.bus.remote(hello=False)
        self.assertEqual(newcomer.greet(), "WELCOME")

    def flood(self, client, address, count, name):
        """Opens connections that stop after a greeting. Returns the durations of the client's requests meanwhile."""
        held = collections.deque()
        durations = []
        for opened in range(0, count, 20):
            fresh = [socket.socket() for _ in range(20)]
            held.extend(fresh)
            for connection in fresh:
                connection.setblocking(False)
                connection.connect_ex(address)
            for connection in fresh:
                try:
                    connection.send(curve_greeting())
                except OSError:
                    pass  # The kernel has no room for it yet.
            while len(held) > 500:
                held.popleft().close()
            durations += self.latencies(client, 5, f"{name}{opened}")
        for connection in held:
            connection.close()
        return durations

    def latencies(self, client, count, name):
        """Returns the durations of requests, one after the other."""
        durations = []
        for number in range(count):
            began = time.monotonic()
            client.fetch(name, number, f"{self.origin.url}/bytes/100?{name}{number}")
            client.terminal()
            durations.append(time.monotonic() - began)
        return durations

    # Backpressure.

    def test_memory_is_bounded_while_a_client_does_not_read(self):
        client = self.bus.remote()
        client.hold()
        client.fetch("h", 1, f"{self.origin.url}/bytes/4000000")
        number = client.terminal().fields["seq"]
        gateway, broker = self.bus.gateway, self.bus.broker
        before = resident(gateway), resident(broker)
        # libzmq reads into its own queue, so it is limited first.
        stopped = self.bus.remote(kind=Unreading)
        stopped.send("FETCH s 1 " + f"{self.origin.url}/bytes/4000000")
        requested = 0
        while requested < 2000:
            stopped.send(f"READ 1 {requested % 3_000_000} 262144")
            requested += 1
        reader = self.bus.remote()
        for turn in range(20):
            self.assertAnswers(reader, handler="r", request=turn)
        growth = resident(gateway) - before[0], resident(broker) - before[1]
        report(f"2,000 READs of a client that does not read: gateway +{growth[0] / MIB:.1f} MiB, "
               f"broker +{growth[1] / MIB:.1f} MiB")
        self.assertLess(growth[0], 16 * MIB)
        self.assertLess(growth[1], 16 * MIB)
        self.assertEqual(len(pull(client, Named(number, 4_000_000))), 4_000_000)

    def test_a_client_that_reads_late_gets_each_of_thousands_of_small_terminals(self):
        """libzmq takes a number of messages, so that the gateway holds one until there is room."""
        count = 4000
        client = self.bus.remote(kind=Unreading, window=4096)
        client.hold()
        url = f"{self.origin.url}/drip?bytes=10&seconds=1"
        for number in range(count):
            client.fetch("late", number, url)
        with self.bus.client() as watcher:
            self.await_requests(watcher, pending=0)
        self.assertAnswers(self.bus.remote())
        terminals = client.terminals(count, timeout=60)
        self.assertEqual([int(terminal.fields["seq"]) for terminal in terminals], list(range(1, count + 1)))
        self.assertEqual({terminal.verb for terminal in terminals}, {"RESULT"})

    def test_clients_that_stopped_do_not_delay_the_others(self):
        count, turns, stopping = (950, 3, 50) if IS_LONG else (40, 1, 20)
        _, most = limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        clients = [self.bus.remote() for _ in range(count)]

        def burst(name):
            """Returns the durations of one request of each client, all at once."""
            began = time.monotonic()
            for number, client in enumerate(clients):
                client.fetch(f"{name}/{number}", 1, f"{self.origin.url}/bytes/1000?{name}{number}")
            durations = []
            for client in clients:
                self.assertEqual(client.terminal().verb, "RESULT")
                durations.append(time.monotonic() - began)
            return durations

        burst("first")
        alone = [duration for turn in range(turns) for duration in burst(f"alone{turn}")]
        for number in range(stopping):
            stopped = self.bus.remote(kind=Unreading)
            stopped.send(f"FETCH s{number} 1 {self.origin.url}/bytes/4000000")
            for turn in range(4 * OPEN_READS):
                stopped.send(f"READ 1 {turn % 15 * PIECE} {PIECE}")
        beside = [duration for turn in range(turns) for duration in burst(f"beside{turn}")]
        report(f"{count} clients at once: p99 {milliseconds(alone, 99):.0f} ms alone, {milliseconds(beside, 99):.0f} ms beside {stopping} that stopped, "
               f"gateway with {resident(self.bus.gateway) / MIB:.0f} MiB, broker with {resident(self.bus.broker) / MIB:.0f} MiB")
