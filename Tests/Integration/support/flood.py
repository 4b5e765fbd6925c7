"""Client in its own process that floods the bus with input other than messages: `support flood RUNTIME KIND`.

It writes as much as the broker accepts, in large pieces, and reads all replies. It prints `flooding` after the broker has
accepted the first 256 KiB. When its input ends, it prints the numbers of bytes `sent` and `received` as a line of JSON.
"""

import json
import select
import socket
import sys

from . import zmtp
from .harness import PYTHON, SUPPORT
from .processes import Program
from .raw import RawClient

PIECE = 1 << 16

KINDS = {
    "PING": zmtp.command(b"PING", b"\x00\x0a"),
    "PING with a context": zmtp.command(b"PING", b"\x00\x0a" + bytes(16)),
    "unknown command": zmtp.command(b"HELLO"),
    "frames of an endless message": zmtp.frame(b"", more=True),
}


class Flood(Program):
    """Running flood of one kind."""

    def __init__(self, bus, kind):
        super().__init__([PYTHON, "-B", SUPPORT, "flood", bus.runtime, kind], bus.environment)

    def await_flooding(self):
        self.await_line("flooding", "stdout")
        return self

    def end(self):
        """Ends the flood. Returns the numbers of bytes `sent` and `received`."""
        self.write(b"")
        line = self.await_line("{", "stdout")
        if self.wait() != 0:
            raise AssertionError(self.describe())
        return json.loads(line)


def main():
    runtime, kind = sys.argv[1:]
    client = RawClient(runtime, name="flood")
    client.receive()
    connection = client.detach()
    connection.setblocking(False)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * PIECE)
    unit = KINDS[kind]
    piece = unit * (PIECE // len(unit))
    sent = received = start = 0
    is_flooding = False
    while True:
        readable, writable, _ = select.select([connection, sys.stdin], [connection], [])
        if sys.stdin in readable:
            break
        if readable:
            received += len(connection.recv(1 << 20))
        if writable:
            count = connection.send(memoryview(piece)[start:])
            start = (start + count) % len(piece)
            sent += count
        if not is_flooding and sent >= 4 * PIECE:
            print("flooding", flush=True)
            is_flooding = True
    print(json.dumps({"sent": sent, "received": received}), flush=True)


if __name__ == "__main__":
    main()
