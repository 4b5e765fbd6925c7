"""One connection: a DEALER and its monitor, thrown away as a whole, so that nothing said over the old one survives."""

from __future__ import annotations

import pathlib

import zmq
from zmq.utils.monitor import recv_monitor_message

RECONNECT_MS, LONGEST_RECONNECT_MS = 10, 500
"""The pause between two looks for a broker, the first and the longest."""
LINGER_MS = 1000
"""How long what was said last may take to leave after `close`."""


class Link:
    """Never blocks. Both descriptors are edge-triggered: after each event, say `look`, and after each `send` too, read
    all."""

    def __init__(self, folder: pathlib.Path, endpoint: str = "bus") -> None:
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        # What is wanted is kept by the core anyway, and what arrives is bounded by the window.
        for option, value in ((zmq.SNDHWM, 0), (zmq.RCVHWM, 0), (zmq.LINGER, 0), (zmq.RECONNECT_IVL, RECONNECT_MS),
                              (zmq.RECONNECT_IVL_MAX, LONGEST_RECONNECT_MS)):
            self._socket.setsockopt(option, value)
        self._monitor: zmq.Socket[bytes] = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._broken = False
        # To find nothing costs more than to find a message.
        self._may_receive = self._may_be_broken = True
        self._socket.connect(f"ipc://{folder}/{endpoint}")
        self.descriptors = (self._descriptor(self._socket), self._descriptor(self._monitor))

    @staticmethod
    def _descriptor(socket: zmq.Socket[bytes]) -> int:
        return int(socket.getsockopt(zmq.FD))

    def send(self, head: bytes, body: bytes | None = None) -> None:
        """Hands a message to libzmq; it waits there while no broker is connected."""
        self._may_receive = True
        if body is None:
            self._socket.send(head, zmq.DONTWAIT)
        else:
            self._socket.send_multipart([head, body], zmq.DONTWAIT)

    def look(self) -> None:
        """There may be something: a descriptor told."""
        self._may_receive = self._may_be_broken = True

    def receive(self) -> list[bytes] | None:
        """The next message; None if there is none now."""
        if not self._may_receive:
            return None
        try:
            frames = [self._socket.recv(zmq.DONTWAIT)]
        except zmq.Again:
            self._may_receive = False
            return None
        while self._socket.getsockopt(zmq.RCVMORE):
            frames.append(self._socket.recv())
        return frames

    def is_broken(self) -> bool:
        """Whether the broker closed the connection. To be asked when there was nothing to receive."""
        while self._may_be_broken and int(self._monitor.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            recv_monitor_message(self._monitor)
            self._broken = True
        self._may_be_broken = False
        return self._broken

    def close(self, linger: bool = False) -> None:
        """Ends it. `linger`: what was said last may still leave."""
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(LINGER_MS if linger else 0)
