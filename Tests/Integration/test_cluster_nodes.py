"""A bus that is a node of a cluster: its file, the gateway for other nodes, and the puller."""

import os
import signal

import zmq

from support.cluster import ClusterBus, ClusterFile, NodePeer
from support.harness import Bus, TestCase
from support.network import ADDRESS, NetworkBus, free_port
from support.processes import eventually, watch_all

REFUSED = zmq.EVENT_HANDSHAKE_FAILED_AUTH


class ClusterNodeTests(TestCase):
    def setUp(self):
        self.bus = self.enterContext(ClusterBus(workers=1))
        self.client = self.bus.client()

    def assertNamed(self, peer, client):
        """Asserts that the sessions of a peer have the principal of the cluster's nodes."""
        peer.send("SUBSCRIBE of-a-node")
        peer.query("ping")
        handlers = client.query("handlers")["handlers"]
        self.assertEqual([entry.get("principal") for entry in handlers], ["node:shop"])

    def test_a_client_with_the_key_of_the_cluster_is_a_node(self):
        self.assertNamed(self.bus.peer(), self.client)

    def test_an_unknown_key_is_refused(self):
        peer = self.bus.peer(key=zmq.curve_keypair(), hello=False)
        self.assertEqual(peer.await_event(REFUSED), 400)

    def test_the_key_of_the_cluster_serves_no_schemes(self):
        peer = self.bus.peer(hello=False)
        peer.send("READY EARW/1", slots=1, schemes="thumb")
        self.assertEqual(peer.expect("ERROR").operands, ["not-authorized"])

    def test_the_broker_takes_the_puller(self):
        self.assertEqual(self.bus.await_puller(self.client), self.bus.child("puller"))

    def test_a_killed_puller_is_replaced(self):
        killed = self.bus.await_puller(self.client)
        self.bus.kill_child("puller")
        eventually(lambda: self.bus.await_puller(self.client) != killed, "another puller is ready")

    def test_a_killed_node_gateway_is_replaced(self):
        peer = self.bus.peer()
        self.bus.kill_child("gateway")
        peer.await_event(zmq.EVENT_DISCONNECTED)
        self.assertNamed(self.bus.peer(), self.client)

    def test_the_next_broker_takes_both(self):
        killed = self.bus.broker
        puller = self.bus.await_puller(self.client)
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: self.bus.broker != killed, "another broker runs")
        self.client.cut()
        client = self.bus.client()
        self.assertEqual(self.bus.await_puller(client), puller)
        self.assertNamed(self.bus.peer(), client)

    def test_both_end_with_a_killed_supervisor(self):
        watched = watch_all([self.bus.child("puller"), self.bus.child("gateway")])
        self.bus.program.kill()
        for process in watched:
            self.assertTrue(process.await_death())
            process.close()

    def test_SIGHUP_reads_the_keys_again(self):
        old = self.bus.peer()
        new = ClusterFile(self.bus, f"{ADDRESS}:{self.bus.port}", path=self.bus.folder / "other.toml")
        os.replace(new.path, self.bus.cluster.path)
        self.bus.program.signal(signal.SIGHUP)
        self.bus.program.await_line("the keys were read again clients=1")
        old.await_event(zmq.EVENT_DISCONNECTED)
        self.assertNamed(self.bus.peer(key=new.key, server_key=new.key[0]), self.client)


class BothGatewaysTests(TestCase):
    def test_a_gateway_for_clients_runs_beside_that_of_nodes(self):
        bus = NetworkBus(workers=1)
        port = free_port()
        cluster = ClusterFile(bus, f"{ADDRESS}:{port}")
        bus._options += ["--cluster", cluster.path]
        with bus:
            for client, name in ((bus.remote(), "key:test"), (NodePeer(bus, port, cluster.key), "node:shop")):
                with self.subTest(name=name), client:
                    client.send(f"SUBSCRIBE of-{name}")
                    client.query("ping")
                    handlers = bus.client().query("handlers")["handlers"]
                    self.assertIn((f"of-{name}", name), [(each["handler"], each.get("principal")) for each in handlers])
            own = bus.remote(key=cluster.key, hello=False)
            self.assertEqual(own.await_event(REFUSED), 400)


