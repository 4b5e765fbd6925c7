"""Servers at the engine's address that are no Redis."""

import contextlib
import socket
import threading

from .network import ADDRESS


class FalseEngine:
    """Accepts connections. Answers each received piece with `reply`; none to stay silent. `port`: 0 for a free one."""

    password = None

    def __init__(self, reply=None, port=0):
        self._reply = reply
        self._port = port
        self._connections = []

    def __enter__(self):
        self._listener = socket.create_server((ADDRESS, self._port))
        self.options = ["--server", f"{ADDRESS}:{self._listener.getsockname()[1]}"]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        # Ends accept(), which close() alone does not.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            connection.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with contextlib.suppress(OSError):
            while connection.recv(65536):
                if self._reply:
                    connection.sendall(self._reply)
