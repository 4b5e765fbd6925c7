"""Quickness and turns in a cluster: a lone request waits for one answer of the engine, and nodes share a full origin."""

import os
import statistics
import time
import unittest

from support.engine import Engine
from support.figures import report
from support.nodes import Cluster, ClusterTestCase
from support.origin import Origin, body
from support.processes import eventually

LIMIT = 6
#: URLs that the client of each node asks for.
URLS = 150
#: A quarter of the interval of heartbeats, in seconds.
QUICK = 0.25


class QuicknessTests(ClusterTestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.engine = self.enterContext(Engine())

    def test_a_lone_request_waits_for_no_heartbeat(self):
        with Cluster(self.engine, nodes=2, cache=True) as cluster:
            client = cluster[0].client()
            times = []
            for number in range(20):
                # Afterwards the node has nothing to do.
                cluster[0].cluster()
                began = time.monotonic()
                client.fetch("h", number, f"{self.origin.url}/bytes/100?n={number}", priority="high" if number % 2 else "normal")
                self.assertResult(client.terminal(), body(100))
                times.append(time.monotonic() - began)
            report(f"lone requests: {statistics.median(times) * 1_000:.1f} ms, at most {max(times) * 1_000:.1f} ms")
            if os.environ.get("EARSHOT_LONG"):
                self.assertLess(statistics.median(times), QUICK)

    def test_nodes_take_turns_at_a_full_origin(self):
        with Cluster(self.engine, origin_limit=LIMIT) as cluster:
            clients = []
            for index, node in enumerate(cluster):
                urls = [f"{self.origin.url}/slow/0.02?bytes=100&n={index}-{number}" for number in range(URLS)]
                clients.append(self.submit(node, urls))
            for client in clients:
                self.assertAll(client, URLS, body(100))
            fetched = [node.cluster()["counts"]["granted"] for node in cluster]
            report(f"{URLS} URLs of each node: fetched {fetched}")
            self.assertEqual(self.origin.total, 3 * URLS)
            self.assertLessEqual(self.origin.most_at_once, LIMIT)
            # Without turns the first one fetches nearly all.
            self.assertGreaterEqual(min(fetched), URLS / 2)

    def test_a_restarted_broker_ends_the_membership_of_the_killed_one(self):
        with Cluster(self.engine, nodes=2) as cluster:
            # A pause of the test or of the broker may outlast the lease.
            self.assertTrue(any(self.endsBeforeItsLease(cluster[0]) for _ in range(3)))

    def endsBeforeItsLease(self, node):
        """Kills the broker of a node. Returns whether the next one ends its membership before the lease does."""
        node.renew_observer()
        node.await_mode("member")
        table, former = f"{self.engine.PREFIX}nodes", node.cluster()["node"]
        node.kill_role("broker")
        lease = self.engine.execute("ZSCORE", table, former)
        eventually(lambda: self.engine.execute("ZSCORE", table, former) is None, "the membership of the killed broker has ended")
        seconds, microseconds = self.engine.execute("TIME")
        return lease is not None and int(seconds) * 1_000 + int(microseconds) // 1_000 < int(lease)

    def test_the_last_node_that_stops_leaves_room_for_another_version(self):
        with Cluster(self.engine, nodes=2):
            self.assertEqual(self.engine.execute("EXISTS", "{shop}:version"), 1)
        eventually(lambda: self.engine.execute("EXISTS", "{shop}:version") == 0, "the version is gone")


if __name__ == "__main__":
    unittest.main()
