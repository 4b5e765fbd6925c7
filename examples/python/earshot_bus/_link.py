"""One connection to the broker. A reconnection uses a new object, so that no state of the old connection survives.

It implements ZMTP itself. libzmq puts a thread between socket and program, which costs several times as much as a
message.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
import time

from ._zmtp import OPENING, Decoder, Violation, encode

LINGER = 1.0
"""Maximum time in seconds to flush the last messages after `close`."""
RECEIVE_BYTES = 65_536
"""Size of one read: about 50 small results. A larger buffer would be allocated by the kernel for each read."""

_log = logging.getLogger("earshot_bus")


class Link:
    """Connection that never blocks. Messages wait for the end of the handshake, and for room."""

    def __init__(self, peer: str | socket.socket) -> None:
        """Connects to a path, or uses a connected socket. Raises `OSError` if no process listens on the path, or the
        connection fails."""
        if isinstance(peer, str):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            try:
                self._socket.connect(peer)
            except OSError:
                self._socket.close()
                raise
        else:
            self._socket = peer
            peer.setblocking(False)
        self._decoder = Decoder()
        self._pieces: list[bytes] = []
        """Messages that wait to be sent together."""
        self._leaving = memoryview(OPENING)
        """Bytes to write first."""
        self.is_full = False
        """Whether the socket has no room: call `flush` again when the descriptor is writable."""
        self.is_broken = False
        """Whether the connection has ended."""
        self.descriptor = self._socket.fileno()
        self.flush()

    @property
    def waiting(self) -> int:
        """Number of messages that wait to be sent."""
        return len(self._pieces)

    def send(self, head: bytes, body: bytes | None = None) -> None:
        """Queues a message. `flush` sends it."""
        self._pieces.append(encode(head, body))

    def flush(self) -> bool:
        """Writes queued messages as far as the socket has room. Returns whether `is_full` has changed."""
        was_full = self.is_full
        self.is_full = self._write()
        return self.is_full is not was_full

    def _write(self) -> bool:
        while True:
            if not self._leaving:
                if not self._pieces or not self._decoder.is_open:
                    return False
                self._leaving = memoryview(b"".join(self._pieces))
                self._pieces.clear()
            try:
                sent = self._socket.send(self._leaving, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return True
            except OSError:
                # The last messages of the broker can still be read; the end follows them.
                self._leaving = memoryview(b"")
                self._pieces.clear()
                return False
            self._leaving = self._leaving[sent:]

    def receive(self) -> list[list[bytes]]:
        """Returns the messages of one read. Call it when the descriptor is readable, level-triggered.

        Afterwards messages may be `waiting` to be flushed.
        """
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self.is_broken = True
            return []
        decoder = self._decoder
        try:
            messages = decoder.feed(data)
        except Violation as violation:
            _log.warning("%s", violation)
            self.is_broken = True
            return []
        if decoder.replies:
            # Bounded: a peer that pings and does not read receives no further answers.
            if not self.is_full:
                self._pieces += decoder.replies
            decoder.replies.clear()
        return messages

    def close(self, linger: bool = False) -> None:
        """Closes the connection. `linger`: flushes the last messages first, in a thread that outlives the main one."""
        if linger:
            self.flush()
            if self.is_full:
                threading.Thread(target=self._linger, name="earshot-linger").start()
                return
        self._socket.close()

    def _linger(self) -> None:
        deadline = time.monotonic() + LINGER
        room = select.poll()
        room.register(self._socket, select.POLLOUT)
        while self.is_full and (rest := deadline - time.monotonic()) > 0:
            room.poll(rest * 1000)
            self.flush()
        self._socket.close()