class ClusterFileTests(TestCase):
    def serve(self, bus, *arguments):
        return bus.run("serve", "--runtime", bus.runtime, "--spool", bus.spool, "--workers", "1", *arguments)

    def test_faults_of_the_file_end_serve_with_78(self):
        bus = ClusterBus(workers=1)
        path = bus.cluster.path
        text = path.read_text()
        for change, part in (
            (lambda: path.write_text(text.replace('name = "shop"', 'name = "a b"')), "name: must be"),
            (lambda: path.write_text(text.replace("servers", "server")), "engine.server: unknown key"),
            (lambda: path.write_text(text.replace("secret-key = \"", "secret-key = \"0")), "secret-key: must be"),
            (lambda: path.chmod(0o640), "chmod 600"),
            (lambda: path.unlink(), "earshot cluster new"),
        ):
            change()
            with self.subTest(part=part):
                program = self.serve(bus, "--cluster", str(path))
                self.assertEqual(program.status, 78, program.describe())
                self.assertIn(part, program.stderr)

    def test_keys_that_are_no_pair_end_serve_with_78(self):
        bus = ClusterBus(workers=1)
        bus.cluster.change(bus.cluster.key[0].decode(), zmq.curve_keypair()[0].decode())
        program = self.serve(bus, "--cluster", str(bus.cluster.path))
        self.assertEqual(program.status, 78, program.describe())
        self.assertIn("public-key does not belong to secret-key", program.stderr)

    def test_a_new_file_replaces_none_and_is_private(self):
        bus = Bus(workers=1)
        words = ["cluster", "new", "shop", "--node", "10.0.0.1:5766", "--server", "10.0.0.1:6379"]
        self.assertEqual(bus.run(*words).status, 0)
        path = bus.folder / "cluster.toml"
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        before = path.read_text()
        program = bus.run(*words)
        self.assertEqual(program.status, 23, program.describe())
        self.assertIn("--output", program.stderr)
        self.assertEqual(path.read_text(), before)

    def test_a_password_comes_from_a_file(self):
        bus = Bus(workers=1)
        program = bus.run("cluster", "new", "shop", "--node", "10.0.0.1:5766", "--sentinel", "10.0.0.1:26379",
                          "--primary", "earshot", "--user", "bus", "--password-file", "-", "-o", "c.toml",
                          input=b"pass word\n")
        self.assertEqual(program.status, 0, program.describe())
        self.assertIn('user = "bus"\npassword = "pass word"\n', (bus.folder / "c.toml").read_text())

    def test_wrong_options_end_with_64(self):
        bus = Bus(workers=1)
        for words in (["a b", "--node", "10.0.0.1:1", "--server", "10.0.0.1:1"],
                      ["a", "--node", "a host:1", "--server", "10.0.0.1:1"], ["a", "--node", "host", "--server", "10.0.0.1:1"],
                      ["a", "--node", "10.0.0.1:1"], ["a", "--node", "10.0.0.1:1", "--server", "a host:1"],
                      ["a", "--server", "10.0.0.1:1"], ["a", "--nodes", "10.0.0.1"], ["a", "--nodes", "10.0.0.1,", "--with-redis"],
                      ["a", "--nodes", "10.0.0.1", "--node", "10.0.0.1:1", "--with-redis"],
                      ["a", "--node", "10.0.0.1:1", "--with-redis"], ["a", "--nodes", "10.0.0.1,10.0.0.2", "--with-redis"],
                      ["a", "--nodes", "10.0.0.1,10.0.0.1:5767,10.0.0.3", "--with-redis"],
                      ["a", "--nodes", "10.0.0.1", "--with-redis", "--server", "10.0.0.1:1"],
                      ["a", "--node", "10.0.0.1:1", "--sentinel", "10.0.0.1:1"],
                      ["a", "--node", "10.0.0.1:1", "--server", "10.0.0.1:1", "--user", "u"]):
            with self.subTest(words=words):
                self.assertEqual(bus.run("cluster", "new", *words).status, 64)

    def test_the_configuration_names_the_file(self):
        bus = ClusterBus(workers=1)
        bus._options = ["--workers", 1, "--config", bus.folder / "config.toml"]
        (bus.folder / "config.toml").write_text('cluster = "cluster.toml"\n')
        with bus:
            bus.await_puller(bus.client())
            listed = bus.run("config", "--config", str(bus.folder / "config.toml"))
            self.assertIn(f"{bus.folder}/cluster.toml", listed.stdout.decode())
