"""A cluster whose engine dies, hangs or loses its data."""

import collections
import itertools
import time
import unittest

from support.engine import Engine
from support.figures import report
from support.nodes import IS_LONG, Cluster, ClusterTestCase
from support.origin import Origin, body
from support.processes import eventually

URLS = 1_000 if IS_LONG else 300
ABSENCE = 30 if IS_LONG else 0
"""Seconds for which the engine is away at least, while requests go on."""


class EngineDeathTests(ClusterTestCase):
    """The only server of the engine stops, and comes back with or without its data."""

    LIMIT = 6

    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.engine = self.enterContext(Engine())

    def await_alone(self, index, node):
        """Waits until a node fetches without the engine. Returns how often it was seen to wait before, while none of its requests
        started."""
        waits = 0

        def is_alone():
            nonlocal waits
            started = [request.target for request in self.origin.log() if f"&n={index}-" in request.target]
            mode = node.cluster()["mode"]
            if mode != "waiting":
                return mode == "alone"
            self.assertEqual(started, [], "nothing starts while a node waits for the engine")
            waits += 1
            return False

        eventually(is_alone, lambda: f"alone: {node.cluster()}")
        return waits

    def assertAlone(self, stop, resume):
        """Nodes without the engine fetch by themselves, each with its part of the limit, and rejoin."""
        with Cluster(self.engine, members=3, origin_limit=self.LIMIT) as cluster:
            # As many as its part of the limit.
            running = [f"{self.origin.url}/gate/before?bytes=1000&n={number}" for number in range(2)]
            before = self.submit(cluster[0], running, "before")
            self.origin.await_running(2)
            stopped = time.monotonic()
            stop()
            for node in cluster:
                node.await_mode("waiting", "alone")
            clients = []
            for index, node in enumerate(cluster):
                urls = [f"{self.origin.url}/first/{10_000}/x?bytes=1000&n={index}-{number}" for number in range(URLS // 10)]
                clients.append(self.submit(node, urls))
            began = time.monotonic()
            waits = [self.await_alone(index, node) for index, node in enumerate(cluster)]
            self.assertGreater(sum(waits), 0, "a node waits for the engine")
            report(f"alone {time.monotonic() - began:.1f} s after the node noticed")
            self.origin.open_gate("before")
            self.assertAll(before, 2, body(1_000))
            for client in clients:
                self.assertAll(client, URLS // 10, body(1_000))
            alone = itertools.count()
            while time.monotonic() - stopped < ABSENCE:
                urls = [f"{self.origin.url}/slow/0.2?bytes=1000&alone={next(alone)}" for _ in cluster]
                for client in [self.submit(node, [url]) for node, url in zip(cluster, urls)]:
                    self.assertAll(client, 1, body(1_000))
            held = [self.submit(node, [f"{self.origin.url}/gate/after?bytes=1000&node={index}&n={number}" for number in range(5)],
                                "held")
                    for index, node in enumerate(cluster)]
            self.origin.await_running(self.LIMIT)
            each = collections.Counter(request.query["node"] for request in self.origin.log("/gate/after"))
            self.assertEqual(sorted(each.values()), [self.LIMIT // 3] * 3)
            self.assertEqual(self.origin.most_at_once, self.LIMIT)
            resume()
            for node in cluster:
                node.await_mode("member")
            self.origin.open_gate("after")
            for client in held:
                self.assertAll(client, 5, body(1_000))
            # The first node that joins leaves the others their parts for the time of a lease. One may take longer.
            report(f"at most {self.origin.most_at_once} transfers at once")
            self.assertLessEqual(self.origin.most_at_once, self.LIMIT + self.LIMIT // 3)
            for node in cluster:
                node.await_members(3)
            self.assertEqual(self.origin.total, 2 + 3 * (URLS // 10) + next(alone) + 15, "nothing was fetched twice")
            eventually(lambda: self.engine.flights() == 0, "the engine has no flight left")
            last = [self.submit(node, [f"{self.origin.url}/gate/last?bytes=1000&n={number}" for number in range(20)], "last")
                    for node in cluster]
            # A claim that reaches the engine after the end of a fetch is a new one. The last ones of a node wait for others.
            for node in cluster:
                node.await_pending(20)
                eventually(lambda: self.engine.flights_of(node.cluster()["node"]) >= 2 * self.LIMIT, "the engine knows its claims")
            self.origin.await_running(self.LIMIT)
            self.origin.open_gate("last")
            for client in last:
                self.assertAll(client, 20, body(1_000))
            self.assertEqual(len(self.origin.log("/gate/last")), 20)

    def test_nodes_fetch_alone_while_the_engine_is_dead_and_rejoin(self):
        self.assertAlone(self.engine.server.kill, self.engine.server.restart)

    @unittest.skipUnless(IS_LONG, "ten seconds more: EARSHOT_LONG=1")
    def test_nodes_fetch_alone_while_the_engine_hangs_and_rejoin(self):
        self.assertAlone(self.engine.server.stop, self.engine.server.resume)

    def test_an_engine_that_loses_its_data_costs_duplicates_at_most(self):
        urls = [f"{self.origin.url}/slow/0.02?bytes=70000&n={number}" for number in range(URLS)]
        with Cluster(self.engine, origin_limit=self.LIMIT) as cluster:
            clients = [self.submit(node, urls) for node in cluster]
            for part in (1, 2):
                self.origin.await_total(part * URLS // 3)
                self.engine.execute("FLUSHALL")
            for client in clients:
                self.assertAll(client, URLS, body(70_000))
            report(f"{self.origin.total} fetches of {URLS} URLs, at most {self.origin.most_at_once} at once, {cluster.counts()}")
            self.assertEqual(len({request.target for request in self.origin.log()}), URLS)


if __name__ == "__main__":
    unittest.main()
