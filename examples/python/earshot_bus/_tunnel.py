"""Connection to a bus on a network: a thread that speaks CURVE by pyzmq at one end, and plain ZMTP to a `Link` at the other.

A `Link` is thus the same over a network, and libzmq's descriptors, which any call may clear, stay in this file.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from ._network import Bus
from ._results import NoBroker
from ._zmtp import FRAME_BYTES, OPENING, Decoder, Violation, encode

if TYPE_CHECKING:
    import zmq

CONNECT_SECONDS = 5.0
"""Timeouts of the tcp connection and of the handshake. Three retransmissions of a lost packet take 7 s."""
GREETING_SECONDS = 15.0
"""Maximum time for connection, handshake and the first message of the bus."""
HEARTBEAT_SECONDS, SILENCE_SECONDS = 5.0, 15.0
"""A peer that vanished without a word is noticed after 20 s. A network that pauses for 5 s keeps its connections."""
MOST_MESSAGES = 256
"""Maximum number of messages between this thread and libzmq's in each direction, and of those read at once."""
LINGER_SECONDS = 1.0
"""Maximum time to send the last messages."""
READ_BYTES = 262_144


def library() -> Any:
    """Returns pyzmq. Raises `NoBroker` if it is missing, or was built without CURVE."""
    try:
        import zmq
    except ImportError:
        raise NoBroker("a bus on a network needs pyzmq: pip install pyzmq, or install the package python3-zmq") from None
    if not zmq.has("curve"):
        raise NoBroker("this pyzmq has no CURVE: install one whose libzmq was built with libsodium")
    return zmq


