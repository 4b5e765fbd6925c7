"""Sequences in which coalescing job queues are known to fail, and the race of the reused cell."""

from support.harness import PYTHON, SUPPORT, Bus, TestCase
from support.origin import Origin, body
from support.processes import Program


class OneSlotTestCase(TestCase):
    """Bus with a single slot, which is busy until the gate `block` opens."""

    def start_bus(self):
        self.origin = self.enterContext(Origin())
        self.bus = self.enterContext(Bus(workers=1, slots=1))
        self.observer = self.bus.client()
        self.block()

    def block(self, priority="normal"):
        self.blocker = self.bus.client()
        self.blocker.fetch("blocker", 1, f"{self.origin.url}/gate/block?bytes=1", priority=priority)
        self.origin.await_count("/gate/block", 1)

    def unblock(self):
        self.origin.open_gate("block")
        self.blocker.terminal()

    def url(self, seed):
        return f"{self.origin.url}/bytes/500?seed={seed}"


class VanishedAskerTests(OneSlotTestCase):
    """(a) A requests X and vanishes, B requests X before a worker took it: B gets a result."""

    def setUp(self):
        self.start_bus()
        self.vanishing = Program([PYTHON, SUPPORT, "peer", self.bus.runtime, "a", 0, self.url("x")],
                                 self.bus.environment)
        self.vanishing.await_line("asked", "stdout")
        self.second = self.bus.client()

    def check_that_b_is_answered(self):
        self.vanishing.wait()
        self.await_requests(self.observer, removed=1, pending=2)
        self.unblock()
        self.assertResult(self.second.terminal(), body(500, "x"))
        self.assertEqual(self.second.rest(), [])
        self.assertEqual(self.origin.count("/bytes/500"), 1)
        self.balance(self.observer)

    def test_b_asks_before_a_vanishes(self):
        self.second.fetch("b", 1, self.url("x"))
        self.second.query("ping")
        self.vanishing.kill()
        self.check_that_b_is_answered()

    def test_b_asks_after_a_vanished(self):
        self.vanishing.kill()
        self.await_requests(self.observer, removed=1)
        self.second.fetch("b", 1, self.url("x"))
        self.check_that_b_is_answered()

    def test_b_asks_while_a_vanishes(self):
        self.vanishing.signal(9)
        self.second.fetch("b", 1, self.url("x"))
        self.check_that_b_is_answered()


class WarmTests(OneSlotTestCase):
    """(b) A `warm` request that an ordinary request joined and left still runs."""

    def setUp(self):
        self.start_bus()
        self.warmer, self.joiner = self.bus.client(), self.bus.client()

    def check_that_it_ran(self, path, size):
        answer = self.warmer.terminal()
        self.assertEqual((answer.verb, answer.operands), ("RESULT", ["warm", "1", "200"]))
        self.assertIsNone(answer.body)
        self.assertNotIn("file", answer.fields)
        self.assertEqual(self.joiner.rest(), [])
        self.assertEqual(self.origin.count(path), 1)
        self.assertIsNone(self.origin.log(path)[0].aborted)
        self.balance(self.observer)

    def test_left_while_it_was_queued(self):
        self.warmer.fetch("warm", 1, self.url("w"), warm="yes")
        self.await_requests(self.observer, pending=2)
        self.joiner.fetch("join", 1, self.url("w"))
        self.await_requests(self.observer, pending=3)
        self.joiner.cancel("join", 1)
        self.unblock()
        self.check_that_it_ran("/bytes/500", 500)

    def test_left_while_it_was_running(self):
        self.unblock()
        url = f"{self.origin.url}/gate/warm?bytes=500"
        self.warmer.fetch("warm", 1, url, warm="yes")
        self.origin.await_count("/gate/warm", 1)
        self.joiner.fetch("join", 1, url)
        self.await_requests(self.observer, pending=2)
        self.joiner.cancel("join", 1)
        self.origin.open_gate("warm")
        self.check_that_it_ran("/gate/warm", 500)


