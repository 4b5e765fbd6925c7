"""The race of the reused cell."""

from support.harness import Bus, TestCase
from support.origin import Origin, body


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
        self.assertEqual(message.fields["url"], self.url(f"new{turn}"), message)
        self.assertResult(message, body(200, f"new{turn}"))

    def test_after_the_answer_to_REMOVE_nothing_old_comes(self):
        for turn in range(self.TURNS):
            self.client.fetch("h", 7, self.url(f"old{turn}"))
            if turn % 3:  # Sometimes before it is fetched, mostly while its result is in transit.
                self.origin.await_count(f"/bytes/200?seed=old{turn}", 1)
            self.client.send("REMOVE h")
            self.client.fetch("h", 7, self.url(f"new{turn}"))
            before = []
            while (message := self.client.receive()).verb != "REMOVED":
                before.append(message)
            self.assertLessEqual(len(before), 1)
            for old in before:
                self.assertEqual(old.fields["url"], self.url(f"old{turn}"))
                self.assertResult(old, body(200, f"old{turn}"))
            self.check(turn, self.client.terminal())
        self.assertEqual(self.client.rest(), [])
        self.balance(self.client)
