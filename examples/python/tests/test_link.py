"""Tests of the connection, with a broker played by the test."""

import pathlib
import select
import socket
import tempfile
import threading
import unittest
from unittest import mock

import fixture  # noqa: F401 (it sets the paths)
from earshot_bus._link import Link
from earshot_bus._zmtp import OPENING, Decoder, encode
from played import READY
from support.zmtp import GREETING

LARGE = bytes(100_000)


class LinkTests(unittest.TestCase):
    def setUp(self):
        path = str(pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()), "bus"))
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            self.link = Link(path)
            self.addCleanup(self.link.close)
            self.peer = self.enterContext(listener.accept()[0])
        self.peer.settimeout(60)
        self.decoder = Decoder()

    def greet(self):
        self.peer.sendall(GREETING + READY)
        while not self.link._decoder.is_open:
            self.receive()

    def receive(self):
        self.assertTrue(select.select([self.link.descriptor], [], [], 60)[0], "nothing comes")
        return self.link.receive()

    def peer_receive(self, count):
        """Receives this number of messages, or fewer if the connection ends."""
        found = []
        while len(found) < count and (data := self.peer.recv(1 << 16)):
            found += self.decoder.feed(data)
        return found

    def fill(self):
        """Sends more than the socket's buffer holds. Returns the number of messages."""
        count = 0
        while not self.link.is_full:
            self.link.send(b"head", LARGE)
            self.link.flush()
            count += 1
        return count

    def test_nothing_is_said_before_the_broker_is_ready(self):
        self.link.send(b"first")
        self.link.flush()
        self.assertEqual(self.peer.recv(1000), OPENING)
        self.peer.sendall(GREETING)
        self.receive()
        self.link.flush()
        self.assertEqual(self.link.waiting, 1)
        self.peer.sendall(READY)
        self.receive()
        self.link.flush()
        self.assertEqual(self.peer.recv(1000), encode(b"first"))

    def test_what_the_kernel_does_not_take_waits_and_leaves_in_order(self):
        self.greet()
        count = self.fill()
        self.link.send(b"last")
        self.assertFalse(self.link.flush(), "it is full as before")
        found = []
        while self.link.is_full:
            found += self.peer_receive(1)
            self.link.flush()
        found += self.peer_receive(count + 1 - len(found))
        self.assertEqual(found, [[b"head", LARGE]] * count + [[b"last"]])

    def test_what_was_said_last_leaves_after_the_end_and_holds_up_nobody(self):
        self.greet()
        count = self.fill()
        self.link.send(b"last")
        # On a busy machine this thread may not run within the usual second.
        self.enterContext(mock.patch("earshot_bus._link.LINGER", 60))
        self.link.close(linger=True)
        self.assertEqual(self.peer_receive(count + 2), [[b"head", LARGE]] * count + [[b"last"]])
        for thread in threading.enumerate():
            if thread.name == "earshot-linger":
                thread.join()

    def test_a_broker_that_takes_nothing_is_not_waited_for_for_ever(self):
        self.greet()
        self.fill()
        self.link.close(linger=True)
        # It may have ended already.
        lingering = [thread for thread in threading.enumerate() if thread.name == "earshot-linger"]
        for thread in lingering:
            thread.join(60)
        self.assertFalse(any(thread.is_alive() for thread in lingering))

    def test_the_last_words_come_before_the_end(self):
        self.greet()
        self.peer.sendall(encode(b"one", LARGE) + encode(b"two"))
        self.peer.close()
        self.link.send(b"nobody hears it")
        self.link.flush()
        found = []
        while not self.link.is_broken:
            found += self.receive()
        self.assertEqual(found, [[b"one", LARGE], [b"two"]])
        self.assertFalse(self.link.is_full)

    def test_a_broker_that_breaks_the_protocol_is_left(self):
        self.greet()
        self.peer.sendall(b"\xff" * 9)
        with self.assertLogs("earshot_bus", "WARNING"):
            self.assertEqual(self.receive(), [])
        self.assertTrue(self.link.is_broken)

    def test_who_pings_and_does_not_read_is_not_answered_without_end(self):
        self.greet()
        self.fill()
        waiting = self.link.waiting
        for _ in range(3):
            self.peer.sendall(b"\x04\x07\x04PING\x00\x00" * 1000)
            self.receive()
        self.assertEqual(self.link.waiting, waiting)
