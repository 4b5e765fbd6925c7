"""Broker played by the test: its lock, its socket, and its messages."""

import contextlib
import fcntl
import pathlib
import socket
import tempfile

import fixture  # noqa: F401 (it sets the paths)
from earshot_bus import _folders
from earshot_bus._zmtp import Decoder, encode
from support import zmtp

READY = zmtp.ready(b"ROUTER")
WELCOME = b"WELCOME EAR/1\nbroker: 0000000000000001\nwindow: 256\n"


class Played(contextlib.ExitStack):
    """Broker in its own directory, `runtime`. It accepts connections from `listen` on."""

    def __init__(self):
        super().__init__()
        self.runtime = pathlib.Path(self.enter_context(tempfile.TemporaryDirectory()))
        lock = self.enter_context(open(self.runtime / "broker.lock", "wb"))
        fcntl.fcntl(lock, fcntl.F_OFD_SETLK, _folders._FLOCK.pack(fcntl.F_WRLCK, 0, 0, 0, 0))

    def listen(self, endpoint="bus"):
        self._listener = self.enter_context(socket.socket(socket.AF_UNIX))
        self._listener.settimeout(60)
        self._listener.bind(str(self.runtime / endpoint))
        self._listener.listen()

    def accept(self):
        """Accepts the next connection, completes its handshake, and returns its first message."""
        self._peer = self.enter_context(self._listener.accept()[0])
        self._peer.settimeout(60)
        self._peer.sendall(zmtp.GREETING + READY)
        self._decoder = Decoder()
        [message] = self.receive(1)
        return message

    def welcome(self):
        """Accepts a client and sends WELCOME."""
        self.accept()
        self.send(WELCOME)

    def send(self, head, body=None):
        self._peer.sendall(encode(head, body))

    def send_all(self, *heads):
        """Sends messages in one write, so that one read returns all of them."""
        self._peer.sendall(b"".join([encode(head) for head in heads]))

    def receive(self, count):
        """Receives this number of messages."""
        found = []
        while len(found) < count:
            data = self._peer.recv(1 << 16)
            if not data:
                raise AssertionError(f"{len(found)} messages, and then the end")
            found += self._decoder.feed(data)
        return found
