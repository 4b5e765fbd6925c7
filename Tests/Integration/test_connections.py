"""Very many connections, with 4,096 descriptors for each process: nothing aborts, and who was there first is served."""

import os

from harness import HERE, PYTHON, Bus, TestCase
from origin import Origin, body
from processes import Program, eventually
from raw import RawClient

DESCRIPTORS = 4096
LIMIT = (DESCRIPTORS - 256) // 2


class ConnectionTests(TestCase):
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
        before = self.descriptors()
        for batch in range(100):
            clients = [RawClient(self.bus.runtime) for _ in range(100)]
            for client in clients:
                self.assertIn("WELCOME", client.hear())
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

    def test_1000_idle_processes(self):
        idlers = Program([PYTHON, "-B", HERE / "raw.py", self.bus.runtime, 1000], self.bus.environment)
        try:
            idlers.await_line("connected", "stdout", timeout=60)
            self.assertEqual(self.first.query("status")["clients"], 1001)
            self.check_first_is_served("among")
            another = self.bus.client()
            another.fetch("another", 1, f"{self.origin.url}/bytes/9")
            self.assertResult(another.terminal(), body(9))
        finally:
            idlers.write(b"")
            idlers.wait()
        eventually(lambda: self.first.query("status")["clients"] == 2, "the processes are gone", timeout=30)
        self.check_first_is_served("after")

    def test_who_comes_when_all_places_are_taken_is_refused_and_harms_nobody(self):
        clients = [RawClient(self.bus.runtime) for _ in range(LIMIT - 1)]
        for client in clients:
            self.assertIn("WELCOME", client.hear())
        for _ in range(50):
            late = RawClient(self.bus.runtime, greeted=False)
            self.assertTrue(late.ends(), "it is closed")
            late.close()
        self.check_first_is_served("full")
        clients.pop().close()
        eventually(lambda: self.first.query("status")["clients"] == LIMIT - 1, "one is gone")
        next_one = RawClient(self.bus.runtime)
        self.assertIn("WELCOME", next_one.hear())
        for client in [*clients, next_one]:
            client.close()
        self.check_first_is_served("again")
