"""The broker removes very many requests in slices, serves others between them, and returns the memory.

It is 20,000 of 100,000 requests. With EARSHOT_LONG=1 it is 100,000 of 1,000,000, and others must be served as soon as on an
otherwise idle machine.
"""

import os
import statistics
import time
import unittest

from support.figures import milliseconds, report
from support.harness import Bus, TestCase
from support.processes import eventually, resident
from support.steady import Steady

IS_LONG = bool(os.environ.get("EARSHOT_LONG"))
QUEUED, HANDLERS = (1_000_000, 10) if IS_LONG else (100_000, 5)
SHARE = QUEUED // HANDLERS


class LargeRemovalTests(TestCase):
    REMOVED = 4

    def test_others_are_taken_in_while_very_much_is_removed(self):
        # Each transfer takes so long that the queue stays unchanged.
        with Steady() as origin, Bus(workers=1, slots=4, origin_limit=1) as bus:
            client, other = bus.client(), bus.client()
            self.submit_all(client, "crawl", origin)
            full = resident(bus.broker)
            quiet, _ = self.submit_for(0.5, other, "quiet")
            beside, between = [], 0
            # Of a removal during which this process was not scheduled, it sees nothing.
            while len(beside) < self.REMOVED or between <= self.REMOVED and len(beside) < 20:
                index = len(beside)
                if index >= HANDLERS:
                    self.submit_all(client, "crawl", origin, index % HANDLERS, HANDLERS)
                client.send(f"REMOVE crawl/{index % HANDLERS}")
                taken, queued = self.submit_for(0.1, other, f"beside{index}")
                beside.append(taken)
                # Before and after a removal the queue holds all requests of each handler, and a few of the other client.
                between += sum(1_000 < count % SHARE < SHARE - 1_000 for count in queued)
                self.assertEqual(int(client.expect("REMOVED").operands[1]), SHARE)
                self.assertEqual(client.query("ledger")["requests"]["removed"], (index + 1) * SHARE)
            slow = [milliseconds(taken, 99) for taken in beside]
            worst = [1000 * max(taken) for taken in beside]
            report(f"{SHARE} of {QUEUED} removed {self.REMOVED} times: 99 % of submissions take"
                   f" {milliseconds(quiet, 99):.2f} ms alone, {'/'.join(f'{ms:.2f}' for ms in slow)} meanwhile,"
                   f" the slowest {'/'.join(f'{ms:.1f}' for ms in worst)}; {between} were answered between slices")
            self.assertGreater(between, self.REMOVED)
            if IS_LONG:
                # In one step each removal would take at least 100 ms.
                self.assertLess(statistics.median(worst), 40)
                self.assertLess(statistics.median(slow), 5)
            client.remove("crawl/")
            self.await_requests(client, pending=0)
            # Their memory is returned to the system, or reused.
            eventually(lambda: resident(bus.broker) < 0.9 * full, "memory is given back")
            emptied = resident(bus.broker)
            self.submit_all(client, "again", origin)
            again = resident(bus.broker)
            report(f"the broker has {full >> 20} MiB full, {emptied >> 20} emptied, {again >> 20} full again")
            self.assertLess(again, 1.15 * full)

    def submit_all(self, client, name, origin, first=0, step=1):
        """Queues all requests under this many handlers, or those of one handler."""
        for number in range(first, QUEUED, step):
            client.socket.send(b"FETCH %s/%d %d %s/30/%d\n" % (
                name.encode(), number % HANDLERS, number, origin.url.encode(), number))
        client.query("ping", timeout=120)

    def submit_for(self, seconds, client, handler):
        """Submits one request after the other. Returns the seconds until the broker had read each, and the queue's length
        then."""
        taken, queued = [], []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.monotonic()
            client.fetch(handler, len(taken), "http://127.0.0.1:1/never", priority="background")
            client.query("ping")
            taken.append(time.monotonic() - began)
            queued.append(client.query("status")["flights-now"]["queued"])
        return taken, queued


if __name__ == "__main__":
    unittest.main()
