"""A bus with an HTTP door, and requests through it."""

import http.client
import os
import re
import shutil
import socket
import subprocess
import urllib.parse

import places  # noqa: F401
from support.harness import Bus
from support.processes import children, command

HOST = "127.0.0.1"


class Door(Bus):
    """`with Door() as door:` is a bus with a door at a free port of loopback, `door.port`."""

    def __init__(self, http="0", arguments=(), **options):
        super().__init__(arguments=("--http", http, *arguments), **options)

    def __enter__(self):
        super().__enter__()
        try:
            # It is ready once the door listens.
            line = next(line for line in self.program.stderr.splitlines() if "the HTTP door listens at" in line)
            self.port = int(re.search(r":(\d+)/", line)[1])
        except BaseException:
            self._abort()
            raise
        return self

    @property
    def door(self):
        """Process ID of the door."""
        return next(pid for pid in children(self.supervisor) if "door" in command(pid)[1:2])

    @property
    def proxy(self):
        return f"http://{HOST}:{self.port}/"

    def get(self, url, method="GET", body=None, **fields):
        """Returns status, fields and bytes of a response. Names of fields have underscores for hyphens."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=20)
        try:
            connection.request(method, url, body, {name.replace("_", "-"): value for name, value in fields.items()})
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def ask(self, text):
        """Sends bytes. Returns the connection."""
        peer = socket.create_connection((HOST, self.port), 20)
        peer.sendall(text)
        return peer

    def request(self, url):
        """Sends a GET. Returns the connection."""
        return self.ask(f"GET {url} HTTP/1.1\r\nHost: {urllib.parse.urlsplit(url).netloc}\r\n\r\n".encode())

    def raw(self, text):
        """Sends bytes, and returns the answer up to the end of the connection; None for a reset one."""
        with self.ask(text) as peer:
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
