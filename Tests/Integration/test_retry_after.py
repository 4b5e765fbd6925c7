"""An origin that sends Retry-After is left alone for that time, by all workers."""

import os
import statistics

from support.crowd import Crowd
from support.figures import tell
from support.harness import Bus, TestCase
from support.processes import eventually
from support.steady import Steady


class RetryAfterTests(TestCase):
    """Two origins; the first sends `Retry-After: 5` to all its requests at one moment, to each in its time."""

    BEFORE = 5
    PAUSE = 5
    LIMIT = 8

    def test_it_is_left_alone_for_5_s_then_asked_by_one_and_another_origin_goes_on(self):
        with Steady(2) as origin, Bus(workers=4, slots=8, origin_limit=self.LIMIT) as bus:
            asked = [(0, delay) for delay in (0.037, 0.05, 0.071)] + [(1, 0.05)]
            crowds = [Crowd(bus, f"crowd{port}-{delay}", 6_000, f"{origin.urls[port]}/{delay}/{{}}").await_asked()
                      for port, delay in asked]
            self.await_growth(origin, 1, int(1.2 * self.BEFORE * 7 / 0.05))
            origin.refuse(0, self.PAUSE)
            self.await_growth(origin, 1, 50)
            origin.accept(0)
            seen = len(origin.log(0))
            eventually(lambda: len(origin.log(0)) > seen + 10, "the origin is asked again", 20)
            for crowd in crowds:
                self.assertTrue(crowd.running, f"it was done too early: {crowd.describe()}")
                crowd.kill()
            log, other = origin.log(0), origin.log(1)
            self.await_requests(bus.client(), pending=0)
        refused = [entry for entry in log if entry.status == 429]
        first, last = min(entry.ended for entry in refused), max(entry.ended for entry in refused)
        # Requests in transit when it first refused are refused too, and request no less; no further ones are sent.
        self.assertLessEqual(len(refused), self.LIMIT)
        later = [entry for entry in log if entry.began > first and entry.status != 429]
        probe, second = later[:2]
        # Number of concurrent requests, because their duration depends on other load. The median ignores moments in which a
        # process was not scheduled.
        before = self.usually_at_once(other, first - self.BEFORE, first)
        during = self.usually_at_once(other, first, first + self.PAUSE)
        tell(f"{len(refused)} refusals, left alone for {probe.began - last:.3f} s, the probe took"
             f" {1000 * (probe.ended - probe.began):.0f} ms, the next came {1000 * (second.began - probe.ended):.1f} ms"
             f" after it; the other origin had {before:.2f} transfers at once before, and {during:.2f} meanwhile")
        self.assertGreaterEqual(probe.began - last, self.PAUSE)
        # It would be left alone for more than twice as long if another pause had followed.
        self.assertLess(probe.began - last, self.PAUSE + 1 if os.environ.get("EARSHOT_LONG") else 2 * self.PAUSE)
        self.assertGreaterEqual(second.began, probe.ended, "one first")
        self.assertGreaterEqual(during, 0.95 * before)

    @staticmethod
    def usually_at_once(log, start, end, step=0.01):
        """Returns the median number of transfers that ran at moments between two times."""
        moments = [start + step * number for number in range(int((end - start) / step))]
        return statistics.median(sum(e.began <= moment < (e.ended or end) for e in log) for moment in moments)

    def await_growth(self, origin, port, count):
        goal = len(origin.log(port)) + count
        eventually(lambda: len(origin.log(port)) >= goal, f"{goal} requests at port {port}", 30)
