"""Fault-injecting HTTP/1.1 origin on 127.0.0.1, for tests.

As a library it runs in a thread of the test process, so that a test reads and awaits its counters and its log directly. As a
command, `python3 support origin [PORT]` prints its first URL and serves until interrupted. `faults.py` lists the paths.

It detects that a client disconnects during a response (FIN or RST), records the time, and drops the response. A test thus knows
that a cancelled transfer was really cut.
"""

import asyncio
import ssl
import sys
import threading
import time
import urllib.parse

from . import faults, parts
from .faults import body, kept_seed  # noqa: F401 (tests take the expected bytes from here)

CONTINUE_AT = 256 * 1024
"""Number of bytes the transport may buffer before a response waits for the client."""

HEAD_LIMIT = 128 * 1024
BODY_LIMIT = 8 << 20


class Request:
    """A received request. Times are `time.monotonic()`; `None` for events that have not happened."""

    def __init__(self, number, method, target, headers, port, body):
        self.number = number
        self.turn = 1
        """Sequence number from 1 among the requests of its path."""
        self.method = method
        self.target = target
        self.path, _, query = target.partition("?")
        self.query = dict(urllib.parse.parse_qsl(query))
        self.headers = headers
        self.body = body
        self.port = port
        self.started = time.monotonic()
        self.ended = None
        self.aborted = None

    @property
    def unfinished(self):
        return self.ended is None and self.aborted is None

    def __repr__(self):
        state = "running" if self.unfinished else "aborted" if self.aborted else "ended"
        return f"<{self.method} {self.target} {state}>"


class Journal:
    """Received requests in order, guarded by one condition that every change notifies."""

    def __init__(self):
        self._changed = threading.Condition()
        self._requests = []
        self._running = 0
        self._most = 0
        self._by_path = {}
        self._by_target = {}

    def begin(self, method, target, headers, port, body):
        with self._changed:
            request = Request(len(self._requests), method, target, headers, port, body)
            self._requests.append(request)
            self._running += 1
            self._most = max(self._most, self._running)
            request.turn = self._by_path[request.path] = self._by_path.get(request.path, 0) + 1
            self._by_target[target] = self._by_target.get(target, 0) + 1
            self._changed.notify_all()
            return request

    def finish(self, request, aborted):
        with self._changed:
            if not request.unfinished:
                return
            if aborted:
                request.aborted = time.monotonic()
            else:
                request.ended = time.monotonic()
            self._running -= 1
            self._changed.notify_all()

    # Queries.

    def count(self, target):
        """Returns the number of requests for `target`: with a query that exact target, otherwise every query of the path."""
        with self._changed:
            return self._count(target)

    @property
    def total(self):
        with self._changed:
            return len(self._requests)

    @property
    def running(self):
        with self._changed:
            return self._running

    @property
    def most_at_once(self):
        with self._changed:
            return self._most

    def log(self, path=None):
        """Returns the requests so far, oldest first; of one path if given."""
        with self._changed:
            return [r for r in self._requests if path is None or r.path == path]

    # Awaited conditions. Each function returns once its condition holds, and reports the actual state if it fails.

    def await_count(self, target, wanted, timeout=60):
        return self._until(lambda: self._count(target) >= wanted, timeout,
                           lambda: f"{wanted} requests of {target}, saw {self._count(target)}")

    def await_total(self, wanted, timeout=60):
        return self._until(lambda: len(self._requests) >= wanted, timeout,
                           lambda: f"{wanted} requests in all, saw {len(self._requests)}")

    def await_running(self, wanted, timeout=60):
        """Waits until exactly `wanted` requests are unfinished."""
        return self._until(lambda: self._running == wanted, timeout,
                           lambda: f"{wanted} requests at once, {self._running} are")

    def await_aborts(self, path, wanted=1, timeout=60):
        """Returns the times at which the client closed `wanted` unfinished requests of `path`."""
        def moments():
            return [r.aborted for r in self._requests if r.path == path and r.aborted]
        self._until(lambda: len(moments()) >= wanted, timeout,
                    lambda: f"{wanted} aborted requests of {path}, saw {len(moments())}")
        with self._changed:
            return moments()

    def _count(self, target):
        return (self._by_target if "?" in target else self._by_path).get(target, 0)

    def _until(self, condition, timeout, message):
        with self._changed:
            if not self._changed.wait_for(condition, timeout):
                raise AssertionError(f"origin: waited {timeout} s for {message()}")


