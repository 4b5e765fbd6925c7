"""The client of `examples/afternoon`, on a plain socket: bodies in messages and in files, failures, and the next broker."""

import os
import unittest

from languages import EXAMPLES  # This import sets the path for the next three.
from support.harness import Bus, TestCase
from support.origin import Origin, body
from support.processes import Program, kill


class AfternoonTests(TestCase):
    def start(self, bus, *urls):
        environment = {"PATH": os.environ["PATH"], "EARSHOT_RUNTIME": str(bus.runtime)}
        return Program(["perl", "client.pl", *urls], environment, EXAMPLES / "afternoon")

    def test_bodies_come_from_messages_and_files(self):
        with Origin() as origin, Bus(workers=1) as bus:
            for size in (0, 1_000, 1_500_000):
                program = self.start(bus, f"{origin.url}/bytes/{size}")
                self.assertEqual(program.wait(), 0, program.describe())
                self.assertTrue(program.stdout == body(size), f"{size} bytes")

    def test_a_failure_has_its_code_on_standard_error(self):
        with Origin() as origin, Bus(workers=1) as bus:
            program = self.start(bus, f"{origin.url}/status/404")
            self.assertEqual(program.wait(), 1, program.describe())
            self.assertIn("http-status", program.stderr)

    def test_a_request_is_sent_again_to_the_next_broker(self):
        with Origin() as origin, Bus(workers=1) as bus:
            program = self.start(bus, f"{origin.url}/gate/later")
            origin.await_count("/gate/later", 1)
            kill(bus.broker)
            origin.open_gate("later")
            self.assertEqual(program.wait(), 0, program.describe())


if __name__ == "__main__":
    unittest.main()
