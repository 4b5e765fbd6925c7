"""A running `earshot-web` beside a bus, and requests to it."""

import http.client
import json
import re
import socket

import checkout  # noqa: F401
from support.harness import Bus, web
from support.processes import Program, eventually

HOST = "127.0.0.1"


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self._path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self._path)


class Web:
    """`with Web(bus) as web:` serves the state of the bus at `web.url`, and is connected to its broker. The arguments are those of
    the program."""

    def __init__(self, commands, *arguments, listen=f"{HOST}:0", is_ready=True):
        self._is_ready = is_ready
        self._commands = commands
        self.listen = listen
        self.program = Program([web(), "--runtime", commands.runtime, "--listen", listen, *arguments],
                               commands.environment, commands.folder)

    def __enter__(self):
        try:
            line = self.program.await_line("listening at")
        except AssertionError:
            self.program.kill()
            raise
        self.url = line.split("listening at ")[1].strip()
        found = re.search(r":(\d+)/$", self.url)
        self.port = int(found[1]) if found else None
        if self._is_ready and isinstance(self._commands, Bus):
            self.await_ready()
        return self

    def __exit__(self, *_):
        if self.program.running:
            self.program.signal(15)
            status = self.program.wait()
            if status != 0 or self.program.crash_lines:
                raise AssertionError(f"earshot-web ended with {status}\n{self.program.describe()}")

    def connection(self):
        return http.client.HTTPConnection(HOST, self.port, timeout=60) if self.port else UnixConnection(self.listen)

    def get(self, path, method="GET", body=None, **fields):
        """Returns status, fields and text of a response. Field names have underscores for hyphens."""
        connection = self.connection()
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in fields.items()})
            response = connection.getresponse()
            return response.status, response.headers, response.read().decode()
        finally:
            connection.close()

    def json(self, path, **fields):
        # A broker that was not scheduled answers too late.
        answer = eventually(lambda: (found := self.get(path, **fields))[0] == 200 and found, lambda: f"{path}: {self.get(path, **fields)}")
        return json.loads(answer[2])

    def metrics(self, up=1):
        """Returns the samples of /metrics by name with labels, once `earshot_up` has this value."""
        def read():
            _, _, text = self.get("/metrics")
            rows = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
            found = {name: float(value) for name, value in rows}
            return found if found["earshot_up"] == up else None
        return eventually(read, f"earshot_up is {up}")

    def await_ready(self):
        eventually(lambda: self.get("/readyz")[0] == 200, "it is ready")

    def raw(self, text, timeout=60):
        """Sends bytes, and returns the answer up to the end of the connection."""
        with socket.create_connection((HOST, self.port), timeout) as peer:
            peer.sendall(text)
            answer = b""
            while data := peer.recv(65536):
                answer += data
            return answer
