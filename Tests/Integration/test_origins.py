"""An origin never exceeds its limit, even if clients leave or die meanwhile."""

import collections

from support.figures import report
from support.harness import Bus, TestCase
from support.processes import eventually, kill
from support.steady import Steady


class LimitTests(TestCase):
    """8 workers, and an origin with a limit of 2 transfers."""

    LIMIT = 2
    COUNT = 2_000
    HANDLERS = 40

    def setUp(self):
        self.origin = self.enterContext(Steady())
        self.bus = self.enterContext(Bus(workers=8, slots=8, origin_limit=self.LIMIT))
        self.client = self.bus.client(window=2 * self.COUNT)
        self.submitted = collections.Counter()

    def fetch(self, count, dropped=frozenset()):
        """Submits this number of requests, evenly to the handlers that are not dropped."""
        handlers = [number for number in range(self.HANDLERS) if f"limit/{number}" not in dropped]
        for _ in range(count // len(handlers)):
            for number in handlers:
                handler = f"limit/{number}"
                index = self.submitted[handler]
                self.submitted[handler] += 1
                self.client.fetch(handler, index, f"{self.origin.url}/0.01/{number}/{index}")

    def check_the_most(self):
        self.assertEqual(self.origin.most_at_once(), self.LIMIT)
        self.balance(self.client)

    def test_it_holds_while_handlers_are_dropped_and_workers_killed(self):
        self.fetch(self.COUNT)
        dropped, killed = set(), 0
        while len(dropped) < self.HANDLERS // 2:
            # On a slow machine the origin answers many requests between two drops.
            if self.client.query("ledger")["requests"]["pending"] < self.COUNT // 4:
                self.fetch(self.COUNT // 4, dropped)
            goal = self.origin.total() + 15
            eventually(lambda: self.origin.total() >= goal, lambda: f"{goal} requests, {self.origin.total()} came")
            # A short transfer may end before the decision takes effect.
            number = len(dropped)
            long = f"/30/{number}/long"
            self.client.fetch(f"limit/{number}", "long", self.origin.url + long, priority="high")
            eventually(lambda: long in self.origin.running(), "it runs")
            self.client.remove(f"limit/{number}")
            dropped.add(f"limit/{number}")
            if len(dropped) % 2:
                killed += self.kill_a_busy_worker()
        answers = self.answers_but(dropped, sum(count for handler, count in self.submitted.items() if handler not in dropped))
        log = self.origin.log()
        cut = sum(entry.status == 0 for entry in log)
        report(f"{len(log)} requests came, {cut} were cut by {len(dropped)} drops and {killed} deaths of workers")
        self.assertEqual({answer.verb for answer in answers}, {"RESULT"})
        self.assertGreater(killed, 5)
        self.assertGreater(cut, 5)
        self.check_the_most()

    def answers_but(self, dropped, count):
        """Returns the terminals of the other handlers; the dropped ones may have had some before."""
        found = {}
        while len(found) < count:
            answer = self.client.terminal()
            if answer.id[0] not in dropped:
                self.assertNotIn(answer.id, found, "once each")
                found[answer.id] = answer
        return found.values()

    def kill_a_busy_worker(self):
        """Kills a busy worker. Returns whether there was one."""
        busy = [worker["pid"] for worker in self.client.query("workers")["workers"] if worker["running"]]
        for pid in busy[:1]:
            kill(pid)
        return len(busy[:1])
