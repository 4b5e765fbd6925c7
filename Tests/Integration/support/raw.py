"""Connections to a bus over raw Unix sockets: cheap enough for thousands.

As a command, `support raw RUNTIME COUNT` starts COUNT processes with one connection each, which send HELLO and then nothing. It
prints `connected` after all received WELCOME, and ends them at the end of its input.
"""

import os
import signal
import socket
import sys

from . import zmtp


class RawClient:
    """One connection. `greeted`: it has sent the handshake of ZMTP and HELLO; otherwise it sends nothing."""

    def __init__(self, runtime, greeted=True, name="raw"):
        self._received = bytearray()
        if greeted:
            self._socket = zmtp.connect(f"{runtime}/bus")
            self._socket.settimeout(None)
            self.send(f"HELLO EAR/1\nclient: {name}\n")
        else:
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.connect(f"{runtime}/bus")

    def send(self, *heads):
        """Sends messages in one write."""
        self._socket.sendall(b"".join(zmtp.frame(head.encode()) for head in heads))

    def receive(self):
        """Returns the next frame: a head, or the body after one."""
        return zmtp.read_frame(self._take).decode(errors="replace")

    def close(self):
        self._socket.close()

    def detach(self):
        """Returns the raw socket, for a caller that continues by itself after the messages received so far."""
        return self._socket

    def ends(self, timeout=60):
        """Returns whether the broker closes the connection in time."""
        return zmtp.await_end(self._socket, timeout)

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
    """Child process: connects, reports its WELCOME, and waits for its end."""
    client = RawClient(runtime, name=f"idle-{number}")
    if client.receive().startswith("WELCOME"):
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
