"""Codec of ZMTP 3.0 with the mechanism NULL (rfc.zeromq.org/spec/23), for a DEALER. Pure: no I/O."""

from __future__ import annotations

import struct

FRAME_BYTES = 1 << 30
"""Maximum size of a received frame in bytes. A body in memory has up to 16 MiB, an answer about a million requests
about 100 MiB."""
COMMAND_BYTES = 4096
GREETING_BYTES = 64

_MORE, _LONG, _COMMAND = 1, 2, 4
_SHORT_HEADERS = tuple(bytes((0, count)) for count in range(256))
_LONG_HEADER = struct.Struct(">BQ")
_LENGTH = struct.Struct(">Q")
_SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
_MECHANISM = b"NULL".ljust(20, b"\0")


class Violation(ValueError):
    """The peer violated the protocol, or refused the connection."""


def _command(name: bytes, data: bytes) -> bytes:
    return bytes((_COMMAND, 1 + len(name) + len(data), len(name))) + name + data


OPENING = (_SIGNATURE + b"\x03\x00" + _MECHANISM + bytes(32)
           + _command(b"READY", b"\x0bSocket-Type\x00\x00\x00\x06DEALER"))
"""First bytes of a connection. Messages must wait for the peer's READY: see `Decoder.is_open`."""


def encode(head: bytes, body: bytes | None = None) -> bytes:
    """Encodes a message of one or two frames."""
    count = len(head)
    if body is None:
        return (_SHORT_HEADERS[count] if count < 256 else _LONG_HEADER.pack(_LONG, count)) + head
    return b"".join((_LONG_HEADER.pack(_LONG | _MORE, count), head, _LONG_HEADER.pack(_LONG, len(body)), body))


class Decoder:
    """Incremental decoder of one connection. Its memory depends on the bytes received, not on announced lengths."""

    def __init__(self) -> None:
        self._is_greeted = False
        self.is_open = False
        """Whether the peer's READY has arrived, so that messages may be sent."""
        self.replies: list[bytes] = []
        """Answers to PING commands (version 3.1), which the caller sends and removes."""
        self._held = bytearray()
        """Bytes of an incomplete frame."""
        self._needed = 0
        """Number of bytes needed before the next attempt to decode."""
        self._message: list[bytes] = []

    def feed(self, data: bytes) -> list[list[bytes]]:
        """Returns the messages completed by `data`, the first two frames of each. Raises `Violation`."""
        if self._held:
            self._held += data
            if len(self._held) < self._needed:
                return []
            data = bytes(self._held)
            self._held.clear()
        at = 0
        if not self._is_greeted:
            if len(data) < GREETING_BYTES:
                return self._hold(data, GREETING_BYTES)
            self._greet(data)
            at = GREETING_BYTES
        messages: list[list[bytes]] = []
        end, message = len(data), self._message
        while end - at >= 2:
            flags = data[at]
            if flags & _LONG:
                if end - at < 9:
                    break
                count, start = _LENGTH.unpack_from(data, at + 1)[0], at + 9
                if count > FRAME_BYTES:
                    raise Violation(f"the broker sent a frame of {count} bytes; {FRAME_BYTES} are the most")
            else:
                count, start = data[at + 1], at + 2
            if flags & ~(_MORE | _LONG) or not self.is_open:
                self._check(flags, count)
            stop = start + count
            if stop > end:
                self._hold(data[at:], stop - at)
                return messages
            at = stop
            if flags & _COMMAND:
                self._obey(data[start:stop])
                continue
            if len(message) < 2:
                message.append(data[start:stop])
            if not flags & _MORE:
                messages.append(message)
                message = self._message = []
        if at < end:
            self._hold(data[at:], 0)
        return messages

    def _hold(self, data: bytes, needed: int) -> list[list[bytes]]:
        self._held += data
        self._needed = needed
        return []

    def _greet(self, data: bytes) -> None:
        if data[0] != 0xFF or not data[9] & 1:
            raise Violation("the peer does not speak ZMTP")
        if data[10] < 3 or data[12:32] != _MECHANISM:
            raise Violation("the peer speaks another ZMTP than 3.0 with the mechanism NULL")
        self._is_greeted = True

    def _check(self, flags: int, count: int) -> None:
        """Checks the header of a command, and of any frame before READY."""
        if flags > (_MORE | _LONG | _COMMAND) or flags & _MORE and flags & _COMMAND:
            raise Violation("the broker sent a frame with unknown flags")
        if not flags & _COMMAND:
            raise Violation("the broker sent a message before READY")
        if count > COMMAND_BYTES:
            raise Violation(f"the broker sent a command of {count} bytes; {COMMAND_BYTES} are the most")

    def _obey(self, command: bytes) -> None:
        data_at = 1 + command[0] if command else 0
        name, data = command[1:data_at], command[data_at:]
        if name == b"READY" and not self.is_open:
            self.is_open = True
        elif name == b"ERROR":
            raise Violation("the broker refused the connection")
        elif not self.is_open:
            raise Violation("the broker sent another command than READY")
        elif name == b"PING":
            if not 2 <= len(data) <= 18:
                raise Violation("the broker sent a malformed PING")
            # A time to live of two bytes, and a context of up to 16 bytes, which the PONG repeats.
            self.replies.append(_command(b"PONG", data[2:]))
