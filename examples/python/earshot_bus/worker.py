"""Worker for a URL scheme of your own: a function that produces the response of each URL.

    async def thumb(job):                                        # in thumbs.py
        return Image...

    python -m earshot_bus.worker thumbs:thumb --scheme thumb         # now any program can request thumb:…

The broker coalesces requests for the same URL into one job, delivers the response to all subscribers, and cancels the
job when the last one is gone. The protocol is EARW/1, protocols/6-workers.md.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import importlib
import inspect
import logging
import os
import pathlib
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeAlias

from . import _folders, _network, _tunnel
from ._link import Link
from ._messages import Headers, Message, Priority, check_priority, decode_for_worker, encode
from ._results import EarshotError, NoBroker, Refused

RECONNECT_SECONDS = 0.1
"""Seconds between two attempts to connect to a broker of this machine."""
NETWORK_TIMEOUT = 20.0
"""Seconds until the first bus on a network accepts the worker."""
SLOTS = 4
"""Default number of concurrent jobs."""

_log = logging.getLogger("earshot_bus.worker")


class JobFailed(EarshotError):
    """Failure of a job, raised by the worker's function. Clients receive its code and its detail."""

    def __init__(self, detail: str, code: str = "worker-failed") -> None:
        super().__init__(detail)
        self.detail = detail
        """Human-readable explanation, one sentence. Clients receive its first 200 characters, as ASCII."""
        self.code = code
        """A code of protocols/8-codes.md, "Failures". The broker retries after transient ones, such as `timeout`."""


@dataclass(frozen=True)
class Answer:
    """Response of a job, with header fields and a status."""

    body: bytes = b""
    """The body. A body over the broker's `inline-bytes`, 64 KiB by default, travels as a file. Over a network a body has at
    most 4 MiB."""
    headers: Headers = ()
    """HTTP header fields, pairs of name and value: `(("content-type", "image/webp"),)`."""
    status: int = 200
    """HTTP status. With 400 or more the request fails as `http-status`, and the body is its error page."""


Function: TypeAlias = "Callable[[Job], bytes | Answer | Awaitable[bytes | Answer]]"
"""Function of a worker: returns the response of a job, or raises `JobFailed`. Runs in a thread unless `async`."""


@dataclass(frozen=True)
class Job:
    """Request for one URL, passed to the worker's function."""

    url: str
    """The requested URL, in normal form."""
    priority: Priority
    """Highest priority of the waiting requests when the job began. Use it for requests that the job itself makes."""
    headers: Headers
    """Header fields of the request, pairs of name and value."""
    method: str
    """Method of the request, such as `GET`."""
    body: bytes | None
    """Body of the request; None if it has none."""
    max_bytes: int | None
    """Maximum size in bytes that the requests accept; None: no limit."""
    _report: Callable[[int, int | None], None]
    _cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def is_cancelled(self) -> bool:
        """Whether the job was cancelled. A coroutine is cancelled too; a function in a thread should check this."""
        return self._cancelled.is_set()

    def report(self, received: int, total: int | None = None) -> None:
        """Reports progress: bytes so far, and the total if known. Thread-safe."""
        self._report(received, total)


