"""Comparison of instruction counts with the committed ones."""

import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from bench import instructions  # noqa: E402


class Instructions(unittest.TestCase):
    def test_more_than_a_tenth_is_a_failure_and_less_is_none(self):
        lines, failed = instructions.compare({"decode": 1000, "submit": 1000, "join": 1000},
                                             {"decode": 1100, "submit": 1101, "join": 1})
        self.assertEqual(failed, ["submit"])
        self.assertIn("+10.1%  GREW", lines[1])

    def test_more_than_three_hundredths_in_the_sum_are_a_failure(self):
        before = {"decode": 1000, "submit": 1000}
        self.assertEqual(instructions.compare(before, {"decode": 1060, "submit": 1000})[1], [])
        lines, failed = instructions.compare(before, {"decode": 1061, "submit": 1000})
        self.assertEqual(failed, ["sum"])
        self.assertIn("GREW", lines[-1])

    def test_an_operation_without_a_count_is_a_failure(self):
        self.assertEqual(instructions.compare({"a": 1, "b": 1}, {"b": 1, "c": 1})[1], ["a", "c"])

    def test_what_is_committed_names_just_the_operations(self):
        self.assertEqual(list(instructions.committed()), instructions.OPERATIONS)

    def test_what_is_written_is_read_again(self):
        with tempfile.TemporaryDirectory() as folder, \
                mock.patch.object(instructions, "COMMITTED", pathlib.Path(folder) / "it.tsv"), \
                mock.patch.object(instructions, "count", lambda operation, queued: len(operation)):
            self.assertEqual(instructions.write(), 0)
            self.assertEqual(instructions.committed(), {name: len(name) for name in instructions.OPERATIONS})


if __name__ == "__main__":
    unittest.main()
