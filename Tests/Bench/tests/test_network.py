"""The network with delay, and the origin of TLS."""

import os
import pathlib
import socket
import ssl
import sys
import threading
import time
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from bench import network, folders  # noqa: E402
from bench.data import Files  # noqa: E402
from bench.suites import tls  # noqa: E402

HAS_PROGRAM = (folders.PROGRAMS / "delay").exists()
AGAINST = network.reason_against() or (None if HAS_PROGRAM else "the C programs are not built: make -C Tests/Bench/c")


def namespace():
    """Returns the network namespace of this thread."""
    return os.stat("/proc/thread-self/ns/net").st_ino


class NetworkTests(unittest.TestCase):
    @unittest.skipIf(AGAINST, AGAINST)
    def test_a_round_trip_takes_the_delay_and_a_connection_ends_at_the_same_port(self):
        outside = namespace()
        with network.delayed(40), socket.create_server((network.HERE, 0)) as server:
            began = time.monotonic()
            with socket.create_connection((network.THERE, server.getsockname()[1]), timeout=10) as client:
                self.assertGreaterEqual(time.monotonic() - began, 0.04)
                served, address = server.accept()
                with served:
                    self.assertEqual(address[0], network.THERE)
                    began = time.monotonic()
                    echo = threading.Thread(target=lambda: served.sendall(served.recv(10)))
                    echo.start()
                    client.sendall(b"0123456789")
                    self.assertEqual(client.recv(10), b"0123456789")
                    echo.join()
                    self.assertGreaterEqual(time.monotonic() - began, 0.04)
                self.assertNotEqual(namespace(), outside)
        self.assertEqual(namespace(), outside)


class OriginTests(unittest.TestCase):
    def test_each_port_serves_as_it_says_and_resumptions_are_counted(self):
        file = Files(1, 1_024)
        with tls.Origin("127.0.0.1") as origin:
            trust = ssl.create_default_context(cafile=origin.authority)
            for kind in ("http1", "full", "resumed"):
                with urllib.request.urlopen(f"{origin.url_of(kind)}/{file.paths()[0]}", context=trust) as answer:
                    self.assertEqual(answer.read(), file.expected(file.names[0]))
            with self.assertRaisesRegex(urllib.error.HTTPError, "505"):
                urllib.request.urlopen(f"{origin.url_of('http2')}/{file.paths()[0]}", context=trust)
            self.assertEqual(origin.resumptions("full"), (0, 1))
            self.assertEqual(origin.resumptions("http1"), (0, 0))
