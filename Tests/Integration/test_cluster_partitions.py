"""Three machines with sentinels: deaths of the primary and partitions."""

import time
import unittest

from support.bridge import HOME, Bridge, obstacle
from support.engine import SentinelEngine
from support.figures import report
from support.nodes import IS_LONG, Cluster, ClusterTestCase
from support.origin import Origin, body
from support.processes import eventually

#: Time after which the work of a dead node runs elsewhere, in seconds: its lease and the next calls.
TAKE_OVER = 5
URLS = 1_000 if IS_LONG else 300


@unittest.skipUnless(obstacle() is None, f"no network namespaces: {obstacle()}")
class PartitionTests(ClusterTestCase):
    """Three machines with sentinels, a server and a node each."""

    LIMIT = 12

    def setUp(self):
        bridge = self.enterContext(Bridge())
        self.machines = [bridge.machine() for _ in range(6)]
        self.origin = self.enterContext(Origin(host=HOME))
        self.engine = self.enterContext(SentinelEngine(self.machines[3:]))
        self.cluster = self.enterContext(Cluster(self.engine, machines=self.machines[:3], origin_limit=self.LIMIT))

    def longest_pause(self, since):
        """Returns the longest time without a start at the origin after a moment."""
        starts = [since] + [request.started for request in self.origin.log() if request.started > since]
        return max(later - earlier for earlier, later in zip(starts, starts[1:]))

    @unittest.skipUnless(IS_LONG, "half a minute: EARSHOT_LONG=1")
    def test_a_dead_primary_of_the_engine_delays_starts_and_loses_nothing(self):
        count = 4 * URLS
        urls = [[f"{self.origin.url}/slow/0.02?bytes=1000&n={index}-{number}" for number in range(count)] for index in range(3)]
        clients = [self.submit(node, own) for node, own in zip(self.cluster, urls)]
        self.origin.await_total(count // 2)
        killed = time.monotonic()
        self.engine.primary.kill()
        for client in clients:
            self.assertAll(client, count, body(1_000), timeout=120)
        pause = self.longest_pause(killed)
        report(f"{pause:.2f} s without a start; {self.origin.total} fetches of {3 * count} URLs, {self.cluster.counts()}")
        if IS_LONG:
            self.assertLess(pause, 3)
            self.assertEqual(self.cluster.counts()["uncoordinated"], 0, "no node fetched without the engine")
        for node in self.cluster:
            node.await_members(3)

    def test_a_node_that_is_cut_off_comes_back_and_loses_nothing(self):
        seconds = 10 if IS_LONG else 6
        urls = [f"{self.origin.url}/slow/0.02?bytes=70000&n={number}" for number in range(URLS)]
        clients = [self.submit(node, urls) for node in self.cluster]
        self.origin.await_total(URLS // 3)
        lost = self.cluster[2]
        self.machines[2].cut()
        cut = time.monotonic()
        lost.await_mode("alone")
        for client in clients[:2]:
            self.assertAll(client, URLS, body(70_000), timeout=60)
        spent = time.monotonic() - cut
        report(f"the others ended {spent:.1f} s after the cut")
        if IS_LONG:
            self.assertLess(spent, 2 * TAKE_OVER + URLS * 0.02 / self.LIMIT)
        for node in self.cluster.nodes[:2]:
            node.await_members(2)
        eventually(lambda: time.monotonic() > cut + seconds, "the cut has lasted", seconds + 1)
        self.machines[2].mend()
        lost.await_mode("member")
        self.assertAll(clients[2], URLS, body(70_000), timeout=120)
        report(f"{self.origin.total} fetches of {URLS} URLs, {self.cluster.counts()}")
        for node in self.cluster:
            node.await_members(3)


if __name__ == "__main__":
    unittest.main()