class Connection(asyncio.Protocol):
    """One client: reads heads, runs one response at a time, and detects a disconnection during one."""

    def __init__(self, origin):
        self.origin = origin
        self.transport = None
        self.received = bytearray()
        self.request = None
        self.task = None
        self.is_over = False
        self.writable = asyncio.Event()
        self.writable.set()

    def connection_made(self, transport):
        self.transport = transport
        self.origin.transports.add(transport)
        transport.set_write_buffer_limits(high=CONTINUE_AT)

    def data_received(self, data):
        self.received += data
        if len(self.received) > HEAD_LIMIT + BODY_LIMIT:
            self.transport.abort()
        elif self.task is None:
            # Closed connections already known are recorded first; asyncio needs two calls for an RST. Otherwise a transfer cut
            # before another one began would seem to have run concurrently.
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, self._next)

    def eof_received(self):
        self._abandon()

    def connection_lost(self, _):
        self.origin.transports.discard(self.transport)
        self._abandon()

    def pause_writing(self):
        self.writable.clear()

    def resume_writing(self):
        self.writable.set()

    async def send(self, data):
        """Passes `data` to the socket, and waits while too much of it is buffered."""
        self.transport.write(data)
        await self.writable.wait()

    def _next(self):
        end = self.received.find(b"\r\n\r\n")
        if end < 0 or self.task is not None or self.is_over:
            return
        lines = bytes(self.received[:end]).decode("latin-1").split("\r\n")
        parts = lines[0].split(" ")
        if len(parts) != 3:
            self.transport.abort()
            return
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        whole = end + 4 + int(headers.get("content-length", 0))
        if len(self.received) < whole:
            return
        body = bytes(self.received[end + 4:whole])
        del self.received[:whole]
        port = self.transport.get_extra_info("sockname")[1]
        # A proxy that keeps its connection passes the absolute form on.
        target = parts[1] if parts[1].startswith("/") else "/" + parts[1].split("/", 3)[-1]
        self.request = self.origin.journal.begin(parts[0], target, headers, port, body)
        self.task = asyncio.get_running_loop().create_task(self._answer())

    async def _answer(self):
        try:
            again = await faults.answer(self, self.request, self.origin)
        except faults.BadRequest as error:
            await self.send(faults.plain(400, str(error).encode()))
            again = True
        self.origin.journal.finish(self.request, aborted=False)
        self.task = None
        if again:
            self._next()
        else:
            self.transport.close()

    def _abandon(self):
        if not self.is_over:
            self._next()
        self.is_over = True
        if self.task is not None:
            self.task.cancel()
            self.task = None
            self.origin.journal.finish(self.request, aborted=True)


class Origin:
    """Running origin: `with Origin() as origin:`. `ports` creates several origins, which share one journal."""

    def __init__(self, ports=1, certificate=None, clients=None, first_port=0, host="127.0.0.1"):
        """`host`: numeric address to listen at. `certificate`: paths of a PEM certificate and its key, to use TLS; `clients`: path of the accepted client
        certificates."""
        self.journal = Journal()
        self.urls = []
        self.gates = {}
        self.transports = set()
        self.published = {}
        self.coded = {}
        self.versions = {}
        self._ports = ports
        self._first_port = first_port
        self._host = host
        self._context = None
        if certificate:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(*certificate)
            if clients:
                self._context.verify_mode = ssl.CERT_REQUIRED
                self._context.load_verify_locations(clients)
        self._loop = None
        self._stopping = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="origin", daemon=True)
        self._ready = threading.Event()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def start(self):
        self._thread.start()
        if not self._ready.wait(60):
            raise AssertionError("origin: did not listen within 10 s")
        return self

    def stop(self):
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(10)

    def catch_up(self):
        """Returns once all connection ends that have reached its sockets are in the journal."""
        async def turn():
            for _ in range(4):
                await faults.pace(0)
        asyncio.run_coroutine_threadsafe(turn(), self._loop).result(10)

    @property
    def url(self):
        """Returns `http://HOST:PORT`, without a path."""
        return self.urls[0]

    def __getattr__(self, name):
        # Counters and awaited conditions belong to the journal.
        return getattr(self.journal, name)

    def publish(self, name, *arguments, plan=None, **options):
        """Publishes a `parts.Version` of these arguments under `/parts/NAME`. Returns the `parts.Published`."""
        self.published[name] = parts.Published(parts.Version(*arguments, **options), plan)
        return self.published[name]

    def open_gate(self, name):
        """Releases requests that wait at `/gate/NAME`, and all later ones."""
        def open_it():
            self.gate(name).set()
        self._loop.call_soon_threadsafe(open_it)

    def gate(self, name):
        """Returns the event behind `/gate/NAME`. For the origin's own thread."""
        if name not in self.gates:
            self.gates[name] = asyncio.Event()
        return self.gates[name]

    async def _serve(self):
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        servers = []
        for index in range(self._ports):
            port = self._first_port + index if self._first_port else 0
            server = await self._loop.create_server(
                lambda: Connection(self), self._host, port, backlog=4096, ssl=self._context)
            servers.append(server)
            scheme = "https" if self._context else "http"
            self.urls.append(f"{scheme}://{self._host}:{server.sockets[0].getsockname()[1]}")
        self._ready.set()
        await self._stopping.wait()
        for server in servers:
            server.close()
        for transport in self.transports:
            transport.abort()


def main():
    origin = Origin(first_port=int(sys.argv[1]) if len(sys.argv) > 1 else 0).start()
    print(origin.url, flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        origin.stop()


if __name__ == "__main__":
    main()
