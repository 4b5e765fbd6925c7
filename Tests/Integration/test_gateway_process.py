"""Connections of a gateway's process to the broker, as one makes them that executes foreign code. The tests play the gateway."""

import itertools
import os
import shutil
import signal
import subprocess
import sys

from support import zmtp
from support.client import Client
from support.harness import Commands, TestCase, temporary_folder

# Connects to a path and sends its standard input in one piece.
SENDER = """
import socket, sys
content = sys.stdin.buffer.read()
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.sendall(content)
"""


class GatewayProcessTests(TestCase):
    def setUp(self):
        self.folder = temporary_folder()
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.commands = Commands(self.folder / "run", self.folder)

    def start(self, gateway):
        """Starts a broker that knows a process as a gateway."""
        broker = self.commands.start(
            "broker", "--spool", self.folder / "spool", "--no-cache", "--no-durable", "--ready-fd", "1",
            f"--gateway-pid={gateway}")
        self.addCleanup(broker.signal, signal.SIGKILL)
        broker.await_line("ready", "stdout")
        return broker

    def client(self, **options):
        return self.enterContext(Client(self.folder / "run", **options))

    def test_no_session_of_its_process_is_the_administrator(self):
        self.start(os.getpid())
        principals = (None, "key:laptop", "node:shop", "uid:0", f"uid:{os.getuid()}")
        proofs = (None, "0" * 64)
        leases = (None, 60)
        kinds = list(itertools.product(principals, proofs, leases))
        self.assertEqual(len(kinds), 20)
        for principal, proof, lease in kinds:
            client = self.client(hello=False)
            fields = {"client": "c", "principal": principal, "proof": proof, "lease": lease}
            client.send("HELLO EAR/1", **{name: value for name, value in fields.items() if value is not None})
            self.assertIn(client.expect("ERROR").operands[0], ("not-authorized", "bad-message"), fields)
            for line in ("SET origin-limit 3", "QUERY settings", "SUBSCRIBE h"):
                client.send(line)
                self.assertEqual(client.expect("ERROR").operands, ["hello-required"], fields)

    def test_a_connection_that_waits_longer_than_its_process_lives_is_not_the_administrators(self):
        bus = self.folder / "run" / "bus"
        sender = subprocess.Popen([sys.executable, "-c", SENDER, bus], stdin=subprocess.PIPE)
        self.addCleanup(sender.kill)
        broker = self.start(sender.pid)
        client = self.client()
        before = client.settings()["origin-limit"][0]
        self.assertNotEqual(before, "3")
        broker.signal(signal.SIGSTOP)
        sender.communicate(
            zmtp.GREETING + zmtp.ready(b"DEALER") + zmtp.frame(b"HELLO EAR/1\nwindow: 8\n")
            + zmtp.frame(b"SET origin-limit 3\n"), timeout=60)
        broker.signal(signal.SIGCONT)
        # Accepted after the other connection.
        self.client()
        self.assertEqual(client.settings()["origin-limit"][0], before)
