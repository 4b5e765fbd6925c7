"""Rate limits of a run, of an origin and of the bus."""

import json
import os
import time

from support.harness import Bus, TestCase
from support.origin import Origin

LONG = bool(os.environ.get("EARSHOT_LONG"))
KIB = 1024
#: Seconds that a measured run takes. The documented 5 % hold over 10 s.
SECONDS = 10 if LONG else 0.8


class RateTests(TestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.bus = self.enterContext(Bus(workers=2, origin_limit=20))

    def get(self, *arguments):
        """Runs a command. Returns the seconds that each of its requests took."""
        program = self.bus.run("get", "--no-spawn", "--json", *arguments)
        self.assertEqual(program.status, 0, program.describe())
        lines = [json.loads(line) for line in program.stdout.splitlines()]
        self.assertEqual([line["attempts"] for line in lines], [1] * len(lines))
        return [line["elapsed-ms"] / 1000 for line in lines]

    def urls(self, count, size, name):
        return [f"{self.origin.url}/bytes/{size // count}?seed={name}-{number}" for number in range(count)]

    def check(self, times):
        """Asserts that transfers with one limit took together as long as it says."""
        # Starts may exceed the limit for 50 ms, which counts in a short run.
        self.assertGreater(max(times), SECONDS * (0.95 if LONG else 0.8))
        if LONG:
            self.assertLess(max(times), SECONDS * 1.05)
            self.assertGreater(min(times), max(times) * 0.9, "the shares are fair")

    def test_a_run_keeps_its_limit_with_one_and_with_eight_transfers(self):
        rate = 1024 * KIB
        for count in (1, 8):
            with self.subTest(count=count):
                self.check(self.get("--limit-rate", "1M", *self.urls(count, int(rate * SECONDS), f"run{count}")))

    def test_bodies_of_one_piece_keep_the_limit(self):
        # Each body is shorter than one read of the socket.
        began = time.monotonic()
        self.get("--limit-rate", "100K", *self.urls(int(10 * SECONDS), int(100 * KIB * SECONDS), "small"))
        seconds = time.monotonic() - (self.origin.log()[0].started if LONG else began)
        self.assertGreater(seconds, SECONDS * (0.95 if LONG else 0.8))
        if LONG:
            self.assertLess(seconds, SECONDS * 1.05)

    def test_bus_and_origin_have_limits_that_running_transfers_follow(self):
        client = self.bus.client()
        client.set("limit-rate 512K")
        self.check(self.get(*self.urls(2, int(512 * KIB * SECONDS), "bus")))
        client.set("origin 127.0.0.1 rate=16K")
        # Longer than the buffers of the connections, so that the server is not done before the client.
        program = self.bus.start("get", "--no-spawn", "--json", *self.urls(2, 32768 * KIB, "origin"))
        self.addCleanup(program.kill)
        self.origin.await_running(2)
        client.set("limit-rate 0")
        client.set("origin 127.0.0.1 default")
        # With the limits it would take minutes.
        self.assertEqual(program.wait(), 0, program.describe())

    def test_the_wait_for_a_share_is_no_silence_of_the_server(self):
        # A piece of 16 KiB takes 0.25 s.
        def attempts(number):
            urls = self.urls(1, 80 * KIB, f"timeout{number}")
            program = self.bus.run("get", "--no-spawn", "--json", "--limit-rate", "64K", "--timeout", "0.2", *urls)
            return [json.loads(line).get("attempts") for line in program.stdout.splitlines()], program.status

        # The header of the answer has as much time, and may be late.
        self.assertTrue(any(attempts(number) == ([1], 0) for number in range(10)))
