"""Nodes whose network is broken, or whose settings differ: requests do not fail for it, and operators see it."""

import unittest
import urllib.parse

from support.cluster import unreachable_address
from support.engine import Engine
from support.network import ADDRESS, free_port
from support.nodes import Cluster, ClusterTestCase
from support.origin import Origin, body
from support.processes import eventually
from support.proxy import Proxy

URLS = 200


class HealthTestCase(ClusterTestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.engine = self.enterContext(Engine())

    def await_warning(self, node, part):
        """Waits until status, log and command of a node have a warning."""
        eventually(lambda: any(part in warning for warning in node.cluster()["warnings"]), lambda: f"{part}: {node.cluster()}")
        node.program.await_line(part)
        self.assertIn(part, node.run("cluster").stdout.decode())


class WayOutTests(HealthTestCase):
    """The third node resolves no name of the origin. The others reach it through a proxy."""

    def setUp(self):
        super().setUp()
        self.proxy = self.enterContext(Proxy())
        self.hidden = f"http://hidden.invalid:{urllib.parse.urlsplit(self.origin.url).port}"

    def cluster(self):
        through = {"environment": {"http_proxy": self.proxy.address}}
        # No two nodes have slots for all places at the origin.
        return Cluster(self.engine, each={0: through, 1: through}, workers=1, slots=4, origin_limit=12)

    def test_no_request_fails_because_another_node_cannot_reach_the_origin(self):
        with self.cluster() as cluster:
            urls = [f"{self.hidden}/gate/go?bytes=1000&n={number}" for number in range(URLS)]
            clients = [self.submit(cluster[0], urls[::2]), self.submit(cluster[1], urls[1::2])]
            eventually(lambda: cluster[2].cluster()["counts"]["hosted"] > 0, "the third node has tried one")
            self.origin.open_gate("go")
            for client in clients:
                self.assertAll(client, URLS // 2, body(1_000))


class PolicyTests(HealthTestCase):
    def test_a_client_gets_nothing_that_the_address_policy_of_its_node_denies(self):
        with Cluster(self.engine, nodes=2, each={0: {"arguments": ["--address-policy", "public-only"]}}) as cluster:
            for number in range(4):
                url = f"{self.origin.url}/bytes/1000?n={number}"
                clients = [self.submit(node, [url], f"h{number}") for node in cluster]
                self.assertFailed(clients[0].terminal(), "address-refused")
                self.assertResult(clients[1].terminal(), body(1_000))
            self.assertEqual(self.origin.total, 4)
            self.await_warning(cluster[0], "differs in address policy")
            self.await_warning(cluster[1], "differs in address policy")


class BodyNetworkTests(HealthTestCase):
    def test_a_node_whose_bodies_cannot_be_read_is_noticed_at_the_join(self):
        with Cluster(self.engine, nodes=1) as cluster:
            closed = unreachable_address()
            cluster.add(changes={"node": closed, "listen": f"{ADDRESS}:{free_port()}"}).await_member()
            self.await_warning(cluster[0], f"the bodies of the node at {closed} cannot be read")
            self.assertEqual(cluster[0].cluster()["unreadable-nodes"], 1)
            self.assertIn("bodies cannot be read", cluster[0].run("cluster").stdout.decode())

    def test_a_node_whose_bodies_cannot_be_read_leaves_its_urls_to_the_others(self):
        with Cluster(self.engine, nodes=2) as cluster:
            closed = cluster.add(changes={"node": unreachable_address(), "listen": f"{ADDRESS}:{free_port()}"}).await_member()
            for node in cluster:
                node.await_members(3)
            self.await_warning(closed, "this node runs no flights of other nodes")
            urls = [f"{self.origin.url}/gate/go?bytes=1000&n={number}" for number in range(6)]
            clients = [self.submit(closed, urls)]
            self.origin.await_running(6)
            clients += [self.submit(node, urls) for node in cluster.nodes[:2]]
            for node in cluster.nodes[:2]:
                eventually(lambda node=node: self.engine.flights_of(node.cluster()["node"]) == 6, "it wants all")
            self.origin.open_gate("go")
            for client in clients:
                self.assertAll(client, 6, body(1_000))
            # It may have tried one.
            self.assertLessEqual(self.origin.total, 7)

    def test_two_nodes_with_one_address_are_an_error(self):
        with Cluster(self.engine, nodes=1) as cluster:
            address = cluster[0].address
            cluster.add(changes={"node": address, "listen": f"{ADDRESS}:{free_port()}"}).await_member()
            self.await_warning(cluster[0], f"two nodes have the address {address}")


if __name__ == "__main__":
    unittest.main()
