"""What one client leaves unread, sends by half or queues has bounds in bytes: the broker stays small, and the others are
served meanwhile.

How soon is held to the documented time with EARSHOT_LONG=1 alone: it holds on a machine that does nothing else.
"""

import json
import os
import pathlib
import time
import unittest

from client import Client
from figures import milliseconds, tell
from harness import HERE, PYTHON, Bus, TestCase
from origin import Origin, body
from processes import Program, eventually, reset_peak, resident, resident_peak

MIB = 1 << 20


class BoundsTests(TestCase):
    LONG = bool(os.environ.get("EARSHOT_LONG"))
    MOST = 64 * MIB
    HANDLERS = 100_000

    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.bus = self.enterContext(Bus(workers=1, arguments=["--no-cache", "--request-body-bytes", 4 << 20]))
        self.client = self.bus.client()
        self.client.query("ping")

    def flood(self, kind, count, *more):
        """Starts a client that floods the broker, and awaits that it has."""
        program = Program([PYTHON, "-B", HERE / "flooder.py", self.bus.runtime, kind, count, *more])
        self.addCleanup(lambda: program.running and program.kill())
        program.await_line("done", "stdout", timeout=120)
        return program

    def cost(self, kind, count, *more):
        """The flooding program, after checking what the broker had in memory for it at most."""
        before = resident(self.bus.broker)
        reset_peak(self.bus.broker)
        program = self.flood(kind, count, *more)
        self.client.query("ping", timeout=60)
        cost = resident_peak(self.bus.broker) - before
        tell(f"{kind} of {count}: {cost / MIB:.1f} MiB")
        self.assertLessEqual(cost, self.MOST, "it costs the broker 64 MiB at most")
        return program

    def still_serves(self):
        """Another client has its requests answered."""
        with Client(self.bus.runtime) as client:
            client.fetch("honest", 1, f"{self.origin.url}/bytes/100?seed=7")
            self.assertResult(client.terminal(), body(100, "7"))

    def test_half_sent_messages_are_bounded_together(self):
        self.cost("frames", 300)
        self.still_serves()
        began = time.monotonic()
        content = b"." * (4 * MIB)
        self.client.fetch("large", 1, f"{self.origin.url}/bytes/100?seed=8", body=content, method="POST", coalesce="no")
        self.assertResult(self.client.terminal(timeout=60), body(100, "8"))
        tell(f"4 MiB of an honest client beside them took {time.monotonic() - began:.1f} s")
