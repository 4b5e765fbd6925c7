"""Origin that sends bytes chosen by the test, plain or over TLS, and ends a connection as the test requires.

Each connection has a thread that runs the test's function with a `Connection`.
"""

import queue
import socket
import ssl
import threading


class Connection:
    """Accepted connection; `number` counts from 1."""

    def __init__(self, stream, number):
        self.stream = stream
        self.number = number

    def request(self):
        """Returns the target of the next request; None at the end of the connection."""
        head = self.head()
        return head and head.split(" ")[1]

    def head(self):
        """Returns the head of the next request; None at the end of the connection."""
        received = b""
        while not received.endswith(b"\r\n\r\n"):
            try:
                data = self.stream.recv(65536)
            except OSError:
                return None
            if not data:
                return None
            received += data
        return received.decode()

    def send(self, *pieces):
        """Sends the pieces together, each in its own TLS record."""
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        for piece in pieces:
            self.stream.sendall(piece)
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)

    def close_tls(self):
        """Sends close_notify and awaits the client's."""
        try:
            self.stream.unwrap()
        except OSError:
            pass

    def is_closed(self, timeout=60):
        """Returns whether the client closes the connection in time."""
        self.stream.settimeout(timeout)
        try:
            while self.stream.recv(65536):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True


class ScriptedOrigin:
    """`with ScriptedOrigin(script) as origin:`. `certificate`: paths of a certificate and its key, for TLS; `protocols`:
    protocols that it offers in ALPN."""

    def __init__(self, script, certificate=None, protocols=()):
        self._script = script
        self._context = None
        if certificate:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(*certificate)
            if protocols:
                self._context.set_alpn_protocols(list(protocols))
        self._listener = socket.create_server(("127.0.0.1", 0))
        scheme = "https" if certificate else "http"
        self.url = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        self.faults = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._streams = []

    @property
    def accepted(self):
        """Returns the number of accepted connections."""
        with self._lock:
            return len(self._streams)

    def __enter__(self):
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()
        return self

    def __exit__(self, *_):
        # Ends a waiting accept(), which close() alone does not. The descriptor is not reused before.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._acceptor.join()
        self._listener.close()
        with self._lock:
            for stream in self._streams:
                stream.close()
        if not self.faults.empty():
            raise self.faults.get()

    def _accept(self):
        while True:
            try:
                stream, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._streams.append(stream)
                number = len(self._streams)
            threading.Thread(target=self._serve, args=(stream, number), daemon=True).start()

    def _serve(self, stream, number):
        try:
            if self._context:
                stream = self._context.wrap_socket(stream, server_side=True, suppress_ragged_eofs=True)
        except OSError:
            stream.close()
            return
        try:
            self._script(Connection(stream, number))
        except OSError:
            pass
        except BaseException as error:  # Reported to the test, which runs in another thread.
            self.faults.put(error)
        finally:
            stream.close()