class Tunnel:
    """One connection. `end` is the socket for a `Link`; it closes with the connection, and then `ending` has the reason."""

    def __init__(self, bus: Bus, attempt: int) -> None:
        """Starts to connect. `attempt`: number that selects one of the addresses of a host name."""
        self._zmq = library()
        self._bus, self._attempt = bus, attempt
        self.end, self._own = socket.socketpair()
        self._own.setblocking(False)
        self.ending = "lost"
        self._is_open = False
        self._decoder = Decoder()
        self._inward = memoryview(b"")
        """Bytes for the link."""
        self._outward: deque[list[bytes]] = deque()
        """Messages for the bus."""
        self._has_left = False
        """Whether the link has closed its end."""
        self._thread = threading.Thread(target=self._run, name="earshot-tunnel", daemon=True)
        self._thread.start()

    def await_end(self) -> None:
        """Lets the program end only after the last messages are sent, or after `LINGER_SECONDS`."""
        threading.Thread(target=self._thread.join, args=(2 * LINGER_SECONDS,), name="earshot-linger").start()

    def abandon(self) -> None:
        """Closes the copy of a forked child, where the thread does not exist."""
        self._own.close()

    # The thread.

    def _run(self) -> None:
        context = self._zmq.Context()
        try:
            with context.socket(self._zmq.DEALER) as dealer:
                monitor = self._prepare(dealer)
                try:
                    dealer.connect(self._address())
                    self._carry(dealer, monitor)
                except (OSError, Violation, self._zmq.ZMQError):
                    if not self._is_open:
                        self.ending = "unreachable"
                dealer.disable_monitor()
                monitor.close(0)
                dealer.linger = int(LINGER_SECONDS * 1000) if self._has_left else 0
        finally:
            with contextlib.suppress(OSError):
                self._own.close()
            context.term()

    def _prepare(self, dealer: zmq.Socket[bytes]) -> zmq.Socket[bytes]:
        zmq = self._zmq
        options = {
            zmq.SNDHWM: MOST_MESSAGES, zmq.RCVHWM: MOST_MESSAGES, zmq.MAXMSGSIZE: FRAME_BYTES,
            zmq.CONNECT_TIMEOUT: CONNECT_SECONDS * 1000, zmq.HANDSHAKE_IVL: CONNECT_SECONDS * 1000,
            zmq.HEARTBEAT_IVL: HEARTBEAT_SECONDS * 1000, zmq.HEARTBEAT_TIMEOUT: SILENCE_SECONDS * 1000,
            # libzmq reports a failed attempt only if it plans another one, an hour later.
            zmq.RECONNECT_IVL: 3_600_000, zmq.IPV6: 1, zmq.LINGER: 0,
        }
        for name, value in options.items():
            dealer.setsockopt(name, int(value))
        dealer.curve_serverkey = self._bus.server_key.encode()
        dealer.curve_publickey = self._bus.public_key.encode()
        dealer.curve_secretkey = self._bus.secret_key.encode()
        monitor: zmq.Socket[bytes] = dealer.get_monitor_socket()
        return monitor

    def _address(self) -> str:
        """Returns one numeric address of the host. libzmq would always take the first one. Raises `OSError`."""
        host = self._bus.host.strip("[]")
        found = socket.getaddrinfo(host, self._bus.port, type=socket.SOCK_STREAM)
        numeric = found[self._attempt % len(found)][4][0]
        return f"tcp://[{numeric}]:{self._bus.port}" if ":" in str(numeric) else f"tcp://{numeric}:{self._bus.port}"

    def _carry(self, dealer: zmq.Socket[bytes], monitor: zmq.Socket[bytes]) -> None:
        """Carries messages until one of the ends closes."""
        zmq = self._zmq
        poller = zmq.Poller()
        poller.register(monitor, zmq.POLLIN)
        deadline: float | None = time.monotonic() + GREETING_SECONDS
        while not (self._has_left and not self._outward):
            reads = zmq.POLLIN if self._is_open and not self._inward else 0
            poller.register(dealer, reads | (zmq.POLLOUT if self._is_open and self._outward else 0))
            events = zmq.POLLIN if len(self._outward) < MOST_MESSAGES and not self._has_left else 0
            poller.register(self._own, events | (zmq.POLLOUT if self._inward else 0))
            rest = None if deadline is None else max(0, deadline - time.monotonic())
            ready = dict(poller.poll(None if rest is None else rest * 1000 + 1))
            if monitor in ready and self._has_ended(monitor):
                # The last messages of the bus may precede its end.
                while self._is_open and (dealer.getsockopt(zmq.EVENTS) & zmq.POLLIN):
                    self._own.settimeout(LINGER_SECONDS)
                    self._own.sendall(bytes(self._inward) + encode(*dealer.recv_multipart()[:2]))
                    self._inward = memoryview(b"")
                return
            if dealer in ready and ready[dealer] & zmq.POLLIN and self._receive(dealer):
                deadline = None
            if self._own.fileno() in ready:
                self._exchange()
            self._send(dealer)
            if deadline is not None and time.monotonic() >= deadline:
                self.ending = "silent" if self._is_open else "unreachable"
                return

    def _has_ended(self, monitor: zmq.Socket[bytes]) -> bool:
        """Handles the events of the connection. Returns whether it has ended."""
        from zmq.utils.monitor import parse_monitor_message
        zmq = self._zmq
        while monitor.getsockopt(zmq.EVENTS) & zmq.POLLIN:
            event = parse_monitor_message(monitor.recv_multipart())
            kind = event["event"]
            if kind == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._is_open = True
                self._inward = memoryview(OPENING)
            elif kind == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                self.ending = "refused" if event["value"] == 400 else "handshake-failed"
                return True
            elif kind == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
                self.ending = "handshake-invalid"
                return True
            elif kind == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
                self.ending = "handshake-failed"
                return True
            elif kind == zmq.EVENT_DISCONNECTED:
                self.ending = "lost" if self._is_open else "handshake-failed"
                return True
            elif kind in (zmq.EVENT_CLOSED, zmq.EVENT_CONNECT_RETRIED) and not self._is_open:
                self.ending = "unreachable"
                return True
        return False

    def _receive(self, dealer: zmq.Socket[bytes]) -> bool:
        """Takes messages for the link. Returns whether there were any."""
        pieces = []
        size = 0
        while size < READ_BYTES and len(pieces) < MOST_MESSAGES:
            try:
                pieces.append(encode(*dealer.recv_multipart(self._zmq.DONTWAIT)[:2]))
            except self._zmq.Again:
                break
            size += len(pieces[-1])
        self._inward = memoryview(b"".join(pieces))
        return bool(pieces)

    def _exchange(self) -> None:
        """Reads from the link and writes to it, as far as there is room."""
        with contextlib.suppress(BlockingIOError):
            if self._inward:
                self._inward = self._inward[self._own.send(self._inward, socket.MSG_NOSIGNAL):]
        with contextlib.suppress(BlockingIOError):
            if len(self._outward) < MOST_MESSAGES:
                data = self._own.recv(READ_BYTES)
                self._has_left = not data
                self._outward.extend(self._decoder.feed(data) if data else ())

    def _send(self, dealer: zmq.Socket[bytes]) -> None:
        """Sends messages as far as libzmq takes them. Before the handshake none."""
        if not self._is_open and self._has_left:
            self._outward.clear()
        while self._is_open and self._outward:
            try:
                dealer.send_multipart(self._outward[0], self._zmq.DONTWAIT)
            except self._zmq.Again:
                return
            self._outward.popleft()
