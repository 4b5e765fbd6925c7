"""Three nodes of a cluster share fetches, limits and bodies."""

import collections
import random
import time
import unittest

from support.bridge import HOME, Bridge, obstacle
from support.nodes import IS_LONG, Cluster
from support.engine import Engine, SentinelEngine
from support.figures import report
from support.harness import TestCase
from support.origin import Origin, body
from support.processes import eventually

#: URLs that each node asks for.
URLS = 10_000 if IS_LONG else 1_000
#: Sizes of bodies: nothing, in the message, and in a file of the spool.
SIZES = [0, 10, 1_000, 1_000, 1_000, 1_000, 30_000, 1_000, 1_000, 100_000]
LIMIT = 6
#: Age of requests, in seconds, that is above the duration of a call to the engine on a busy machine.
OLDER = 10


def targets(count, gate="go"):
    """Returns paths with the size of each body."""
    return {f"/gate/{gate}?bytes={(size := SIZES[number % len(SIZES)])}&seed={number}": (size, number) for number in range(count)}


class SharedTestCase(TestCase):
    def submit_everywhere(self, cluster, origin, wanted, shuffled=False):
        """Requests all targets on all nodes, and waits until each has them. Returns a client for each node."""
        clients = []
        for index, node in enumerate(cluster):
            paths = list(wanted)
            if shuffled:
                random.Random(index).shuffle(paths)
            client = node.client(window=1024)
            for path in paths:
                client.fetch("h", wanted[path][1], origin.url + path)
            clients.append(client)
        for node in cluster:
            node.await_pending(len(wanted))
        # A node tells the engine how old a request is. One that is younger than the call that tells it may be fetched again.
        submitted = time.monotonic()
        eventually(lambda: time.monotonic() > submitted + OLDER, "the requests are old enough")
        return clients

    def assertBodies(self, client, wanted, timeout=120):
        """Receives a result with the right bytes for each target."""
        by_number = {str(number): size for size, number in wanted.values()}
        for message in client.terminals(len(wanted), timeout):
            request = message.operands[1]
            self.assertResult(message, body(by_number.pop(request), seed=request))
        self.assertEqual(by_number, {})
        self.assertEqual(client.rest(), [])

    def assertShared(self, cluster, origin, wanted, shuffled=False):
        """All nodes request all targets, and share each fetch."""
        clients = self.submit_everywhere(cluster, origin, wanted, shuffled)
        origin.await_running(LIMIT)
        began = time.monotonic()
        origin.open_gate("go")
        for client in clients:
            self.assertBodies(client, wanted)
        report(f"{len(wanted)} URLs on 3 nodes: {time.monotonic() - began:.2f} s, {cluster.counts()}")
        self.assertOnce(origin, wanted)
        self.assertLessEqual(origin.most_at_once, LIMIT)
        for client in clients:
            self.balance(client)

    def assertOnce(self, origin, wanted):
        counts = collections.Counter(request.target for request in origin.log())
        doubled = {target: count for target, count in counts.items() if count > 1}
        self.assertEqual((len(counts), doubled), (len(wanted), {}))


class SharingTests(SharedTestCase):
    """On loopback, with one redis-server."""

    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.engine = self.enterContext(Engine())

    def test_each_url_is_fetched_once_for_all_nodes_and_each_client_gets_each_body(self):
        wanted = targets(URLS)
        with Cluster(self.engine, origin_limit=LIMIT) as cluster:
            # In another order at each node.
            self.assertShared(cluster, self.origin, wanted, shuffled=True)

    @unittest.skipUnless(IS_LONG, "takes half a minute")
    def test_a_long_backlog_in_another_order_is_fetched_once(self):
        wanted = {f"/slow/0.05?bytes=1000&seed={number}": (1_000, number) for number in range(2_000)}
        with Cluster(self.engine, origin_limit=LIMIT) as cluster:
            clients = []
            for index, node in enumerate(cluster):
                client = node.client(window=4096)
                paths = list(wanted)
                random.Random(index).shuffle(paths)
                for path in paths:
                    client.fetch("h", wanted[path][1], self.origin.url + path)
                clients.append(client)
            for client in clients:
                messages = client.terminals(len(wanted), 120)
                self.assertEqual({message.verb for message in messages}, {"RESULT"})
            fetched = collections.Counter(request.target for request in self.origin.log())
            # Those that ended before the last node had made its requests may be fetched again.
            self.assertLess(self.origin.total, len(wanted) * 1.05, collections.Counter(fetched.values()))

    def test_a_node_with_free_slots_fetches_for_a_busy_one(self):
        wanted = targets(60)
        with Cluster(self.engine, nodes=2, origin_limit=60, workers=1, slots=10, each={1: {"slots": 30}}) as cluster:
            client = cluster[0].client()
            for path, (_, number) in wanted.items():
                client.fetch("h", number, self.origin.url + path)
            self.origin.await_running(40)
            self.origin.open_gate("go")
            self.assertBodies(client, wanted)
            self.assertOnce(self.origin, wanted)

    def test_a_later_request_is_fetched_again_unless_a_cache_answers(self):
        with Cluster(self.engine, nodes=2) as cluster:
            first, second = (node.client() for node in cluster)
            for turn, client in enumerate((first, second, second), 1):
                client.fetch("h", turn, f"{self.origin.url}/bytes/70000")
                self.assertResult(client.terminal(), body(70_000))
                self.assertEqual(self.origin.total, turn)

    def test_requests_with_credentials_stay_on_their_node(self):
        with Cluster(self.engine, nodes=2) as cluster:
            clients = [node.client() for node in cluster]
            for number, client in enumerate(clients):
                client.fetch("h", 1, f"{self.origin.url}/gate/go", headers=[("authorization", f"Bearer {number}")])
            self.origin.await_running(2)
            records = self.engine.records()
            self.assertEqual(len(records), 2)
            self.assertNotIn("Bearer", "".join(records))
            self.assertNotIn(self.origin.url, "".join(records))
            self.origin.open_gate("go")
            for client in clients:
                self.assertResult(client.terminal(), body(100))


@unittest.skipUnless(obstacle() is None, f"no network namespaces: {obstacle()}")
class SeveralMachineTests(SharedTestCase):
    """Three nodes in namespaces of their own, and three servers with three sentinels."""

    def setUp(self):
        bridge = self.enterContext(Bridge())
        machines = [bridge.machine() for _ in range(3)]
        self.origin = self.enterContext(Origin(host=HOME))
        self.engine = self.enterContext(SentinelEngine(machines, down_after=30_000))
        self.cluster = self.enterContext(Cluster(self.engine, machines=machines, origin_limit=LIMIT))

    def test_three_machines_with_sentinels_share_each_fetch(self):
        self.assertShared(self.cluster, self.origin, targets(URLS))


if __name__ == "__main__":
    unittest.main()