class Worker:
    """Worker that serves schemes with a function until `stop`, also across restarts of the broker. For one event loop.

    `schemes`: names such as `thumb`. `slots`: number of concurrent jobs. `runtime`, `key`, `server_key`: see
    `earshot_bus.connect`. The key of a bus on a network must have the role `worker`.

    Raises `ValueError` for an invalid address or key, and `NoBroker` for an unusable key file, or without pyzmq.
    """

    def __init__(self, function: Function, schemes: Sequence[str], slots: int = SLOTS,
                 runtime: _network.Addresses = None, key: str | os.PathLike[str] | None = None,
                 server_key: str | Sequence[str] | None = None) -> None:
        self._function = function
        self._buses = _network.find(runtime, key, server_key)
        self._tunnel: _tunnel.Tunnel | None = None
        self._ready = encode("READY", "EARW/1", fields=(("slots", slots), ("schemes", " ".join(schemes)),
                                                        ("pid", os.getpid()), ("drain", "yes")))
        self._path = ""
        if self._buses is None:
            self._folder = _folders.runtime_folder(runtime)  # type: ignore[arg-type]
            self._path = _folders.socket_path(self._folder, "work")
        else:
            _tunnel.library()
        self._threads = ThreadPoolExecutor(slots, thread_name_prefix="earshot-job")
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._jobs: dict[str, Job] = {}
        self._link: Link | None = None
        self._inline_bytes = 0
        self._spool: pathlib.Path | None = None
        self._is_leaving = False
        self._was_registered = False
        self._ended: asyncio.Future[None]
        self._loop: asyncio.AbstractEventLoop
        self.registered: asyncio.Event
        """Set while the worker is registered at a broker."""

    async def run(self) -> None:
        """Serves the present broker and its successors. Returns after `stop`.

        Raises `NoBroker` if no broker runs at the start or no bus of a network accepts the worker, and `Refused` if the
        broker rejects the registration.
        """
        if self._buses is None and not _folders.is_served(self._folder):
            raise NoBroker(f"no broker runs in {self._folder}: start one with `earshot serve`")
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        self.registered = asyncio.Event()
        if self._buses is not None:
            self._loop.call_later(NETWORK_TIMEOUT, self._time_out)
        self._connect()
        try:
            await self._ended
        finally:
            self._drop_link(linger=True)
            self._threads.shutdown(wait=False, cancel_futures=True)

    def stop(self) -> None:
        """Accepts no more jobs, completes the running ones, and ends `run`."""
        self._is_leaving = True
        self._leave_if_done()

    # The connection.

    def _connect(self) -> None:
        try:
            if self._buses is None:
                self._link = link = Link(self._path)
            else:
                self._tunnel = _tunnel.Tunnel(self._buses.current, self._buses.failures)
                self._link = link = Link(self._tunnel.end)
        except OSError:
            self._connect_later(RECONNECT_SECONDS)
            return
        self._loop.add_reader(link.descriptor, self._readable)
        self._send(self._ready)

    def _connect_later(self, pause: float) -> None:
        if not self._is_leaving:
            self._loop.call_later(pause, lambda: None if self._ended.done() else self._connect())

    def _time_out(self) -> None:
        """Ends `run` if no bus has ever accepted the worker."""
        if self._buses is not None and not self._was_registered and not self._ended.done():
            self._ended.set_exception(NoBroker(self._buses.last_failure))

    def _drop_link(self, linger: bool = False) -> None:
        link, self._link = self._link, None
        if link is None:
            return
        self._loop.remove_reader(link.descriptor)
        self._loop.remove_writer(link.descriptor)
        link.close(linger)
        if self._tunnel is not None and linger:
            self._tunnel.await_end()

    def _lost(self) -> None:
        """Cancels all jobs, because the next broker does not know them, and reconnects."""
        self._drop_link()
        self.registered.clear()
        for attempt in list(self._tasks):
            self._cancel(attempt)
        pause = RECONNECT_SECONDS
        if self._buses is not None and self._tunnel is not None:
            try:
                pause = self._buses.failed(self._tunnel.ending, time.monotonic())
            except NoBroker as error:
                if not self._ended.done():
                    self._ended.set_exception(error)
                return
        self._connect_later(pause)

    def _send(self, head: bytes, body: bytes | None = None) -> None:
        if self._link is not None:
            self._link.send(head, body)
            self._flush()

    def _flush(self) -> None:
        link = self._link
        if link is None or not link.flush():
            return
        if link.is_full:
            self._loop.add_writer(link.descriptor, self._flush)
        else:
            self._loop.remove_writer(link.descriptor)

    def _readable(self) -> None:
        link = self._link
        if link is None:
            return
        for frames in link.receive():
            try:
                self._handle(decode_for_worker(frames))
            except ValueError as error:
                _log.warning("%s", error)
        if link.is_broken:
            self._lost()
        elif link.waiting:
            self._flush()

    def _handle(self, message: Message) -> None:
        if message.verb == "PING":
            self._send(b"PONG\n")
        elif message.verb == "LIMITS":
            self._inline_bytes = message.number("inline-bytes") or 0
            spool = message.field("spool")
            self._spool = pathlib.Path(spool) if spool else None
            self._was_registered = True
            if self._buses is not None:
                self._buses.connected()
            self.registered.set()
        elif message.verb == "JOB":
            self._begin(message)
        elif message.verb == "CANCEL":
            self._cancel(message.operands[0])
        elif message.verb == "DRAIN":
            _log.info("the broker is ending: running jobs are finished, and the next broker is awaited")
        elif message.verb == "ERROR":
            code, detail = message.operands[0], message.field("detail") or ""
            _log.error("the broker says: %s: %s", code, detail)
            if not self.registered.is_set() and not self._ended.done():
                self._ended.set_exception(Refused(code, detail))

    # Jobs.

    def _begin(self, message: Message) -> None:
        attempt, url = message.operands
        if attempt in self._tasks:
            return
        if self._is_leaving:
            self._send(encode("FAILED", attempt, "worker-lost"))
            return

        def report(received: int, total: int | None) -> None:
            counted = f"{received}/{'-' if total is None else total}"
            self._loop.call_soon_threadsafe(self._progress, attempt, counted)

        priority = check_priority(message.field("priority") or "normal")
        job = Job(url, priority, message.headers,  # type: ignore[arg-type]
                  message.field("method") or "GET", message.body, message.number("max-bytes"), report)
        self._jobs[attempt] = job
        self._tasks[attempt] = self._loop.create_task(self._carry_out(attempt, job))

    def _progress(self, attempt: str, counted: str) -> None:
        if attempt in self._tasks:
            self._send(encode("PROGRESS", attempt, counted))

    def _cancel(self, attempt: str) -> None:
        if attempt in self._tasks:
            self._jobs[attempt]._cancelled.set()
            # Deferred, because a task cancelled before its first step runs nothing, and would send no answer.
            self._loop.call_soon(self._tasks[attempt].cancel)

    async def _carry_out(self, attempt: str, job: Job) -> None:
        link = self._link
        head, body = await self._outcome(attempt, job)
        del self._tasks[attempt], self._jobs[attempt]
        # Another broker does not expect the response of a job from an earlier connection.
        if link is self._link:
            self._send(head, body)
        self._leave_if_done()

    async def _outcome(self, attempt: str, job: Job) -> tuple[bytes, bytes | None]:
        try:
            if job.is_cancelled:
                raise asyncio.CancelledError
            made = await self._make(job)
            return self._done(attempt, made if isinstance(made, Answer) else Answer(made))
        except asyncio.CancelledError:
            return encode("FAILED", attempt, "cancelled"), None
        except JobFailed as failure:
            return _failed(attempt, failure.code, failure.detail), None
        except OSError as error:
            _log.exception("job %s", job.url)
            return _failed(attempt, "internal", error.strerror or "an operating system error"), None
        except Exception:
            _log.exception("job %s", job.url)
            return _failed(attempt, "internal", "unexpected exception in the worker's function; see its log"), None

    async def _make(self, job: Job) -> bytes | Answer:
        if inspect.iscoroutinefunction(self._function):
            made: bytes | Answer = await self._function(job)
            return made
        running = self._loop.run_in_executor(self._threads, self._function, job)
        try:
            return await asyncio.shield(running)  # type: ignore[arg-type]
        except asyncio.CancelledError:
            # A thread cannot be cancelled, so its slot stays taken until it returns.
            await asyncio.wait([running])
            raise

    def _done(self, attempt: str, answer: Answer) -> tuple[bytes, bytes | None]:
        fields: list[tuple[str, object]] = [("length", len(answer.body)),
                                            ("sha-256", hashlib.sha256(answer.body).hexdigest())]
        body: bytes | None = answer.body or None
        if len(answer.body) > self._inline_bytes and self._spool is None:
            raise JobFailed(f"a body over a network has at most {self._inline_bytes} bytes", "too-large")
        if len(answer.body) > self._inline_bytes and self._spool is not None:
            name = f"{os.getpid()}-{attempt}.part"
            _write(self._spool / name, answer.body)
            fields.append(("file", name))
            body = None
        return encode("DONE", attempt, str(answer.status), fields=fields, headers=answer.headers), body

    def _leave_if_done(self) -> None:
        if self._is_leaving and not self._tasks and not self._ended.done():
            self._send(b"BYE\n")
            self._ended.set_result(None)


