"""The journal of the origin shows what was fetched twice, and transfers above the limit."""

import unittest
from types import SimpleNamespace

from costs import FAULTS, Costs, Fault, violations, table


def fetch(target, started, ended=None, aborted=None):
    return SimpleNamespace(target=target, started=started, ended=ended, aborted=aborted)


class CostsTests(unittest.TestCase):
    def test_a_second_fetch_of_a_url_counts_even_if_the_first_was_aborted(self):
        log = [fetch("/a", 0, 1), fetch("/b", 0, aborted=1), fetch("/b", 2, 3), fetch("/c", 0, 1), fetch("/d", 0, 1)]
        costs = Costs.of(log)
        self.assertEqual((costs.urls, costs.fetches, costs.twice), (4, 5, 25))

    def test_seconds_above_the_limit_and_the_share_of_a_node(self):
        log = [fetch(f"/{number}", 0, 10) for number in range(2)] + [fetch("/x", 2, 5), fetch("/y", 3, 4)]
        costs = Costs.of(log, limit=2, share=1)
        self.assertEqual((costs.most, costs.above, costs.far_above), (4, 3, 1))

    def test_a_fetch_that_begins_when_another_one_ends_is_not_at_once_with_it(self):
        self.assertEqual(Costs.of([fetch("/a", 0, 1), fetch("/b", 1, 2)]).most, 1)

    def test_each_bound_is_checked(self):
        fault = Fault("none", None, 5)
        self.assertEqual(violations(fault, Costs(100, 105, 12, 1, 0)), [])
        for costs in (Costs(100, 106, 12, 0, 0), Costs(100, 100, 13, 1.1, 0), Costs(100, 100, 17, 0.1, 0.1)):
            self.assertEqual(len(violations(fault, costs)), 1)

    def test_the_document_has_the_bound_of_each_fault(self):
        self.assertEqual({fault.name: f"{fault.bound} %" for fault in FAULTS.values()}, table())


if __name__ == "__main__":
    unittest.main()
