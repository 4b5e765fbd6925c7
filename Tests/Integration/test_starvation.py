"""With any number of urgent requests, the rest gets its share. EARSHOT_LONG=1 queues 1,000,000 urgent requests, otherwise
100,000."""

import os
import time

from support.figures import tell
from test_fairness import SlotsTestCase


class StarvationTests(SlotsTestCase):
    DELAY = 0.005
    STARTS = 6_800
    HIGH = 1_000_000 if os.environ.get("EARSHOT_LONG") else 100_000

    def test_very_much_that_is_high_leaves_low_its_share(self):
        for origins in (("two origins", 1), ("one origin", 0)):
            with self.subTest(origins[0]):
                self.check_share(*origins)

    def check_share(self, what, port):
        high = self.crowd("high/a", self.HIGH, f"{self.origin.urls[0]}/{self.DELAY}/high/{{}}", priority="high")
        low = self.crowd("low/a", 5_000, f"{self.origin.urls[port]}/{self.DELAY}/low/{{}}", priority="low")
        before = self.origin.total()
        deadline = time.monotonic() + 120
        while self.origin.total() < before + self.STARTS and time.monotonic() < deadline:
            self.client.query("ping")
        starts = [entry.target.split("/")[2] for entry in self.origin.log()[before:before + self.STARTS]]
        self.assertGreater(self.client.query("ledger")["requests"]["pending"], 0)
        self.end(low, high)
        counted, due = starts.count("low"), len(starts) * 4 / (64 + 4)
        tell(f"{what}: low has {counted} of {len(starts)} starts, {due:.0f} is its share")
        self.assertEqual(len(starts), self.STARTS)
        # Requests in progress at the start and the end of the count may all belong to the others.
        beside = 2 * self.WORKERS * self.SLOTS * 4 / (64 + 4)
        self.assertGreaterEqual(counted, due - beside, "less what the count may have cut off")
