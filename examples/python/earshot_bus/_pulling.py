"""Reading of bodies by READ, in sessions with `bodies: pull`. Pure: no sockets, no files."""

from __future__ import annotations

from ._messages import Message, encode

PIECE_BYTES = 256 << 10
"""Maximum number of bytes of one READ."""
OPEN_READS = 4
"""Maximum number of READs of a session without an answer. The broker permits 64."""
NETWORK_READS = 32
"""That number over a network: 8 MiB are on their way. With the usual one a lost packet stops the flow."""


class Pull:
    """Body of one terminal that is being read."""

    def __init__(self, sequence: int, terminal: Message) -> None:
        self.sequence = sequence
        self.terminal = terminal
        self.missing = terminal.number("length") or 0
        """Number of bytes that have not arrived."""
        self.unrequested = [(offset, min(PIECE_BYTES, self.missing - offset))
                            for offset in reversed(range(0, self.missing, PIECE_BYTES))]
        """Offset and length of the parts without a READ, the next one last."""
        self.requested: dict[int, int] = {}
        """Length of each READ without an answer, by its offset."""

    def take(self, offset: int, data: bytes) -> bytes | None:
        """Returns the bytes of an answer; None if it answers no READ. Asks for missing ones again."""
        length = self.requested.pop(offset, None)
        if length is None:
            return None
        data = data[:length]
        self.missing -= len(data)
        if len(data) < length:
            self.unrequested.append((offset + len(data), length - len(data)))
        return data


class Pulls:
    """Bodies of a session that are being read, one after the other."""

    def __init__(self, most: int) -> None:
        self._pulls: dict[int, Pull] = {}
        self._most = most
        """Maximum number of READs without an answer."""

    def begin(self, pull: Pull) -> None:
        self._pulls[pull.sequence] = pull

    def get(self, sequence: int) -> Pull | None:
        return self._pulls.get(sequence)

    def end(self, sequence: int) -> Pull | None:
        return self._pulls.pop(sequence, None)

    def all(self) -> list[Pull]:
        return list(self._pulls.values())

    def clear(self) -> None:
        self._pulls.clear()

    def detach(self) -> None:
        """Notes that the connection has ended: its READs have no answer."""
        for pull in self._pulls.values():
            pull.unrequested += sorted(pull.requested.items(), reverse=True)
            pull.requested.clear()

    def reads(self) -> list[bytes]:
        """Returns the heads of the READs to send now."""
        room = self._most - sum(len(pull.requested) for pull in self._pulls.values())
        heads = []
        for pull in self._pulls.values():
            while room > 0 and pull.unrequested:
                offset, length = pull.unrequested.pop()
                pull.requested[offset] = length
                heads.append(encode("READ", str(pull.sequence), str(offset), str(length)))
                room -= 1
        return heads
