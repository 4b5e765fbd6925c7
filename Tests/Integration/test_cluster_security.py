"""Wrong secrets, keys and engines: they are refused with a clear reason, and each request still ends."""

import signal
import types
import unittest

import zmq

from support.nodes import Cluster, SharedFile
from support.engine import Engine
from support.false_engine import FalseEngine
from support.harness import TestCase
from support.network import RemoteClient
from support.origin import Origin, body
from support.processes import eventually

#: Replies of a program that is not Redis, of one that answers without a question, and of one that promises too much.
MALFORMED = [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"+OK\r\n", b"*1000000000\r\n"]


class EngineSecurityTests(TestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin())

    def assertFetchesAlone(self, nodes):
        """Nodes that are no members fetch by themselves in the end."""
        clients = [node.client() for node in nodes]
        for number, client in enumerate(clients):
            client.fetch("h", 1, f"{self.origin.url}/bytes/1000?n={number}")
        for client in clients:
            self.assertResult(client.terminal(30), body(1_000))

    def assertReports(self, node, part, needs_operator):
        """Log and status name the reason why a node is no member."""
        node.program.await_line(part)
        # A failed attempt to connect may follow.
        eventually(lambda: part in node.cluster().get("reason", ""), lambda: f"{part}: {node.cluster()}")
        self.assertEqual(node.cluster()["needs-operator"], needs_operator)
        shown = node.run("cluster").stdout.decode()
        self.assertIn(part, shown)

    def test_a_node_with_another_secret_key_pair_or_password_is_refused_with_the_reason(self):
        with Engine(password="right") as engine, Cluster(engine, nodes=1) as cluster:
            secret = cluster.add(changes={"secret": "f" * 64})
            password = cluster.add(changes={"password": "wrong"})
            other = SharedFile(engine.options)
            self.addCleanup(other.remove)
            pair = cluster.add(changes={"public_key": other.value("public-key"), "secret_key": other.value("secret-key")})
            self.assertReports(secret, "other nodes of the cluster have another secret", True)
            # Its bodies could not be read, nor could it read those of others.
            self.assertReports(pair, "other nodes of the cluster have another secret or key pair", True)
            self.assertReports(password, "the engine refused user or password", True)
            # The wrong secret reads nothing: it has the same name and the same engine.
            cluster[0].await_members(1)
            self.assertFetchesAlone(cluster)

    def test_a_new_password_of_the_engine_is_read_by_SIGHUP(self):
        with Engine(password="right") as engine, Cluster(engine, nodes=1) as cluster:
            node = cluster[0]
            engine.execute("CONFIG", "SET", "requirepass", "other")
            engine.server.password = "other"
            for kind in ("normal", "pubsub"):
                engine.execute("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
            self.assertReports(node, "the engine refused user or password", True)
            node.file.write_text(node.file.read_text().replace('password = "right"', 'password = "other"'))
            node.program.signal(signal.SIGHUP)
            node.await_mode("member")

    def test_an_engine_may_have_a_host_name(self):
        with Engine() as engine:
            named = types.SimpleNamespace(options=["--server", f"localhost:{engine.server.port}"])
            with Cluster(named, nodes=2) as cluster:
                client = cluster[0].client()
                client.fetch("h", 1, f"{self.origin.url}/bytes/1000")
                self.assertResult(client.terminal(30), body(1_000))

    def test_an_engine_that_answers_nonsense_or_hangs_costs_no_request(self):
        false = [self.enterContext(FalseEngine(reply)) for reply in [None, *MALFORMED]]
        nodes = []
        for engine in false:
            nodes += self.enterContext(Cluster(engine, nodes=1, is_joined=False, workers=1)).nodes
        self.assertFetchesAlone(nodes)
        for node in nodes:
            self.assertNotEqual(node.cluster()["mode"], "member")
            self.assertTrue(node.cluster()["reason"], node.cluster())
            self.assertEqual(node.program.crash_lines, [])


class ForgedEntryTests(TestCase):
    """Somebody else writes into the engine."""

    def test_results_that_no_node_has_written_are_dropped(self):
        origin = self.enterContext(Origin())
        engine = self.enterContext(Engine())
        digest = "ab" * 32
        forged = ["1 r 302 0 - -\nlocation: http://203.0.113.1/", "1 r 200 0 - -", "1 r 404 0 - -", "1 f unknown-host - ", "1 f tls - ",
                  f"1 r 200 3 {digest} -", f"1 r 200 3 {digest} 203.0.113.9:1/{'0' * 32}/7", "x"]
        with Cluster(engine, nodes=1, origin_limit=1) as cluster:
            client = cluster[0].client()
            client.fetch("h", 0, f"{origin.url}/gate/go?bytes=1000")
            origin.await_running(1)
            client.fetch("h", 1, f"{origin.url}/bytes/1000")
            node = cluster[0].cluster()["node"]
            eventually(lambda: engine.flights() == 2, "the engine has both flights")
            key, = (name for name, text in zip(*[iter(engine.execute("HGETALL", f"{engine.PREFIX}f"))] * 2) if text.startswith("q"))
            for result in forged:
                for entry in (result, f"{'0' * 32} 1700000000000000 {result}"):
                    engine.execute("PUBLISH", f"{engine.PREFIX}c:{node}", f"r {key} {len(entry)} {entry}")
            cluster[0].program.await_line("the engine had an entry that no node has written")
            self.assertTrue(any("no node has written" in warning for warning in cluster[0].cluster()["warnings"]))
            origin.open_gate("go")
            for message in client.terminals(2, 30):
                self.assertResult(message, body(1_000))
            self.assertEqual(origin.total, 2)

    def test_a_record_that_no_node_has_written_is_not_fetched(self):
        origin = self.enterContext(Origin())
        engine = self.enterContext(Engine())
        with Cluster(engine, nodes=2, origin_limit=1) as cluster:
            client = cluster[0].client()
            client.fetch("h", 0, f"{origin.url}/gate/go?bytes=1000")
            origin.await_running(1)
            client.fetch("h", 1, f"{origin.url}/bytes/1000")
            eventually(lambda: engine.flights() == 2, "the engine has both flights")
            texts = dict(zip(*[iter(engine.execute("HGETALL", f"{engine.PREFIX}f"))] * 2))
            key = next(name for name, text in texts.items() if text.startswith("q"))
            # Only the second node may take it, whose URL a stranger has changed.
            node = cluster[0].cluster()["node"]
            changed = texts[key].replace("/bytes/1000", "/bytes/1").replace(f"{node},", "")
            self.assertNotIn(node, changed)
            engine.execute("HSET", f"{engine.PREFIX}f", key, changed)
            origin.open_gate("go")
            for message in client.terminals(2, 30):
                self.assertResult(message, body(1_000))
            self.assertEqual(origin.count("/bytes/1"), 0)


class NodeSecurityTests(TestCase):
    """Access to the node gateway."""

    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.engine = self.enterContext(Engine())

    def peer(self, address, key, server_key):
        """Returns a client of a node gateway that has not greeted."""
        bus = types.SimpleNamespace(endpoint=f"tcp://{address}", server_key=server_key, runtime=None)
        peer = RemoteClient(bus, key, hello=False, bodies="pull")
        self.addCleanup(peer.close)
        return peer

    def test_a_peer_without_the_key_of_the_cluster_gets_nothing(self):
        with Cluster(self.engine, nodes=1) as cluster:
            address = cluster[0].address
            right = cluster.file.value("public-key").encode()
            unknown = self.peer(address, zmq.curve_keypair(), right)
            # libzmq closes the way of a refused peer, which can send nothing from then on.
            unknown.await_event(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
            self.assertIsNone(unknown.receive(0.5))
            blind = self.peer(address, zmq.curve_keypair(), zmq.curve_keypair()[0])
            blind.send("HELLO EAR/1", window=1)
            self.assertIsNone(blind.receive(0.5))
            plain = zmq.Context.instance().socket(zmq.DEALER)
            plain.linger = 0
            self.addCleanup(plain.close)
            plain.connect(f"tcp://{address}")
            plain.send(b"HELLO EAR/1\nwindow: 1\n")
            self.assertFalse(plain.poll(500))

    def test_a_peer_with_the_key_of_the_cluster_reads_bodies_and_requests_nothing_else(self):
        with Cluster(self.engine, nodes=1) as cluster:
            keys = tuple(cluster.file.value(f"{kind}-key").encode() for kind in ("public", "secret"))
            peer = self.peer(cluster[0].address, keys, keys[0])
            peer.hello()
            address = f"earshot-node://{cluster[0].address}/{'0' * 32}/{'1' * 16}"
            urls = [f"{self.origin.url}/bytes/10", "ftp://127.0.0.1/", "file:///etc/passwd", address, address[:-5],
                    "earshot-node://x/y/z"]
            for number, url in enumerate(urls):
                peer.fetch("h", number, url)
            answers = peer.terminals(len(urls))
            self.assertEqual([answer.verb for answer in answers], ["FAILED"] * len(urls), answers)
            self.assertEqual(self.origin.total, 0)
            for line in ("QUERY ledger", "QUERY handlers", "SET origin-limit 1", "REMOVE h2"):
                peer.send(line)
            peer.fetch("h", 99, address)
            while (message := peer.receive()) and not message.is_terminal:
                self.assertNotIn(message.verb, ("CHANGED",), message)


if __name__ == "__main__":
    unittest.main()
