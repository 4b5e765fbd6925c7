"""A seed always gives the same plans, and plans contain only steps that clients can execute."""

import unittest

import whims
from schedule import KINDS, schedule, switched_off
from plans import ORIGINS, Planner, PlannedRequest

BASES = [f"http://127.0.0.1:{port}" for port in range(1, ORIGINS + 1)]


def plan(seed=1, number=3, life=1):
    return Planner(seed, number, life, 0, 120, 50, BASES).text()


class PlanTests(unittest.TestCase):
    def test_the_same_seed_decides_the_same_and_another_does_not(self):
        self.assertEqual(schedule(7, 5, 100), schedule(7, 5, 100))
        self.assertNotEqual(schedule(7, 5, 100), schedule(8, 5, 100))
        self.assertEqual(plan(), plan())
        self.assertEqual(len({plan(), plan(seed=2), plan(number=4), plan(life=2)}), 4)

    def test_decisions_are_of_kinds_that_the_seed_has_and_in_their_order(self):
        for seed in range(20):
            decisions = schedule(seed, 5, 200)
            self.assertTrue({decision.kind for decision in decisions} <= KINDS.keys() - switched_off(seed))
            self.assertEqual(decisions, sorted(decisions, key=lambda decision: decision.at))
            self.assertTrue(all(5 < d.at and d.at + d.lasting <= 200 for d in decisions))

    def test_every_kind_is_decided_by_some_seed(self):
        decided = {decision.kind for seed in range(10) for decision in schedule(seed, 5, 200)}
        self.assertEqual(decided, KINDS.keys())

    def test_what_is_asked_for_says_itself_what_has_to_come(self):
        steps = [line for number in range(50) for line in plan(number=number).splitlines()[1:]]
        submitted = [planned for planned in map(PlannedRequest.of, steps) if planned]
        self.assertEqual(len({planned.name for planned in submitted}), len(submitted), "a name is of one request")
        for planned in submitted:
            self.assertTrue(set(planned.whim.faults) <= whims.RETRIED.keys(), planned.url)
            self.assertIn(planned.whim.then, {"good", *whims.LASTING}, planned.url)
            self.assertLess(len(planned.whim.faults), int(planned.options.get("retries", 2)) + 1, "it can go well")

    def test_what_is_shared_is_the_same_for_all(self):
        urls = {}
        for number in range(50):
            for planned in filter(None, map(PlannedRequest.of, plan(number=number).splitlines()[1:])):
                urls.setdefault(planned.whim.name, set()).add(planned.url)
        self.assertEqual({name: found for name, found in urls.items() if len(found) > 1}, {})


class WhimTests(unittest.TestCase):
    def test_a_body_depends_on_name_generation_and_size_alone(self):
        self.assertEqual(whims.content("a", 1, 100), whims.content("a", 1, 100))
        self.assertEqual(len({whims.content("a", 1, 100), whims.content("b", 1, 100), whims.content("a", 2, 100)}), 3)

    def test_a_generation_lasts_as_long_as_the_URL_says(self):
        whim = whims.Whim("/whim/n?change=5")
        self.assertEqual([whim.generation(whims.EPOCH + t) for t in (0, 4.9, 5, 11)], [0, 0, 1, 2])
        self.assertEqual(whims.Whim("/whim/n").generation(whims.EPOCH + 1000), 0)


if __name__ == "__main__":
    unittest.main()
