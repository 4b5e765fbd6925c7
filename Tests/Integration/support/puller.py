"""Reads bodies of a client whose HELLO has `bodies: pull`."""

PIECE = 256 << 10
OPEN_READS = 4


def pull(client, terminal, offset=0, until=None, piece=PIECE, take=None):
    """Returns the body of a terminal from an offset on, with as many READs open as allowed. `take` gets each piece instead."""
    number = terminal.fields["seq"]
    end = int(terminal.fields["length"]) if until is None else until
    pieces = {}
    requested = taken = offset
    content = []
    while taken < end:
        while requested < end and requested - taken < OPEN_READS * piece:
            client.send(f"READ {number} {requested} {min(piece, end - requested)}")
            requested += min(piece, end - requested)
        message = client.expect("DATA", number)
        pieces[int(message.operands[1])] = message.inline
        while taken in pieces:
            part = pieces.pop(taken)
            (take or content.append)(part)
            taken += len(part)
    return b"".join(content)


class Follower:
    """Reads the growing body of an open request: one READ after the other, until the terminal."""

    def __init__(self, client, handler, request):
        self.client = client
        self.name = [handler, str(request)]
        self.content = b""
        self.generation = None
        self.starts = []
        self.pieces = []
        self._send_read()

    def _send_read(self):
        fields = {"generation": self.generation} if self.generation else {}
        self.client.send(f"READ {' '.join(self.name)} {len(self.content)} {PIECE}", **fields)

    def take(self, message):
        """Handles a message. Returns whether it was the terminal of the request."""
        if message.is_terminal and message.operands[:2] == self.name:
            return True
        if message.verb != "DATA" or message.operands[:2] != self.name or "error" in message.fields:
            return False
        if message.fields["generation"] != self.generation:
            self.generation, self.content = message.fields["generation"], b""
            self.starts.append(self.generation)
        if int(message.operands[2]) == len(self.content):
            self.content += message.inline or b""
            self.pieces.append(len(message.inline or b""))
        self._send_read()
        return False

    def follow(self, count=None, timeout=60):
        """Reads until `count` bytes are here or, without it, until the terminal. Returns that."""
        while count is None or len(self.content) < count:
            message = self.client.receive(timeout)
            assert message is not None, f"{self.name} has {len(self.content)} bytes"
            if self.take(message):
                return message
        return None

    def finish(self, terminal):
        """Returns the whole body: the part that was read, and the rest by the number of the terminal."""
        start = len(self.content) if terminal.fields.get("generation") == self.generation else 0
        return self.content[:start] + (pull(self.client, terminal, start) if "pull" in terminal.fields else terminal.content())
