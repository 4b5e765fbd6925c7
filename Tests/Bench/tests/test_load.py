"""Results of clients are checked before they count."""

import dataclasses
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from bench import load  # noqa: E402
from bench.frame import Failed  # noqa: E402


class Three:
    """Files of three bytes."""

    prefix, suffix, count, size = "bench:", "", 3, 3
    checksums = [1, 20, 300]


class LoadTests(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.program = pathlib.Path(folder.name) / "client"

    def client(self, **found):
        """A client that prints these results of 4 requests, in the form of the real ones."""
        found = {"answers": 4, "seconds": 0.5, "bytes": 12, "sum": 322, "cpu": 0.002, "p50": 1.0, "p99": 2.0,
                 "p999": 3.0, **found}
        text = ", ".join(f'"{name}": {value}' for name, value in found.items())
        self.program.write_text(f"#!/bin/sh\necho '{{{text}}}'\n")
        self.program.chmod(0o700)
        return load.Client("client", [self.program], "client")

    plan = load.Plan(Three(), outstanding=2, requests=4)

    def test_a_plan_adds_up_the_files_that_it_asks_for_again_from_the_first(self):
        self.assertEqual(self.plan.total(), 1 + 20 + 300 + 1)
        self.assertEqual(dataclasses.replace(self.plan, clients=10).total(), 10 * 322)

    def test_a_right_client_gives_its_rate_and_what_each_answer_cost(self):
        sample = self.client().run_round(self.plan, 0)
        self.assertEqual(sample.value, 8)
        self.assertAlmostEqual(sample.extra["cpu_us"], 500)
        self.assertEqual(sample.extra["p999_us"], 3)

    def test_other_bytes_fail_in_the_round_that_sums_them_up(self):
        with self.assertRaisesRegex(Failed, "other bytes"):
            self.client(sum=321).run_round(self.plan, 0)
        self.client(sum=0).run_round(self.plan, 1)

    def test_too_few_answers_and_answers_of_another_size_fail_in_each_round(self):
        for wrong in ({"answers": 3}, {"bytes": 13}):
            with self.assertRaises(Failed):
                self.client(**wrong).run_round(self.plan, 1)


if __name__ == "__main__":
    unittest.main()