def _failed(attempt: str, code: str, detail: str) -> bytes:
    plain = "".join(c if " " <= c <= "~" else "?" for c in detail)
    return encode("FAILED", attempt, code, fields=(("detail", plain[:200]),))


def _write(path: pathlib.Path, data: bytes) -> None:
    """Creates a read-only file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), 0o400)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def function_named(name: str) -> Function:
    """Returns the function that `module:function` names. Raises `ValueError` or `ImportError` if there is none."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise ValueError(f"{name!r} is not module:function")
    sys.path.insert(0, os.getcwd())
    found = getattr(importlib.import_module(module), attribute, None)
    if not callable(found):
        raise ValueError(f"{module} has no function {attribute}")
    function: Function = found
    return function


async def serve(function: Function, schemes: Sequence[str], slots: int = SLOTS, runtime: _network.Addresses = None,
                key: str | os.PathLike[str] | None = None, server_key: str | Sequence[str] | None = None) -> None:
    """Serves schemes until SIGINT or SIGTERM. Parameters and exceptions as in `Worker`."""
    worker = Worker(function, schemes, slots, runtime, key, server_key)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, worker.stop)
    await worker.run()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m earshot_bus.worker",
                                     description="Serve URLs of a scheme with a function.")
    parser.add_argument("function", help="module:function; the search path includes the working directory")
    parser.add_argument("--scheme", action="append", required=True, help="scheme to serve; may be repeated")
    parser.add_argument("--slots", type=int, default=SLOTS, help="number of concurrent jobs (default: %(default)s)")
    parser.add_argument("--runtime", help="runtime directory of the broker")
    parser.add_argument("--bus", help="bus on a network, tcp://HOST:PORT")
    parser.add_argument("--bus-key", help="file with the key of this worker, for --bus")
    parser.add_argument("--server-key", help="public key of the bus, or its file")
    arguments = parser.parse_args()
    if arguments.runtime and arguments.bus:
        parser.error("--runtime and --bus exclude each other")
    if arguments.runtime:
        # The function's own requests go to the same bus.
        os.environ["EARSHOT_RUNTIME"] = arguments.runtime
        os.environ.pop("EARSHOT_BUS", None)
    logging.basicConfig(format="%(levelname)s: %(message)s")
    try:
        asyncio.run(serve(function_named(arguments.function), arguments.scheme, arguments.slots,
                          arguments.runtime or arguments.bus, arguments.bus_key, arguments.server_key))
    except (ImportError, ValueError) as error:
        parser.error(str(error))
    except EarshotError as error:
        print(f"earshot_bus.worker: {error}", file=sys.stderr)
        return 69 if isinstance(error, NoBroker) else 1
    return 0


if __name__ == "__main__":
    # The imported module and not this copy of it, because functions raise and return classes of the imported one.
    from earshot_bus import worker

    sys.exit(worker.main())
