"""Deaths of nodes and of their processes: each request ends, and the work goes on elsewhere."""

import collections
import hashlib
import json
import shutil
import time
import unittest

from support.engine import Engine
from support.figures import report
from support.harness import Commands, temporary_folder
from support.nodes import IS_LONG, ClientNode, Cluster, ClusterTestCase
from support.origin import Origin, body
from support.processes import eventually
from support.relay import Keys

#: Time after which the work of a dead node runs elsewhere, in seconds: its lease and the next calls.
TAKE_OVER = 5
URLS = 1_000 if IS_LONG else 150


class NodeDeathTests(ClusterTestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.engine = self.enterContext(Engine())

    def test_the_fetches_of_a_killed_node_run_elsewhere(self):
        urls = [f"{self.origin.url}/gate/go?bytes=1000&n={number}" for number in range(4)]
        with Cluster(self.engine) as cluster:
            self.submit(cluster[0], urls)
            self.origin.await_running(4)
            clients = [self.submit(node, urls) for node in cluster.nodes[1:]]
            for node in cluster.nodes[1:]:
                eventually(lambda: self.engine.flights_of(node.cluster()["node"]) == 4, "the engine knows its wants")
            self.assertEqual(self.origin.total, 4)
            cluster[0].kill_all()
            self.origin.await_total(8)
            killed = max(request.aborted for request in self.origin.log()[:4])
            moments = [request.started - killed for request in self.origin.log()[4:]]
            report(f"elsewhere after {min(moments):.2f} to {max(moments):.2f} s")
            if IS_LONG:
                self.assertLess(max(moments), TAKE_OVER)
            self.origin.open_gate("go")
            for client in clients:
                self.assertAll(client, 4, body(1_000))
            self.assertEqual(self.origin.total, 8)
            for node in cluster.nodes[1:]:
                node.await_members(2)

    def test_clients_of_a_killed_node_continue_at_another_one(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder)
        keys = Keys(folder / "keys")
        user = Commands(folder / "run", folder)
        del user.environment["EARSHOT_RUNTIME"]
        with Cluster(self.engine, kind=ClientNode, admitted=keys, origin_limit=20) as cluster:
            options = cluster.client_options(keys)
            urls = [f"{self.origin.url}/slow/0.05?bytes=70000&n={number}" for number in range(URLS)]
            path = folder / "urls"
            path.write_text("\n".join(urls))
            gets = [user.start("get", "-i", path, "--json", *options) for _ in range(2)]
            beside = self.submit(cluster[2], urls)
            eventually(lambda: all(len(get.stdout.splitlines()) > URLS // 5 for get in gets), "a fifth has ended")
            began = time.monotonic()
            cluster[0].kill_all()
            for get in gets:
                self.assertEqual(get.wait(120), 0, get.describe())
                lines = [json.loads(line) for line in get.stdout.splitlines()]
                self.assertEqual(sorted(line["index"] for line in lines), list(range(1, URLS + 1)))
                self.assertEqual({line["sha256"] for line in lines}, {hashlib.sha256(body(70_000)).hexdigest()})
            report(f"ended {time.monotonic() - began:.1f} s after the death")
            self.assertAll(beside, URLS, body(70_000))
            counts = collections.Counter(request.target for request in self.origin.log())
            report(f"{sum(counts.values())} fetches of {len(counts)} URLs, {cluster.counts()}")
            self.assertEqual(len(counts), URLS)

    def test_a_killed_broker_joins_again_and_its_transfers_go_on(self):
        urls = [f"{self.origin.url}/gate/go?bytes=1000&n={number}" for number in range(4)]
        with Cluster(self.engine, nodes=2) as cluster:
            client = cluster[0].stubborn_client()
            for number, url in enumerate(urls):
                client.fetch("h", number, url)
            self.origin.await_running(4)
            other = self.submit(cluster[1], urls)
            former = cluster[0].broker
            cluster[0].kill_role("broker")
            client.await_next_broker()
            eventually(lambda: cluster[0].broker != former, "another broker runs")
            self.origin.open_gate("go")
            answers = client.collect()
            self.assertEqual(len(answers), 4)
            for messages in answers.values():
                self.assertEqual(len(messages), 1)
                self.assertResult(messages[0], body(1_000))
            self.assertAll(other, 4, body(1_000))

    def test_killed_gateways_and_pullers_lose_nothing(self):
        urls = [f"{self.origin.url}/slow/0.01?bytes=100000&n={number}" for number in range(URLS)]
        with Cluster(self.engine, nodes=2, origin_limit=10) as cluster:
            clients = [self.submit(node, urls) for node in cluster]
            for done in (URLS // 5, URLS // 2):
                self.origin.await_total(done)
                for role in ("node-gateway", "puller"):
                    cluster[0].kill_role(role)
            for client in clients:
                self.assertAll(client, URLS, body(100_000))
            report(f"{self.origin.total} fetches of {URLS} URLs, {cluster.counts()}")


if __name__ == "__main__":
    unittest.main()
