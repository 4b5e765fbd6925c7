"""Clients that disconnect, die, stop, stay silent or arrive in crowds: which are kept, which are purged, and when.

A few of each; with EARSHOT_LONG=1 a thousand.
"""

import contextlib
import os
import pathlib
import signal
import time

from support import zmtp
from support.figures import milliseconds, report
from support.harness import PYTHON, SUPPORT, Bus, TestCase
from support.origin import Origin, body
from support.processes import Program, Watched, eventually, kill

IS_LONG = bool(os.environ.get("EARSHOT_LONG"))
TRIALS = 1_000 if IS_LONG else 10
DEATHS = 1_000 if IS_LONG else 5
CONNECTIONS = 10_000 if IS_LONG else 1_000


class LeaseTestCase(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.origin = cls.enterClassContext(Origin())
        cls.bus = cls.enterClassContext(Bus(workers=1, slots=256, origin_limit=256))
        cls.observer = cls.bus.client()

    def start(self, *arguments):
        program = Program([PYTHON, "-B", *arguments], self.bus.environment)
        self.addCleanup(lambda: program.running and program.kill())
        return program

    def peer(self, handler, count, url):
        peer = self.start(SUPPORT, "peer", self.bus.runtime, handler, count, url)
        peer.await_line("requested", "stdout")
        return peer

    def away(self):
        return self.observer.query("status")["clients-away"]

    def await_away(self, count):
        eventually(lambda: self.away() == count, lambda: f"{count} clients are away, not {self.away()}")

    def ledger(self):
        return self.balance(self.observer)


class TakeoverTests(LeaseTestCase):

    def test_when_the_lease_is_over_all_is_purged(self):
        client = self.bus.client(lease=0.3)
        client.fetch("over", 1, f"{self.origin.url}/gate/over")
        self.origin.await_running(1)
        began = time.monotonic()
        client.cut()
        self.origin.await_aborts("/gate/over", 1)
        self.assertGreater(time.monotonic() - began, 0.25)
        self.await_away(0)
        client = client.come_back()
        self.assertIsNone(client.resumed_number, "a new session")
        client.close()


class LivenessTests(LeaseTestCase):
    def test_who_is_busy_or_stopped_or_cut_for_less_than_the_lease_is_never_purged(self):
        url = f"{self.origin.url}/gate/alive"
        stopped = self.peer("stopped", 3, url)
        client = self.bus.client(lease=30)
        for index in range(3):
            client.fetch("cut", index, f"{url}?i={index}")
        client.query("ping")
        self.origin.await_running(3)
        before = self.ledger()["requests"]
        for _ in range(TRIALS):
            stopped.signal(signal.SIGSTOP)
            client.cut()
            self.await_away(1)
            # The broker has time for many passes in which it could be wrong.
            for _ in range(5):
                self.observer.query("ping")
            stopped.signal(signal.SIGCONT)
            client = client.come_back()
            self.assertIsNotNone(client.resumed_number)
        after = self.ledger()["requests"]
        self.assertEqual((after["removed"], after["pending"]), (before["removed"], before["pending"]))
        self.assertEqual(self.origin.count("/gate/alive"), 3, "nothing was fetched again")
        self.origin.open_gate("alive")
        self.assertEqual(len(client.terminals(3)), 3)
        self.assertEqual(client.rest(), [])
        client.close()
        stopped.kill()

    def test_who_is_killed_is_purged_at_once(self):
        taken = []
        for number in range(DEATHS):
            peer = self.peer(f"killed/{number}", 0, f"{self.origin.url}/gate/killed?n={number}")
            before = self.ledger()["requests"]
            self.assertEqual(before["pending"], 1)
            began = time.monotonic()
            peer.signal(signal.SIGKILL)
            while self.observer.query("ledger")["requests"]["pending"]:
                self.assertLess(time.monotonic() - began, 60)
            taken.append(time.monotonic() - began)
            peer.wait()
        report(f"{DEATHS} x kill -9: purged within {milliseconds(taken, 50):.1f} ms (median),"
               f" {milliseconds(taken, 99):.1f} ms (99 %)")
        if IS_LONG:
            self.assertLess(milliseconds(taken, 99), 100)

    def test_a_child_that_holds_the_connection_does_not_keep_its_dead_parent(self):
        program = self.start(SUPPORT, "orphan", self.bus.runtime, "forked", f"{self.origin.url}/gate/forked")
        child = Watched(int(program.await_line("requested", "stdout").split()[1]))
        self.addCleanup(child.close)
        self.origin.await_count("/gate/forked", 1)
        kill(program.pid)
        self.origin.await_aborts("/gate/forked", 1)
        self.await_requests(self.observer, pending=0)
        self.assertFalse(child.await_death(0), "its child lives on")
        child.signal(signal.SIGKILL)

    def test_a_process_that_has_the_number_of_a_dead_one_is_not_taken_for_it(self):
        last = pathlib.Path("/proc/sys/kernel/ns_last_pid")
        if not os.access(last, os.W_OK):
            self.skipTest("process numbers cannot be chosen here")
        # The connecting process dies before it has sent anything; its child holds the connection, and sends on request.
        go_reader, go_writer = os.pipe()
        number_reader, number_writer = os.pipe()
        number = os.fork()
        if number == 0:
            try:
                connection = zmtp.connect(self.bus.runtime / "bus")
                if os.fork() == 0:
                    os.write(number_writer, str(os.getpid()).encode())
                    os.read(go_reader, 1)
                    with contextlib.suppress(OSError):  # The broker may have closed it by now.
                        zmtp.send(connection, b"HELLO EAR/1\n")
                    os.read(go_reader, 1)
            finally:
                os._exit(0)  # In every case: the other tests do not belong to this process.
        os.waitpid(number, 0)
        child = Watched(int(os.read(number_reader, 20)))
        self.addCleanup(child.close)
        reuser = self.process_numbered(number, last)
        try:
            os.write(go_writer, b"x")
            self.bus.client().query("ping")
            eventually(lambda: self.observer.query("status")["clients"] == 2,
                       lambda: f"who has no process is gone: {self.observer.query('status')}")
            self.assertFalse(child.await_death(0), "its child holds the connection")
            self.assertIsNone(reuser.poll(), "nobody did it any harm")
        finally:
            child.signal(signal.SIGKILL)
            reuser.kill()
            reuser.wait()
            for descriptor in (go_reader, go_writer, number_reader, number_writer):
                os.close(descriptor)

    def process_numbered(self, number, last):
        import subprocess
        for _ in range(2_000):
            last.write_text(str(number - 1))
            process = subprocess.Popen(["/bin/sleep", "60"])
            if process.pid == number:
                return process
            process.kill()
            process.wait()
        self.skipTest(f"no process got the number {number}")

    def test_many_that_come_and_go_harm_nobody(self):
        client = self.bus.client()
        # Files that are opened at first use, such as the cache's, are open then.
        client.fetch("first", 0, f"{self.origin.url}/bytes/10")
        self.assertResult(client.terminal(), body(10))
        descriptors = len(os.listdir(f"/proc/{self.bus.broker}/fd"))
        for number in range(CONNECTIONS):
            connection = zmtp.connect(self.bus.runtime / "bus")
            if number % 2:
                zmtp.send(connection, b"HELLO EAR/1\nlease: 1\n")
            connection.close()
            if number % 100 == 0:
                client.fetch("among", number, f"{self.origin.url}/bytes/10?seed={number}")
                self.assertResult(client.terminal(), body(10, number))
        self.await_away(0)
        eventually(lambda: len(os.listdir(f"/proc/{self.bus.broker}/fd")) <= descriptors, "no descriptor is left")
        client.close()


class StoppedReaderTests(LeaseTestCase):
    COUNT = 20_000 if IS_LONG else 2_000
    SECONDS = 30 if IS_LONG else 0.5

    def test_a_reader_that_was_stopped_gets_everything(self):
        from support.crowd import Crowd
        slow = Crowd(self.bus, "load", self.COUNT, self.origin.url + "/bytes/1000?seed={}", window=256)
        self.addCleanup(lambda: slow.running and slow.kill())
        slow.await_submitted()
        slow.signal(signal.SIGSTOP)
        fast = self.bus.client()
        end = time.monotonic() + self.SECONDS
        count = 0
        while time.monotonic() < end:
            fast.fetch("beside", count, f"{self.origin.url}/bytes/1000?seed=beside{count}")
            self.assertResult(fast.terminal(), body(1000, f"beside{count}"))
            count += 1
        slow.signal(signal.SIGCONT)
        outcome = slow.outcome()
        self.assertEqual({name: outcome[name] for name in ("answered", "again", "failed")},
                         {"answered": self.COUNT, "again": 0, "failed": 0})
        report(f"stopped for {self.SECONDS} s: {self.COUNT} answers each once, {count} beside it")
        fast.close()
