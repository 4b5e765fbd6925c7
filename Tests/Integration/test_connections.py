"""Very many connections, with 4,096 descriptors per process: nothing aborts, and the earliest connections are served."""

import os
import resource
import signal
import socket
import time

from support.harness import PYTHON, SUPPORT, Bus, TestCase
from support.origin import Origin, body
from support.processes import Program, eventually
from support.raw import RawClient

DESCRIPTORS = 4096
LIMIT = (DESCRIPTORS - 256) // 2


class ConnectionTestCase(TestCase):
    @classmethod
    def setUpClass(cls):
        """This process holds the other ends."""
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    def burst(self, bus, count, waits=True):
        """Opens this many silent connections at once, or as many as the kernel queues for accept."""
        sockets = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(count)]
        for one in sockets:
            one.setblocking(waits)
            try:
                one.connect(f"{bus.runtime}/bus")
            except BlockingIOError:
                pass
        return sockets


class ConnectionTests(ConnectionTestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.bus = self.enterContext(Bus(workers=1, descriptors=DESCRIPTORS))
        self.first = self.bus.client()
        self.broker = self.bus.broker

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.broker}/fd"))

    def check_first_is_served(self, request):
        self.first.fetch("first", request, f"{self.origin.url}/bytes/100?seed={request}")
        self.assertResult(self.first.terminal(), body(100, request))
        self.assertEqual(self.bus.broker, self.broker, "the same broker")

    def test_10000_connects_and_disconnects(self):
        # Files that are opened at first use, such as the cache's, are open then.
        self.check_first_is_served("before")
        before = self.descriptors()
        for batch in range(100):
            clients = [RawClient(self.bus.runtime) for _ in range(100)]
            for client in clients:
                self.assertIn("WELCOME", client.receive())
            for client in clients:
                client.close()
            if batch % 25 == 0:
                self.check_first_is_served(batch)
        self.check_first_is_served("last")
        eventually(lambda: self.first.query("status")["clients"] == 1, "the others are gone")
        eventually(lambda: self.descriptors() <= before + 2, lambda: f"{self.descriptors()} descriptors, {before} before")

    def test_10000_that_say_nothing(self):
        for batch in range(100):
            clients = [RawClient(self.bus.runtime, greeted=False) for _ in range(100)]
            for client in clients:
                client.close()
        self.check_first_is_served("last")

    def test_a_burst_of_10000_is_refused_and_harms_nobody(self):
        began = time.monotonic()
        sockets = self.burst(self.bus, 10_000)
        self.check_first_is_served("during")
        for one in sockets:
            one.settimeout(60)
        # The broker sends its greeting over an accepted connection, and closes the others without a byte.
        begun = [one.recv(1) for one in sockets]
        # The broker closes silent connections after 10 s, and others take their places.
        check = self.assertEqual if time.monotonic() - began < 9 else self.assertLessEqual
        check(begun.count(b""), 10_000 - (LIMIT - 1), "refused")
        for one in sockets:
            one.close()
        self.check_first_is_served("after")

    def test_1000_idle_processes(self):
        idlers = Program([PYTHON, "-B", SUPPORT, "raw", self.bus.runtime, 1000], self.bus.environment)
        try:
            idlers.await_line("connected", "stdout")
            self.assertEqual(self.first.query("status")["clients"], 1001)
            self.check_first_is_served("among")
            another = self.bus.client()
            another.fetch("another", 1, f"{self.origin.url}/bytes/9")
            self.assertResult(another.terminal(), body(9))
        finally:
            idlers.write(b"")
            idlers.wait()
        eventually(lambda: self.first.query("status")["clients"] == 2, "the processes are gone")
        self.check_first_is_served("after")

    def test_who_comes_when_all_places_are_taken_is_refused_and_harms_nobody(self):
        clients = [RawClient(self.bus.runtime) for _ in range(LIMIT - 1)]
        for client in clients:
            self.assertIn("WELCOME", client.receive())
        for _ in range(50):
            late = RawClient(self.bus.runtime, greeted=False)
            self.assertTrue(late.ends(), "it is closed")
            late.close()
        self.check_first_is_served("full")
        clients.pop().close()
        eventually(lambda: self.first.query("status")["clients"] == LIMIT - 1, "one is gone")
        next_one = RawClient(self.bus.runtime)
        self.assertIn("WELCOME", next_one.receive())
        for client in [*clients, next_one]:
            client.close()
        self.check_first_is_served("again")


class BusyTests(ConnectionTestCase):
    """While its loop is busy the broker accepts no connection. New ones wait in the kernel, and are then refused."""

    COUNT = 500
    BURST = 8_000

    def test_a_burst_at_a_busy_broker_costs_no_answer(self):
        with Origin(ports=2) as origin, Bus(workers=1, descriptors=DESCRIPTORS, origin_limit=4) as bus:
            client = bus.stubborn_client(window=2 * self.COUNT)
            for index in range(self.COUNT):
                client.fetch("first", index, f"{origin.urls[0]}/slow/0.02?bytes=300&seed={index}")
            broker, instance = bus.broker, client.broker
            os.kill(broker, signal.SIGSTOP)
            sockets = self.burst(bus, self.BURST, waits=False)
            os.kill(broker, signal.SIGCONT)
            answers = client.collect()
            for one in sockets:
                one.close()
            self.assertEqual((bus.broker, client.broker), (broker, instance), "the same broker")
            self.assertEqual(sorted(int(request) for _, request in answers), list(range(self.COUNT)))
            for (_, request), messages in answers.items():
                self.assertEqual(len(messages), 1, messages)
                self.assertResult(messages[0], body(300, request))
            eventually(lambda: self.is_welcome(bus), "there are places again")

    def is_welcome(self, bus):
        """Returns whether another client is accepted. A closed connection occupies a place until its end is read."""
        try:
            late = RawClient(bus.runtime)
            welcome = late.receive()
        except ConnectionError:
            return False
        late.close()
        return "WELCOME" in welcome