class JoinedByHighTests(OneSlotTestCase):
    """(c) A low request joined by a high one runs next, and falls back when the high one leaves."""

    def order(self, before, joins, leaves):
        """Returns the order in which one low request (`low`) and ten normal ones are fetched on a new bus, on which a request
        of class `before` ran until then."""
        with Origin() as self.origin, Bus(workers=1, slots=1) as self.bus:
            self.observer = self.bus.client()
            self.block(before)
            client, high = self.bus.client(), self.bus.client()
            client.fetch("low", 1, self.url("low"), priority="low")
            for index in range(10):
                client.fetch("normal", index, self.url(index))
            client.query("ping")
            if joins:
                high.fetch("high", 1, self.url("low"), priority="high")
                self.await_requests(self.observer, pending=13)
            if leaves:
                high.cancel("high", 1)
            self.unblock()
            client.terminals(11)
            if joins and not leaves:
                self.assertResult(high.terminal(), body(500, "low"))
            self.assertEqual(high.rest(), [])
            self.balance(self.observer)
            return [request.query["seed"] for request in self.origin.log("/bytes/500")]

    def test_low_runs_next_and_falls_back(self):
        for before in ("low", "normal", "high"):
            with self.subTest(before=before):
                alone = self.order(before, joins=False, leaves=False)
                self.assertGreater(alone.index("low"), 0, "without the high one it has to wait")
                self.assertEqual(self.order(before, joins=True, leaves=False)[0], "low")
                self.assertEqual(self.order(before, joins=True, leaves=True), alone)

    def test_a_raised_class_runs_next_too(self):
        self.start_bus()
        client = self.bus.client()
        for index in range(5):
            client.fetch("raise", index, self.url(index), priority="low")
        client.say("PRIORITY raise 3 high")
        client.query("ping")
        self.unblock()
        client.terminals(5)
        self.assertEqual(self.origin.log("/bytes/500")[0].query["seed"], "3")


class ReusedCellTests(TestCase):
    """REMOVE h, then FETCH h 7 with another URL while the old result is in transit: the old one is never mistaken for the new
    one."""

    TURNS = 300

    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.bus = self.enterContext(Bus())
        self.client = self.bus.client()

    def url(self, seed):
        return f"{self.origin.url}/bytes/200?seed={seed}"

    def check(self, turn, message):
        """After the change only the new result's bytes arrive; the old terminal may have come before."""
        self.assertEqual(message.id, ("h", "7"), message)
        self.assertEqual(message.fields.get("tag"), f"new{turn}", message)
        self.assertResult(message, body(200, f"new{turn}"))

    def test_after_the_answer_to_REMOVE_nothing_old_comes(self):
        for turn in range(self.TURNS):
            self.client.fetch("h", 7, self.url(f"old{turn}"), tag=f"old{turn}")
            if turn % 3:  # Sometimes before it is fetched, mostly while its result is in transit.
                self.origin.await_count(f"/bytes/200?seed=old{turn}", 1)
            self.client.say("REMOVE h")
            self.client.fetch("h", 7, self.url(f"new{turn}"), tag=f"new{turn}")
            before = []
            while (message := self.client.receive()).verb != "REMOVED":
                before.append(message)
            self.assertLessEqual(len(before), 1)
            for old in before:
                self.assertEqual(old.fields["tag"], f"old{turn}")
                self.assertResult(old, body(200, f"old{turn}"))
            self.check(turn, self.client.terminal())
        self.assertEqual(self.client.rest(), [])
        self.balance(self.client)

    def test_replace_does_the_same_in_one_message(self):
        for turn in range(self.TURNS):
            self.client.fetch("h", 7, self.url(f"old{turn}"), tag=f"old{turn}")
            if turn % 3:
                self.origin.await_count(f"/bytes/200?seed=old{turn}", 1)
            self.client.fetch("h", 7, self.url(f"new{turn}"), tag=f"new{turn}", replace="yes")
            message = self.client.terminal()
            if message.fields.get("tag") == f"old{turn}":
                self.assertResult(message, body(200, f"old{turn}"))
                message = self.client.terminal()
            self.check(turn, message)
        self.assertEqual(self.client.rest(), [])
        self.balance(self.client)

    def test_the_same_request_again_is_one_and_another_under_its_id_is_refused(self):
        url = f"{self.origin.url}/gate/once?bytes=3"
        self.client.fetch("h", 7, url)
        self.client.fetch("h", 7, url)
        self.client.fetch("h", 7, self.url("other"))
        error = self.client.expect("ERROR", "id-in-use")
        self.assertEqual((error.fields["handler"], error.fields["request"]), ("h", "7"))
        self.origin.await_count("/gate/once", 1)
        self.origin.open_gate("once")
        self.assertResult(self.client.terminal(), body(3))
        self.assertEqual(self.client.rest(), [])
