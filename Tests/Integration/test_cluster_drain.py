"""A node that ends hands its queued work to the other nodes."""

import json
import shutil
import signal
import time
import unittest

from support.nodes import ClientNode, Cluster
from support.engine import Engine
from support.figures import report
from support.harness import Commands, TestCase, temporary_folder
from support.origin import Origin, body
from support.processes import eventually
from support.relay import Keys

COUNT = 300


class DrainTests(TestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.engine = self.enterContext(Engine())
        self.cluster = self.enterContext(Cluster(self.engine, origin_limit=6))
        self.client = self.cluster[0].client(window=1024)

    def submit(self, client, count, handler="h", **options):
        for number in range(count):
            client.fetch(handler, number, f"{self.origin.url}/gate/go?bytes=70000&h={handler}&n={number}", **options)

    def assertAll(self, client, count):
        found = client.terminals(count, 60)
        for message in found:
            self.assertResult(message, body(70_000))
        self.assertEqual(len({message.id for message in found}), count)

    def drain(self):
        """Drains the first node while it has queued and running requests, and opens the gate."""
        self.origin.await_running(6)
        drain = self.cluster[0].start("drain")
        self.addCleanup(drain.kill)
        eventually(lambda: self.client.settings()["admission"][0] == "closed", "admission is closed")
        self.origin.open_gate("go")
        return drain

    def assertDrained(self, drain):
        self.assertEqual(drain.wait(), 0, drain.describe())
        self.assertEqual(self.cluster[0].program.wait(), 0, self.cluster[0].program.describe())
        for node in self.cluster.nodes[1:]:
            node.await_members(2)

    def test_the_queued_requests_of_a_drained_node_are_fetched_by_others(self):
        self.submit(self.client, COUNT)
        drain = self.drain()
        self.assertAll(self.client, COUNT)
        self.assertDrained(drain)
        counts = self.cluster.counts()
        report(f"{counts['hosted']} of {COUNT} fetched by the others")
        self.assertGreater(counts["hosted"], COUNT // 2)
        self.assertEqual(self.origin.total, COUNT)
        self.assertLessEqual(self.origin.most_at_once, 6)

    def test_a_drained_node_fetches_its_requests_with_credentials_itself(self):
        self.submit(self.client, 20, "own", headers=[("authorization", "Bearer x")])
        self.submit(self.client, 20)
        drain = self.drain()
        self.assertAll(self.client, 40)
        self.assertDrained(drain)
        self.assertEqual(self.origin.total, 40)

    def test_a_drained_node_leaves_what_it_fetches_for_others_to_them(self):
        self.submit(self.client, 20)
        others = [node.client(window=1024) for node in self.cluster.nodes[1:]]
        for other in others:
            self.submit(other, 100)
        for node in self.cluster.nodes[1:]:
            node.await_pending(100)
        drain = self.drain()
        self.assertAll(self.client, 20)
        for other in others:
            self.assertAll(other, 100)
        self.assertDrained(drain)
        report(f"{self.origin.total} fetches of 100 URLs, {self.cluster.counts()}")
        # The node may end before the others have read the bodies of its last fetches.
        self.assertLessEqual(self.origin.total, 100 + 20)

    def test_the_last_node_drains_by_itself(self):
        for node in self.cluster.nodes[1:]:
            node.program.signal(signal.SIGTERM)
            self.assertEqual(node.program.wait(), 0)
        self.cluster[0].await_members(1)
        self.submit(self.client, 100)
        drain = self.drain()
        self.assertAll(self.client, 100)
        self.assertEqual(drain.wait(), 0, drain.describe())
        self.assertEqual(self.origin.total, 100)

    def test_a_node_that_stops_gives_its_transfers_to_nodes_that_want_them(self):
        self.submit(self.client, 6)
        self.origin.await_running(6)
        other = self.cluster[1].client()
        self.submit(other, 6)
        self.cluster[1].await_pending(6)
        self.cluster[0].program.signal(signal.SIGTERM)
        self.cluster[0].program.await_line("finishing running work")
        self.cluster[0].program.signal(signal.SIGTERM)
        self.assertEqual(self.cluster[0].program.wait(), 0)
        self.origin.await_total(12)
        self.origin.open_gate("go")
        self.assertAll(other, 6)


class RemoteClientTests(TestCase):
    def test_a_program_on_another_machine_leaves_a_node_that_stops_before_its_transfers_end(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder)
        origin = self.enterContext(Origin())
        engine = self.enterContext(Engine())
        keys = Keys(folder / "keys")
        user = Commands(folder / "run", folder)
        del user.environment["EARSHOT_RUNTIME"]
        cluster = self.enterContext(
            Cluster(engine, kind=ClientNode, admitted=keys, origin_limit=6, arguments=["--drain-seconds", "3600"]))
        urls = [f"{origin.url}/gate/go?bytes=1000&n={number}" for number in range(6)]
        path = folder / "urls"
        path.write_text("\n".join(urls))
        get = user.start("get", "-i", path, "--json", *cluster.client_options(keys))
        origin.await_running(6)
        began = time.monotonic()
        cluster[0].program.signal(signal.SIGTERM)
        # Nothing runs there any more, so it ends long before the hour.
        self.assertEqual(cluster[0].program.wait(), 0, cluster[0].program.describe())
        origin.await_total(12)
        report(f"again at another node {time.monotonic() - began:.1f} s after the signal")
        origin.open_gate("go")
        self.assertEqual(get.wait(), 0, get.describe())
        self.assertEqual(sorted(json.loads(line)["index"] for line in get.stdout.splitlines()), list(range(1, 7)))


if __name__ == "__main__":
    unittest.main()
