"""Large bodies go from the node that received them to each node with a request for them, once."""

import hashlib
import os
import signal
import time
import unittest

from support.nodes import IS_LONG, Cluster
from support.engine import Engine
from support.figures import report
from support.harness import TestCase
from support.origin import Origin, body
from support.processes import eventually, reset_peak, resident, resident_peak

MIB = 1 << 20
SIZE = (200 if IS_LONG else 48) * MIB
#: Bytes by which a puller or gateway may grow for a large body.
MOST_GROWTH = 24 * MIB


class LargeBodyTests(TestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.engine = self.enterContext(Engine())
        self.cluster = self.enterContext(Cluster(self.engine, nodes=2))
        self.path = f"/gate/go?bytes={SIZE}"
        self.url = self.origin.url + self.path
        self.digest = hashlib.sha256(body(SIZE)).hexdigest()

    def fetch_on_first(self):
        """Requests the body on the first node, which fetches it as soon as the gate opens."""
        client = self.cluster[0].client()
        client.take_files = False
        client.hold()
        self.submit(client)
        self.origin.await_running(1)
        return client

    def submit(self, client, number=1):
        # The command has the same mode. Requests with other modes share no fetch between nodes.
        client.fetch("h", number, self.url, cache="explicit")

    def await_wanted(self):
        """Waits until the second node wants the flight."""
        node = self.cluster[1].cluster()["node"]
        eventually(lambda: self.engine.flights_of(node) == 1, "the engine knows that")

    def assertFile(self, message):
        self.assertEqual((message.verb, message.fields["sha-256"], int(message.fields["length"])), ("RESULT", self.digest, SIZE), message)
        with open(message.fields["file"], "rb") as file:
            self.assertEqual(hashlib.file_digest(file, "sha256").hexdigest(), self.digest)

    def test_a_large_body_is_fetched_once_and_pulled_once_for_each_node(self):
        clients = [self.fetch_on_first()]
        for number in range(3):
            client = self.cluster[1].client()
            client.take_files = False
            client.hold()
            self.submit(client, number)
            clients.append(client)
        self.await_wanted()
        pids = [self.cluster[1].pid_of("puller"), self.cluster[0].pid_of("node-gateway")]
        before = [resident(pid) for pid in pids]
        for pid in pids:
            reset_peak(pid)
        began = time.monotonic()
        self.origin.open_gate("go")
        for client in clients:
            self.assertFile(client.terminal(120))
        grown = [resident_peak(pid) - first for pid, first in zip(pids, before)]
        report(f"{SIZE // MIB} MiB on both nodes after {time.monotonic() - began:.2f} s; puller and gateway grew by "
               + " and ".join(f"{part / MIB:.1f}" for part in grown) + " MiB")
        counts = self.cluster.counts()
        self.assertEqual((self.origin.total, counts["pulled"], counts["pulled-bytes"], counts["missed"]), (1, 1, SIZE, 0))
        self.assertLess(max(grown), MOST_GROWTH)
        for client in clients:
            client.release()

    def stopped_midway(self, get):
        """Opens the gate, and stops the first node's gateway while the second node reads the body."""
        self.origin.open_gate("go")
        eventually(lambda: len(get.stdout) > 0, lambda: f"the stream has begun\n{get.describe()}")
        gateway = self.cluster[0].pid_of("node-gateway")
        os.kill(gateway, signal.SIGSTOP)
        return gateway

    def test_a_stream_begins_before_the_body_was_pulled(self):
        self.fetch_on_first()
        get = self.cluster[1].start("get", "-o", "-", self.url)
        self.await_wanted()
        gateway = self.stopped_midway(get)
        # The gateway is stopped: no more bytes than those under way arrive.
        self.assertLess(len(get.stdout), SIZE)
        self.assertEqual(self.cluster[1].cluster()["counts"]["pulled"], 0)
        os.kill(gateway, signal.SIGCONT)
        self.assertEqual(get.wait(120), 0, get.describe())
        self.assertEqual(hashlib.sha256(get.stdout).hexdigest(), self.digest)
        self.assertEqual(self.origin.total, 1)

    def test_the_death_of_the_node_that_has_a_body_costs_another_fetch(self):
        self.fetch_on_first()
        # What a stream has written cannot be taken back, so this one may fail.
        stream = self.cluster[1].start("get", "-o", "-", self.url)
        get = self.cluster[1].start("get", "-o", "out", self.url)
        client = self.cluster[1].client()
        client.take_files = False
        client.hold()
        self.submit(client)
        self.await_wanted()
        self.stopped_midway(stream)
        began = time.monotonic()
        self.cluster[0].kill_all()
        self.assertFile(client.terminal(60))
        self.assertEqual(get.wait(60), 0, get.describe())
        report(f"{time.monotonic() - began:.2f} s after the death")
        self.assertEqual(hashlib.sha256((self.cluster[1].folder / "out").read_bytes()).hexdigest(), self.digest)
        self.assertIn(stream.wait(60), (0, 23), stream.describe())
        self.assertEqual(self.origin.total, 2)
        self.assertEqual(self.cluster[1].cluster()["counts"]["missed"], 1)
        client.release()

    def test_a_removed_request_ends_its_pull(self):
        self.fetch_on_first()
        get = self.cluster[1].start("get", "-o", "-", self.url)
        self.await_wanted()
        gateway = self.stopped_midway(get)
        get.signal(signal.SIGINT)
        self.assertEqual(get.wait(), 130, get.describe())
        self.cluster[1].await_pending(0)
        os.kill(gateway, signal.SIGCONT)
        # Its bytes in the spool are freed.
        eventually(lambda: not self.spooled(1), lambda: f"the spool is empty: {self.spooled(1)}")

    def spooled(self, index):
        """Returns the names of files in the spool of a node."""
        return [path.name for path in self.cluster[index].spool.rglob("*") if path.is_file() and path.stat().st_size > MIB]


if __name__ == "__main__":
    unittest.main()
