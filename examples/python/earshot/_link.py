"""One connection to the broker, thrown away as a whole, so that nothing said over the old one survives.

It speaks ZeroMQ's protocol itself. libzmq has a thread between socket and program, and that costs several times what a
message does.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
import time

from ._zmtp import OPENING, Decoder, Violation, encode

LINGER = 1.0
"""For how many seconds what was said last may leave after `close`."""
RECEIVE_BYTES = 65_536
"""Taken at once: some 50 small results. For more at a time the memory is asked of the kernel each time."""

_log = logging.getLogger("earshot")


class Link:
    """Never blocks. What is sent waits here until the broker has greeted, and while the kernel takes no more."""

    def __init__(self, path: str) -> None:
        """Connects. Raises `OSError` if nobody listens there, or it cannot be."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise
        self._decoder = Decoder()
        self._pieces: list[bytes] = []
        """Messages that wait to be sent in one."""
        self._leaving = memoryview(OPENING)
        """What the kernel is to take first."""
        self.is_full = False
        """Whether the kernel takes no more now: `flush` again when the descriptor can be written."""
        self.is_broken = False
        """Whether it has ended: nothing more will come."""
        self.descriptor = self._socket.fileno()
        self.flush()

    @property
    def waiting(self) -> int:
        """How many messages wait to be sent."""
        return len(self._pieces)

    def send(self, head: bytes, body: bytes | None = None) -> None:
        """Puts a message behind those that wait. `flush` sends them."""
        self._pieces.append(encode(head, body))

    def flush(self) -> bool:
        """Gives the kernel what waits, as far as it takes that. Returns whether `is_full` has changed."""
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
                # What the broker said last can still be received, and then the end.
                self._leaving = memoryview(b"")
                self._pieces.clear()
                return False
            self._leaving = self._leaving[sent:]

    def receive(self) -> list[list[bytes]]:
        """The messages that one look brings. To be called when the descriptor can be read, which is told again while
        there is more. Then something may be `waiting` to be flushed."""
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
            # Who pings and does not read is not answered without end.
            if not self.is_full:
                self._pieces += decoder.replies
            decoder.replies.clear()
        return messages

    def close(self, linger: bool = False) -> None:
        """Ends it. `linger`: what was said last may still leave, and the process does not end before that."""
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
