"""A name server on 127.0.0.1 that knows no name, so that a test of an unknown host asks nobody else."""

import socket
import threading


class NameServer:
    """`with NameServer() as names:` answers NXDOMAIN to every question. `names.address` is HOST:PORT."""

    def __init__(self):
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, name="names", daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._socket.sendto(b"", self._socket.getsockname())
        self._thread.join(10)
        self._socket.close()

    def _serve(self):
        while True:
            question, client = self._socket.recvfrom(4096)
            if not question:
                return
            if len(question) >= 12:
                self._socket.sendto(self._refusal(question), client)

    def _refusal(self, question):
        """RFC 1035, 4.1: the question's identity, "response, recursion available, no such name", the question."""
        end = 12
        while end < len(question) and question[end]:
            end += question[end] + 1
        return question[:2] + b"\x81\x83\x00\x01" + bytes(6) + question[12:end + 5]
