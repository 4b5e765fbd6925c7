"""Proxy on 127.0.0.1 for tests: HTTP (absolute URLs and CONNECT), SOCKS4 or SOCKS5, with a journal of its requests."""

import base64
import socket
import ssl
import threading


class Proxy:
    """`with Proxy() as proxy:`, `Proxy("socks5")`, or `Proxy(certificate=PATHS)` for TLS. Connects to 127.0.0.1 for every host.

    `proxy.requested` contains the first word and target of each request, of SOCKS5 `HOST:PORT`; `proxy.credentials` the received
    user information if `user` (NAME:PASSWORD) is required. `reply`, if given, ends each connection: a status and fields for
    CONNECT, such as `503 Busy\\r\\nRetry-After: 1`, or the number of a SOCKS reply. `replies` does so for the first connections.
    """

    def __init__(self, kind="http", user=None, certificate=None, reply=None, replies=()):
        self.kind = kind
        self._reply = reply
        self._replies = list(replies)
        self._context = None
        if certificate:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(*certificate)
        self.requested = []
        self.credentials = []
        self._user = user
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.url = f"{'https' if certificate else kind}://{self.address}"
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _serve(self):
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._guarded, args=(client,), daemon=True).start()

    def _guarded(self, client):
        try:
            if self._context:
                client = self._context.wrap_socket(client, server_side=True)
            with client:
                {"http": self._http, "socks4": self._socks4, "socks5": self._socks}[self.kind](client)
        except OSError:
            pass  # One of the two closed its connection.

    def _http(self, client):
        data = b""
        while b"\r\n\r\n" not in data:
            part = client.recv(65536)
            if not part:
                return
            data += part
        head, _, rest = data.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        method, target, _ = lines[0].split(" ")
        self.requested.append(f"{method} {target}")
        fields = {}
        for line in lines[1:]:
            name, _, value = line.partition(": ")
            fields[name.lower()] = value
        if self._user:
            given = fields.pop("proxy-authorization", "Basic ").split(" ")[1]
            self.credentials.append(base64.b64decode(given).decode())
            if self.credentials[-1] != self._user:
                client.sendall(b"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm=x\r\nContent-Length: 0\r\n\r\n")
                return
        reply = self._next_reply()
        if method == "CONNECT" and reply:
            client.sendall(f"HTTP/1.1 {reply}\r\nContent-Length: 0\r\n\r\n".encode())
        elif method == "CONNECT":
            port = int(target.rpartition(":")[2])
            client.sendall(b"HTTP/1.1 200 Established\r\nX-Proxy: yes\r\n\r\n")
            self._pipe(client, port, rest)
        else:
            authority, _, path = target.removeprefix("http://").partition("/")
            fields["connection"] = "close"
            request = "\r\n".join([f"{method} /{path} HTTP/1.1"] + [f"{n}: {v}" for n, v in fields.items()])
            self._pipe(client, int(authority.rpartition(":")[2]), request.encode("latin-1") + b"\r\n\r\n" + rest)

    def _socks(self, client):
        """RFC 1928, and RFC 1929 if a user is required."""
        count = self._exactly(client, 2)[1]
        methods = self._exactly(client, count)
        method = 2 if self._user else 0
        client.sendall(bytes([5, method if method in methods else 0xff]))
        if method not in methods:
            return
        if self._user:
            name = self._exactly(client, self._exactly(client, 2)[1])
            self.credentials.append((name + b":" + self._exactly(client, self._exactly(client, 1)[0])).decode())
            if self.credentials[-1] != self._user:
                client.sendall(b"\x01\x01")
                return
            client.sendall(b"\x01\x00")
        kind = self._exactly(client, 4)[3]
        host = socket.inet_ntoa(self._exactly(client, 4)) if kind == 1 else self._exactly(
            client, self._exactly(client, 1)[0]).decode()
        port = int.from_bytes(self._exactly(client, 2), "big")
        self.requested.append(f"{host}:{port}")
        reply = self._next_reply() or 0
        client.sendall(bytes([5, reply, 0, 1]) + bytes(6))
        if not reply:
            self._pipe(client, port, b"")

    def _socks4(self, client):
        """SOCKS 4 with the extension 4A: `requested` has the address, or the name."""
        port = int.from_bytes(self._exactly(client, 4)[2:], "big")
        address = self._exactly(client, 4)
        self._text(client)
        host = self._text(client) if address[:3] == bytes(3) else socket.inet_ntoa(address)
        self.requested.append(f"{host}:{port}")
        reply = self._next_reply() or 90
        client.sendall(bytes([0, reply]) + bytes(6))
        if reply == 90:
            self._pipe(client, port, b"")

    def _next_reply(self):
        return self._replies.pop(0) if self._replies else self._reply

    def _text(self, client):
        """Text up to a NUL."""
        text = b""
        while (byte := self._exactly(client, 1)) != b"\0":
            text += byte
        return text.decode()

    @staticmethod
    def _exactly(client, count):
        data = b""
        while len(data) < count:
            part = client.recv(count - len(data))
            if not part:
                raise OSError("closed")
            data += part
        return data

    @staticmethod
    def _pipe(client, port, first):
        with socket.create_connection(("127.0.0.1", port)) as server:
            server.sendall(first)

            def upwards():
                try:
                    while data := client.recv(65536):
                        server.sendall(data)
                    server.shutdown(socket.SHUT_WR)
                except OSError:
                    pass
            threading.Thread(target=upwards, daemon=True).start()
            while data := server.recv(65536):
                client.sendall(data)
