"""A bus with an HTTP door, and requests through it."""

import http.client
import http.server
import json
import os
import re
import select
import shutil
import socket
import subprocess
import threading
import urllib.parse

import checkout  # noqa: F401
from support.harness import Bus
from support.processes import children, command
from web import UnixConnection

HOST = "127.0.0.1"


class Door(Bus):
    """`with Door() as door:` is a bus with a door at a free port of loopback, `door.port`."""

    def __init__(self, http="0", arguments=(), **options):
        super().__init__(arguments=("--http", http, *arguments), **options)
        self.path = self.api_path = None

    def __enter__(self):
        super().__enter__()
        try:
            # It is ready once the door listens.
            line = next(line for line in self.program.stderr.splitlines() if "the HTTP door listens at" in line)
            self.port, self.api_port = (int((re.findall(end, line) or [0])[0]) for end in (r":(\d+)/(?!v1)", r":(\d+)/v1/"))
        except BaseException:
            self._abort()
            raise
        return self

    @property
    def door(self):
        """Process ID of the door."""
        return next(pid for pid in children(self.supervisor) if "door" in command(pid)[1:2])

    def open_bodies(self):
        """Returns the paths of the files that the door has open."""
        paths = []
        for entry in os.scandir(f"/proc/{self.door}/fd"):
            try:
                paths.append(os.readlink(entry.path))
            except FileNotFoundError:
                pass
        return [path for path in paths if path.startswith(os.fspath(self.spool)) and path != os.fspath(self.spool)]

    @property
    def proxy(self):
        return f"http://{HOST}:{self.port}/"

    def get(self, url, method="GET", body=None, **fields):
        """Returns status, fields and bytes of a response. Names of fields have underscores for hyphens."""
        connection = UnixConnection(self.path) if self.path else http.client.HTTPConnection(HOST, self.port, timeout=60)
        try:
            connection.request(method, url, body, {name.replace("_", "-"): value for name, value in fields.items()})
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def call(self, path, message=None, method=None, **fields):
        """Returns status, fields and the read JSON of a response of the API; bytes of another type."""
        connection = (UnixConnection(self.api_path) if self.api_path
                      else http.client.HTTPConnection(HOST, self.api_port, timeout=120))
        usual = {} if message is None else {"Content-Type": "application/json", "Earshot-API": "1"}
        fields = {**usual, **{name.replace("_", "-"): value for name, value in fields.items()}}
        try:
            connection.request(method or ("GET" if message is None else "POST"), "/v1/" + path,
                               None if message is None else json.dumps(message), fields)
            response = connection.getresponse()
            content = response.read()
            is_json = response.headers.get("Content-Type", "").endswith("json")
            return response.status, response.headers, json.loads(content) if is_json else content
        finally:
            connection.close()

    def open_request(self, text):
        """Sends bytes. Returns the connection."""
        if self.path:
            peer = socket.socket(socket.AF_UNIX)
            peer.connect(os.fspath(self.path))
        else:
            peer = socket.create_connection((HOST, self.port), 60)
        peer.sendall(text)
        return peer

    def request(self, url):
        """Sends a GET. Returns the connection."""
        return self.open_request(f"GET {url} HTTP/1.1\r\nHost: {urllib.parse.urlsplit(url).netloc}\r\n\r\n".encode())

    def raw(self, text):
        """Sends bytes, and returns the answer up to the end of the connection; None for a reset one."""
        with self.open_request(text) as peer:
            return read(peer)

    def variables(self):
        return {**os.environ, "http_proxy": self.proxy, "no_proxy": ""}

    def start_curl(self, url, *arguments, **options):
        return subprocess.Popen(["curl", "-sS", "--max-time", "60", *arguments, url], env=self.variables(),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def read(peer):
    """Returns the rest of a connection's input; None for a reset one."""
    answer = b""
    try:
        while data := peer.recv(65_536):
            answer += data
    except ConnectionResetError:
        return None
    return answer


def more(peer):
    """Returns the next bytes of a connection."""
    data = peer.recv(1 << 20)
    if not data:
        raise AssertionError("the connection ended early")
    return data


def needs(program):
    """Returns a reason to skip a test, or None."""
    return None if shutil.which(program) else f"{program} is missing"


class RawOrigin:
    """`with RawOrigin(bytes) as origin:` sends the bytes after the head of each request, and ends the connection. `heads` has the
    requests."""

    def __init__(self, answer):
        self.answer = answer
        self._listener = socket.create_server((HOST, 0))
        self.url = f"http://{HOST}:{self._listener.getsockname()[1]}/"
        self.heads = []

    def __enter__(self):
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self):
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            with peer:
                head = b""
                while b"\r\n\r\n" not in head and (data := peer.recv(65_536)):
                    head += data
                if head:
                    self.heads.append(head)
                    peer.sendall(self.answer)


class Site:
    """`with Site() as site:` serves `site.pages`: media type, bytes and further fields by path. `requested` has the paths of all
    requests. Requests of the paths in `held` wait for `open_gate`; `aborted` has those of clients that hung up first."""

    def __init__(self):
        self.pages, self.requested, self.held, self.aborted = {}, [], set(), []
        self._gate, self._is_open = socket.socketpair()
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                site.requested.append(self.path)
                if self.path in site.held and self.connection in select.select([self.connection, site._is_open], [], [], 60)[0]:
                    site.aborted.append(self.path)
                    self.close_connection = True
                    return
                kind, content, fields = site.pages.get(self.path, ("", b"", {}))
                self.send_response(200 if kind else 404)
                for name, value in {"Content-Type": kind, "Content-Length": len(content), **fields}.items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_GET

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer((HOST, 0), Handler)
        self.port = self._server.server_port
        self.url = f"http://{HOST}:{self.port}"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._gate.close()

    def publish(self, path, kind, content, **fields):
        """Names of fields have underscores for hyphens. Returns the URL."""
        content = content.encode() if isinstance(content, str) else content
        self.pages[path] = (kind, content, {name.replace("_", "-"): value for name, value in fields.items()})
        return self.url + path

    def open_gate(self):
        self._gate.send(b"x")
