"""ZeroMQ's protocol, version 3.0 with the mechanism NULL (rfc.zeromq.org/spec/23), as a DEALER speaks it. Pure: bytes
to messages and back."""

from __future__ import annotations

import struct

FRAME_BYTES = 1 << 30
"""The longest frame that is taken: a body in memory has 16 MiB, an answer about a million requests some hundred."""
COMMAND_BYTES = 4096
GREETING_BYTES = 64

_MORE, _LONG, _COMMAND = 1, 2, 4
_SHORT_HEADERS = tuple(bytes((0, count)) for count in range(256))
_LONG_HEADER = struct.Struct(">BQ")
_LENGTH = struct.Struct(">Q")
_SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
_MECHANISM = b"NULL".ljust(20, b"\0")


class Violation(ValueError):
    """What is at the other end does not keep to the protocol, or has told that it ends it."""


def _command(name: bytes, data: bytes) -> bytes:
    return bytes((_COMMAND, 1 + len(name) + len(data), len(name))) + name + data


OPENING = (_SIGNATURE + b"\x03\x00" + _MECHANISM + bytes(32)
           + _command(b"READY", b"\x0bSocket-Type\x00\x00\x00\x06DEALER"))
"""What is said first. Nothing else may be until the other end has said its own: see `Decoder.is_open`."""


def encode(head: bytes, body: bytes | None = None) -> bytes:
    """A message."""
    count = len(head)
    if body is None:
        return (_SHORT_HEADERS[count] if count < 256 else _LONG_HEADER.pack(_LONG, count)) + head
    return b"".join((_LONG_HEADER.pack(_LONG | _MORE, count), head, _LONG_HEADER.pack(_LONG, len(body)), body))


class Decoder:
    """What comes over one connection, however it is cut. It has memory for what came, not for what a length says."""

    def __init__(self) -> None:
        self._is_greeted = False
        self.is_open = False
        """Whether the other end's READY has come, so that messages may be sent."""
        self.replies: list[bytes] = []
        """Answers to PING, which is of version 3.1: whoever sends takes them out."""
        self._held = bytearray()
        """What came of a frame that is not whole."""
        self._needed = 0
        """Bytes to be held before it is worth while to look again."""
        self._message: list[bytes] = []

    def feed(self, data: bytes) -> list[list[bytes]]:
        """The messages that are whole with what came now: the first two frames of each. Raises `Violation`."""
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
            raise Violation("what listens there does not speak ZMTP")
        if data[10] < 3 or data[12:32] != _MECHANISM:
            raise Violation("what listens there speaks another ZMTP than 3.0 with the mechanism NULL")
        self._is_greeted = True

    def _check(self, flags: int, count: int) -> None:
        """The header of a command, or of what must not be."""
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
                raise Violation("the broker sent a PING that is none")
            # Two bytes of time to live, and a context of up to 16, which is said again.
            self.replies.append(_command(b"PONG", data[2:]))
