"""A subscriber that does not read delays only itself, and its waiting results need little memory."""

from support.harness import Bus, TestCase
from support.origin import Origin, body
from support.processes import eventually, resident

MIB = 1 << 20


class SlowReaderTests(TestCase):
    COUNT = 1_000
    BYTES = 60_000

    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.bus = self.enterContext(Bus(arguments=("--origin-limit", "50")))

    def test_a_watcher_that_does_not_read_holds_little_memory_and_loses_nothing(self):
        slow = self.bus.client(window=4)
        slow.say("SUBSCRIBE feed")
        slow.query("ping")
        fast = self.bus.client()
        before = resident(self.bus.broker)
        for index in range(self.COUNT):
            fast.fetch("feed", index, f"{self.origin.url}/bytes/{self.BYTES}?seed={index}")
        for answer in fast.terminals(self.COUNT):
            self.assertResult(answer, body(self.BYTES, answer.id[1]))

        def grown():
            return (resident(self.bus.broker) - before) / MIB
        # Results that arrived faster than they were read were in memory for some time, too.
        eventually(lambda: grown() < 30,
                   lambda: f"{grown():.1f} MiB for {self.COUNT * self.BYTES / MIB:.0f} MiB of bodies")
        answers = slow.terminals(self.COUNT)
        self.assertEqual(len({answer.id for answer in answers}), self.COUNT)
        for answer in answers:
            self.assertResult(answer, body(self.BYTES, answer.id[1]))
        self.balance(fast)
