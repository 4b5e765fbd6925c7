"""Hung workers: they are killed before their transfers run elsewhere, and their late messages are dropped."""

import os
import signal
import uuid

from support.harness import Bus, TestCase
from support.origin import Origin, body
from support.processes import Watched, eventually
from support.worker import HandWorker


class HangTests(TestCase):
    def setUp(self):
        self.origin, self.other = self.enterContext(Origin()), self.enterContext(Origin())

    def begin(self):
        bus = self.enterContext(Bus(workers=1))
        return bus, bus.client()

    def stop(self, pid):
        worker = Watched(pid)
        self.addCleanup(worker.close)
        worker.signal(signal.SIGSTOP)
        return worker

    def test_stopped_workers_are_killed_before_their_work_runs_elsewhere(self):
        """One with a transfer, one with an answer that it has not read, and one that was idle: at once, because each takes 15 s."""
        (_, client), (_, unread), (idle, late) = buses = [self.begin() for _ in range(3)]
        for (_, each), origin in zip(buses, (self.origin, self.other)):
            each.fetch("hang", 1, f"{origin.url}/gate/hang?bytes=5000")
            origin.await_count("/gate/hang", 1)
        eventually(lambda: [w["phase"] for w in late.query("workers")["workers"]] == ["ready"], "it is taken in")
        workers = [self.stop(bus.workers[0]) for bus, _ in buses]
        self.other.open_gate("hang")
        self.assertEqual([w["pid"] for w in late.query("workers")["workers"]], [workers[2].pid])
        late.fetch("hang", 1, f"{self.other.url}/bytes/5000")

        self.origin.await_count("/gate/hang", 2, timeout=30)
        self.assertTrue(workers[0].await_death(0), "it was dead before")
        self.assertEqual(self.origin.most_at_once, 1, "never two at once")
        self.origin.open_gate("hang")
        self.assertResult(client.terminal(), body(5000))
        self.assertEqual(self.balance(client)["flights"]["lost"], 1)
        self.assertResult(unread.terminal(timeout=30), body(5000))
        self.assertResult(late.terminal(timeout=30), body(5000))
        self.assertEqual(self.other.count("/bytes/5000"), 1)
        for worker, (_, each) in zip(workers, buses):
            self.assertTrue(worker.await_death(0))
            self.assertEqual(each.rest(), [], "once")


class LateTests(TestCase):
    DONE = "DONE {} 200\nlength: {}\nsha-256: {}\nelapsed-ms: 1"

    def test_what_a_worker_says_of_an_attempt_that_is_past_is_stale(self):
        with Bus(workers=1) as elsewhere:
            runtime = elsewhere.folder / uuid.uuid4().hex[:8]
            broker = elsewhere.start("broker", "--runtime", runtime)
            elsewhere.runtime = runtime
            # A socket file exists before its broker listens, and this worker connects only once.
            client = elsewhere.client()
            worker = HandWorker(f"ipc://{runtime}/work", "slots: 4", "schemes: http https", f"pid: {os.getpid()}", "host: test")
            # Only after the broker's death: it kills a worker that abandons its work, and that is this process.
            self.addCleanup(worker.close)
            client.fetch("late", 1, "http://127.0.0.1:9/x", retries=2)
            (first, _), _ = worker.expect("JOB")
            worker.send(f"FAILED {first} reset")
            (second, _), _ = worker.expect("JOB")
            self.assertNotEqual(first, second)
            worker.send(self.DONE.format(first, 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
                        body=b"abc")
            worker.send(self.DONE.format(second, 1, "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"),
                        body=b"x")
            self.assertEqual(client.terminal().body, b"x")
            self.assertEqual(client.rest(), [])
            self.assertEqual(self.balance(client)["flights"]["stale"], 1)
            broker.kill()
