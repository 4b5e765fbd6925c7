"""Memory of a large burst is returned once it is over, and requests are refused before a limit of the kernel.

With EARSHOT_LONG=1 it is a million handlers, otherwise 140,000: 85 MiB.
"""

import json
import os
import pathlib
import resource

from support.figures import report
from support.harness import Bus, TestCase
from support.processes import eventually, resident
from support.raw import RawClient
from support.steady import Steady

MIB = 1 << 20
HANDLERS = 1_000_000 if os.environ.get("EARSHOT_LONG") else 140_000
PIECE = 10_000


class MemoryTests(TestCase):
    def test_handlers_that_were_removed_leave_64_MiB_at_most(self):
        # One transfer lasts longer than the test, and all other requests wait for its slot.
        with Steady() as origin, Bus(workers=1, slots=1, origin_limit=1, arguments=["--no-cache"]) as bus:
            client = RawClient(bus.runtime)
            self.addCleanup(client.close)
            self.assertTrue(client.receive().startswith("WELCOME"))
            before = resident(bus.broker)
            for first in range(0, HANDLERS, PIECE):
                client.send(*(f"FETCH m/{number} 1 {origin.url}/600/{number}\nsubscribe: no\n"
                              for number in range(first, first + PIECE)))
            client.send("QUERY ping\n")
            self.assertTrue(client.receive().startswith("ANSWER ping"))
            client.receive()
            full = resident(bus.broker)
            client.send("REMOVE m/\n")
            self.assertEqual(client.receive(), f"REMOVED m/ {HANDLERS}\n")
            eventually(lambda: resident(bus.broker) - before <= 64 * MIB,
                       lambda: f"{(resident(bus.broker) - before) / MIB:.0f} MiB of {(full - before) / MIB:.0f} stay")
            report(f"{(full - before) / MIB:.0f} MiB with {HANDLERS} handlers,"
                   f" {(resident(bus.broker) - before) / MIB:.0f} after their removal")

    def test_requests_are_refused_before_the_limit_of_the_address_space(self):
        with Steady() as origin, Bus(workers=1, slots=1, origin_limit=1, arguments=["--no-cache"]) as bus:
            client = RawClient(bus.runtime)
            self.addCleanup(client.close)
            self.assertTrue(client.receive().startswith("WELCOME"))
            broker = bus.broker
            pages = int(pathlib.Path(f"/proc/{broker}/statm").read_text().split()[0])
            limit = pages * resource.getpagesize() + 48 * MIB
            resource.prlimit(broker, resource.RLIMIT_AS, (limit, limit))
            for first in range(0, 40_000, PIECE):
                client.send(*(f"FETCH m/{number} 1 {origin.url}/600/{number}\nsubscribe: no\n"
                              for number in range(first, first + PIECE)))
            client.send("QUERY ledger\n")
            self.assertTrue(client.receive().startswith("ANSWER ledger"))
            requests = json.loads(client.receive())["requests"]
            self.assertGreater(requests["pending"], 1_000, requests)
            self.assertEqual(requests["orphaned"], 40_000 - requests["pending"], "queue-full, without a subscriber")
            self.assertGreater(requests["orphaned"], 1_000, requests)
            self.assertEqual(bus.broker, broker, "the broker lives")
