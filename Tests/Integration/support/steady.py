"""Origin on 127.0.0.1 that responds after exact times, in its own process: a busy test does not disturb it.

    /SECONDS/…    responds 200 after this time, with the target as its body; `?cc=C` adds `Cache-Control: C` and an ETag,
                  and a request with that ETag gets 304

As a library `with Steady(ports=2) as origin:` starts it; as a command, `support steady PORTS` serves until its input ends. Each
port is a separate origin. It keeps a log of all requests, and counts its concurrent ones. After each wake-up it handles ended
connections before requests, so that it never counts one that was cut before another began. Its first port is for the test and
answers queries of `Steady`.
"""

import collections
import heapq
import http.client
import json
import pathlib
import select
import socket
import sys
import time

from .processes import Program

Entry = collections.namedtuple("Entry", "port target began ended status")
Entry.__doc__ = """One request: its port's number, its target, when it came and was answered, and with what.

Times are `time.monotonic()`. `ended` is None while it runs; `status` 0 for one whose client left."""


class Steady:
    """Running origin. `urls` contains one URL per port."""

    def __init__(self, ports=1):
        self._ports = ports
        self._program = None
        self._control = None
        self.urls = []

    def __enter__(self):
        self._program = Program(["/usr/bin/python3", "-B", pathlib.Path(__file__).parent, "steady", self._ports])
        control, *ports = self._program.await_line("ports", "stdout").split()[1:]
        self._control = int(control)
        self.urls = [f"http://127.0.0.1:{port}" for port in ports]
        return self

    def __exit__(self, *_):
        self._program.write(b"")
        self._program.wait()
        if self._program.stderr:
            raise AssertionError(f"the origin complains\n{self._program.describe()}")

    @property
    def url(self):
        return self.urls[0]

    def log(self, port=None):
        """Returns the requests so far, in order; of one port if given."""
        entries = [Entry(*entry) for entry in self._request("/log")]
        return [entry for entry in entries if port is None or entry.port == port]

    def total(self):
        """Returns the number of requests so far."""
        return self._request("/total")

    def running(self):
        """Returns the targets of the current requests."""
        return self._request("/running")

    def most_at_once(self, port=0):
        """Returns the maximum number of concurrent requests of a port."""
        return self._request("/most")[port]

    def _request(self, target):
        connection = http.client.HTTPConnection("127.0.0.1", self._control, timeout=60)
        connection.request("GET", target)
        answer = json.loads(connection.getresponse().read())
        connection.close()
        return answer


class Connection:
    __slots__ = ("socket", "port", "received", "entry", "is_condition")

    def __init__(self, accepted, port):
        self.socket = accepted
        self.port = port
        self.received = b""
        self.entry = None
        self.is_condition = False


class Server:
    """The process's side: one epoll, and a heap of due responses."""

    CONTROL = -1

    def __init__(self, ports):
        self._epoll = select.epoll()
        self._listeners = {}
        self._connections = {}
        self._due = []
        self._log = []
        self._running = [0] * ports
        self._most = [0] * ports
        for port in range(self.CONTROL, ports):
            listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
            listener.setblocking(False)
            self._listeners[listener.fileno()] = (listener, port)
            self._epoll.register(listener, select.EPOLLIN)
        self._epoll.register(sys.stdin.fileno(), select.EPOLLIN)
        port_numbers = [listener.getsockname()[1] for listener, _ in self._listeners.values()]
        print("ports", *port_numbers, flush=True)

    def serve(self):
        while True:
            wait = max(0, self._due[0][0] - time.monotonic()) if self._due else None
            events = self._epoll.poll(wait)
            ready = []
            for descriptor, _ in events:
                if descriptor == sys.stdin.fileno():
                    return
                if descriptor in self._connections and self._read(self._connections[descriptor]):
                    ready.append(self._connections[descriptor])
            for connection in ready:
                self._begin(connection)
            for descriptor, _ in events:
                if descriptor in self._listeners:
                    self._accept(*self._listeners[descriptor])
            now = time.monotonic()
            while self._due and self._due[0][0] <= now:
                _, number, connection = heapq.heappop(self._due)
                if connection.entry == number:
                    self._answer(connection)

    def _accept(self, listener, port):
        while True:
            try:
                accepted, _ = listener.accept()
            except BlockingIOError:
                return
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connections[accepted.fileno()] = Connection(accepted, port)
            self._epoll.register(accepted, select.EPOLLIN)

    def _read(self, connection):
        """Returns whether a complete request is available. Ends one whose client disconnected."""
        try:
            data = connection.socket.recv(1 << 16)
        except BlockingIOError:
            return False
        except ConnectionError:
            data = b""
        connection.received += data
        if not data:
            if connection.entry is not None:
                self._end(connection, 0)
            del self._connections[connection.socket.fileno()]
            connection.socket.close()
        return bool(data) and connection.received.endswith(b"\r\n\r\n")

    def _begin(self, connection):
        target = connection.received.split(b" ", 2)[1].decode("latin-1")
        connection.is_condition = b"\r\nif-none-match:" in connection.received.lower()
        connection.received = b""
        if connection.port == self.CONTROL:
            self._send(connection, "200 OK", json.dumps(self._control(target)).encode())
            return
        now = time.monotonic()
        connection.entry = len(self._log)
        self._log.append([connection.port, target, now, None, None])
        self._running[connection.port] += 1
        self._most[connection.port] = max(self._most[connection.port], self._running[connection.port])
        heapq.heappush(self._due, (now + float(target.split("/", 2)[1]), connection.entry, connection))

    def _answer(self, connection):
        target = self._log[connection.entry][1]
        self._end(connection, 200)
        status, content = "200 OK", target.encode("latin-1")
        if "?cc=" in target:
            if connection.is_condition:
                status, content = "304 Not Modified", b""
            status += f"\r\nCache-Control: {target.partition('?cc=')[2]}\r\nETag: \"1\""
        self._send(connection, status, content)

    def _end(self, connection, status):
        self._log[connection.entry][3:] = [time.monotonic(), status]
        self._running[connection.port] -= 1
        connection.entry = None

    def _send(self, connection, status, content):
        data = f"HTTP/1.1 {status}\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content
        try:
            connection.socket.setblocking(connection.port == self.CONTROL)  # Only a log exceeds its buffer.
            connection.socket.sendall(data)
        except ConnectionError:
            pass  # Its end is read next.
        connection.socket.setblocking(False)

    def _control(self, target):
        what = target.strip("/")
        if what == "log":
            return self._log
        if what == "most":
            return self._most
        if what == "running":
            return [self._log[c.entry][1] for c in self._connections.values() if c.entry is not None]
        return len(self._log)


if __name__ == "__main__":
    Server(int(sys.argv[1])).serve()
