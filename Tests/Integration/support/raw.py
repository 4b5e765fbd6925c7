"""Connections to a bus over bare Unix sockets, ZMTP 3.0 by hand: cheap enough for thousands.

As a command, `support raw RUNTIME COUNT` makes COUNT processes with a connection each, which say HELLO and then nothing. It says
`connected` when all were welcomed, and ends them when its input ends.
"""

import os
import signal
import socket
import sys

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY_BODY = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x00"
READY = bytes([4, len(READY_BODY)]) + READY_BODY


class RawClient:
    """One connection. `greeted`: after the handshake of ZMTP and HELLO; else it says nothing at all."""

    def __init__(self, runtime, greeted=True, name="raw"):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._received = bytearray()
        self._socket.connect(f"{runtime}/bus")
        if greeted:
            self._socket.sendall(GREETING + READY)
            self._take(64)
            self._frame()
            self.say(f"HELLO EAR/1\nclient: {name}\n")

    def say(self, *heads):
        """Sends messages, all in one write."""
        self._socket.sendall(b"".join(bytes([0, len(data)]) + data for data in map(str.encode, heads)))

    def hear(self):
        """The next frame: a head, or the body after one."""
        return self._frame().decode(errors="replace")

    def close(self):
        self._socket.close()

    def detach(self):
        """The bare socket, for a caller that goes on by itself after the messages heard so far."""
        return self._socket

    def ends(self, timeout=10):
        """Whether the broker closes the connection in time."""
        self._socket.settimeout(timeout)
        try:
            while self._socket.recv(4096):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        return True

    def _frame(self):
        flags, = self._take(1)
        length = int.from_bytes(self._take(8 if flags & 2 else 1), "big")
        return self._take(length)

    def _take(self, count):
        while len(self._received) < count:
            data = self._socket.recv(4096)
            if not data:
                raise ConnectionError("the broker closed the connection")
            self._received += data
        taken = bytes(self._received[:count])
        del self._received[:count]
        return taken


def idle(runtime, number, welcomed):
    """A child: connects, tells that it was welcomed, and waits for its end."""
    client = RawClient(runtime, name=f"idle-{number}")
    if client.hear().startswith("WELCOME"):
        os.write(welcomed, b".")
    signal.pause()


def main():
    runtime, count = sys.argv[1], int(sys.argv[2])
    reader, writer = os.pipe()
    children = []
    for number in range(count):
        pid = os.fork()
        if pid == 0:
            try:
                idle(runtime, number, writer)
            finally:
                os._exit(1)
        children.append(pid)
    os.close(writer)
    answers = 0
    while answers < count and (data := os.read(reader, 4096)):
        answers += len(data)
    print("connected" if answers == count else f"only {answers}", flush=True)
    sys.stdin.read()
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
