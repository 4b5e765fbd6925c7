"""Removals on one node of a cluster reach the engine and the nodes that fetch for it."""

import time
import unittest

from support.nodes import IS_LONG, Cluster
from support.engine import Engine
from support.figures import report
from support.harness import TestCase
from support.origin import Origin, body
from support.processes import eventually

QUEUED = 100_000 if IS_LONG else 10_000


class RemovalTests(TestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.engine = self.enterContext(Engine())

    def hosting(self, slots):
        """Returns two nodes and a client of the first one, whose only slot has a request; the second one fetches for it."""
        cluster = self.enterContext(Cluster(self.engine, nodes=2, workers=1, slots=1, origin_limit=50, each={1: {"slots": slots}}))
        client = cluster[0].client()
        client.fetch("other", 0, f"{self.origin.url}/gate/other", max_bytes=1_000)
        self.origin.await_running(1)
        return cluster, client

    def test_a_removed_handler_leaves_nothing_in_the_engine(self):
        with Cluster(self.engine, nodes=2, origin_limit=1_000) as cluster:
            client = cluster[0].client()
            for number in range(QUEUED):
                client.fetch("h", number, f"{self.origin.url}/gate/go?{number}")
            cluster[0].await_pending(QUEUED, timeout=120)
            eventually(lambda: self.engine.flights() > 600, "the engine has flights")
            known = self.engine.flights()
            began = time.monotonic()
            client.remove("h")
            answered = time.monotonic() - began
            eventually(lambda: self.engine.flights() == 0, lambda: f"the engine has no flight, it has {self.engine.flights()}")
            spent = time.monotonic() - began
            self.assertEqual(self.engine.queues(), [])
            report(f"{QUEUED} removed in {answered * 1000:.0f} ms; {known} flights left the engine in {spent * 1000:.0f} ms")
            self.origin.await_running(0)
            if IS_LONG:
                self.assertLess(spent, 1)
            self.balance(client)

    def test_a_removed_transfer_on_another_node_is_cut_at_the_origin(self):
        cluster, client = self.hosting(slots=4)
        client.fetch("h", 1, f"{self.origin.url}/gate/mine")
        self.origin.await_count("/gate/mine", 1)
        self.assertEqual(cluster[1].cluster()["counts"]["hosted"], 1)
        began = time.monotonic()
        client.remove("h")
        self.origin.await_aborts("/gate/mine")
        report(f"cut on the other node after {(time.monotonic() - began) * 1000:.0f} ms")
        self.assertEqual(self.origin.running, 1)
        eventually(lambda: self.engine.flights() == 1, "the engine has the other flight")

    def test_a_removed_transfer_goes_on_for_another_node(self):
        with Cluster(self.engine, nodes=2) as cluster:
            first, second = (node.client() for node in cluster)
            url = f"{self.origin.url}/gate/ours?bytes=100000"
            first.fetch("h", 1, url)
            self.origin.await_running(1)
            second.fetch("h", 1, url)
            eventually(lambda: cluster[1].cluster()["claims"] == 1, "the second node wants it")
            node = cluster[1].cluster()["node"]
            eventually(lambda: self.engine.flights_of(node) == 1, "the engine knows that")
            first.remove("h")
            self.origin.open_gate("ours")
            self.assertResult(second.terminal(), body(100_000))
            self.assertEqual(self.origin.total, 1)
            self.assertEqual(first.rest(), [])


if __name__ == "__main__":
    unittest.main()
