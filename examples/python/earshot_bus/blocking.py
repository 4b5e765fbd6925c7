"""Client without `await`, for scripts and threads. The names are those of `earshot`.

    with earshot_bus.blocking.connect() as bus, bus.handler("gallery") as gallery:
        result = gallery.fetch("https://example.org/")

All calls are thread-safe. Interrupting a call that waits (Ctrl-C) cancels its request.
"""

from __future__ import annotations

import functools
import json
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

from ._messages import (Bodies, Fetch, FetchOptions, Priority, Progress, check_handler, check_pattern,
                        check_priority)
from ._network import Addresses
from ._protocol import pages
from ._results import EarshotError, FetchFailed, Result, Terminal
from ._shell import AnyTransfer, BusLocation
from ._threads import ThreadedShell
from ._waiting import WatchQueue, Line, Pending

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

__all__ = ["Bus", "Handler", "Transfer", "Watch", "connect"]


class Transfer(AnyTransfer):
    """Pending request, made by `Handler.start`."""

    def __init__(self, bus: Bus, fetch: Fetch, on_progress: Callable[[Progress], object] | None) -> None:
        super().__init__(fetch, on_progress)
        self._bus = bus
        self._ending: Pending[Result] = Pending()
        self._steps: Line[Progress] | None = None

    def done(self) -> bool:
        """Returns whether the request has ended."""
        return self._ending.done()

    def result(self, timeout: float | None = None) -> Result:
        """Waits for the result, for at most `timeout` seconds; None: without a limit.

        Raises `FetchFailed` after a failure, `concurrent.futures.CancelledError` after a cancellation, `Closed` if the
        bus was closed, and `TimeoutError` at the time limit. After a `TimeoutError` the request continues.
        """
        if not self._ending.done():
            try:
                self._bus._wait(self._ending, timeout)
            except TimeoutError:
                raise TimeoutError(f"no result within {timeout:g} s") from None
            except BaseException:
                self.cancel()
                raise
        return self._ending.get()

    def cancel(self) -> None:
        """Cancels the request. Threads that wait receive `concurrent.futures.CancelledError`."""
        self._bus._do(self._cancel)

    def set_priority(self, priority: Priority) -> None:
        """Changes the priority of a request that waits. Raises `ValueError` for an unknown priority."""
        check_priority(priority)
        self._bus._do(lambda: self._bus._apply(self._bus._core.prioritize((self.handler, self.request), priority)))

    def progress(self) -> Iterator[Progress]:
        """Yields the progress until the request ends. Skips all but the newest report.

        Only for one reader, and only if the request was started with `progress_ms` or `on_progress`.
        """
        steps = self._bus._do(self._follow)
        while True:
            self._bus._wait(self._bus._do(steps.changed))
            if not steps.items:
                return
            step = steps.items.popleft()
            while steps.items:
                step = steps.items.popleft()
            yield step

    def why(self) -> dict[str, Any]:
        """Returns the state of the request, and the reason why it waits."""
        return self._bus.why(self.handler, self.request)

    # Called with the lock of the bus held.

    def _follow(self) -> Line[Progress]:
        if self._steps is None:
            self._steps = Line()
            if self.done():
                self._steps.end()
        return self._steps

    def _cancel(self) -> None:
        if not self.done():
            self._end(CancelledError())
            self._bus._cancelled((self.handler, self.request))

    def _succeed(self, result: Result) -> None:
        self._ending.set_result(result)
        if self._steps is not None:
            self._steps.end()

    def _fail(self, error: EarshotError, expected: bool = False) -> None:
        if not self.done():
            self._end(error)

    def _end(self, error: BaseException) -> None:
        self._ending.set_exception(error)
        if self._steps is not None:
            self._steps.end()

    def _report(self, step: Progress) -> None:
        if self._steps is not None:
            self._steps.add(step)
        if self._on_progress is not None:
            self._bus._calls.append(functools.partial(self._call_progress, step))


class Handler:
    """Name under which results are delivered. Leaving its `with` removes the handler with all its requests."""

    def __init__(self, bus: Bus, name: str) -> None:
        self._bus = bus
        self.name = name
        self._is_open = False

    def __enter__(self) -> Self:
        self._bus._do(self._bus._open_handler, self.name)
        self._is_open = True
        return self

    def __exit__(self, *_: object) -> None:
        self._is_open = False
        self._bus._handlers.discard(self.name)
        if not self._bus._closed:
            self._bus._question(lambda token: self._bus._core.remove(self.name, token, survives=False))

    def start(self, url: str, **options: Unpack[FetchOptions]) -> Transfer:
        """Requests a URL and returns its transfer without waiting. Raises as `earshot_bus.Handler.start`.

        Consecutive requests are sent in batches. The last batch leaves with the next call that waits, or after about
        20 ms.
        """
        return self._start(url, options)

    def fetch(self, url: str, **options: Unpack[FetchOptions]) -> Result:
        """Requests a URL and returns its result. Raises as `earshot_bus.Handler.fetch`."""
        return self._start(url, options).result()

    def replace(self, url: str, **options: Unpack[FetchOptions]) -> Result:
        """As `fetch`, and removes all earlier requests of the handler."""
        return self._start(url, options, replace=True).result()

    def _start(self, url: str, options: FetchOptions, replace: bool = False) -> Transfer:
        if not self._is_open:
            raise RuntimeError(f"the handler {self.name} is not open: use it inside its `with`")
        return self._bus._do(self._bus._fetch, self.name, url, options, replace)


class Watch:
    """Subscription made by `Bus.watch`: `for terminal in bus.watch("gallery/"):`. Otherwise as `earshot_bus.Watch`."""

    def __init__(self, bus: Bus, token: int, queue: WatchQueue) -> None:
        self._bus = bus
        self._token = token
        self._queue = queue

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Terminal:
        while True:
            self._bus._wait(self._bus._do(self._queue.changed))
            try:
                found, hold = self._queue.items.popleft()
            except IndexError:
                if self._queue.ended:
                    raise StopIteration from None
                continue  # Another thread took it.
            if isinstance(found, FetchFailed) or found.body is not None:
                hold.release()
            return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the subscription."""
        self._bus._do(self._bus._unwatch, self._token)

    def __del__(self) -> None:
        self._bus._later(self._bus._unwatch, self._token)


class Bus(ThreadedShell):
    """Connection to the broker, made by `connect` and opened by `with`. All methods are thread-safe.

    Methods that wait raise `Closed` if the bus is closed meanwhile. Otherwise as `earshot_bus.Bus`.
    """

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self._shut()

    def handler(self, name: str | None = None) -> Handler:
        """Returns a handler, to be opened with `with`. See `earshot_bus.Bus.handler`."""
        return Handler(self, check_handler(name or f"python/{secrets.token_hex(8)}"))

    def watch(self, pattern: str) -> Watch:
        """Subscribes to a handler, or with a trailing slash to all handlers below it. See `earshot_bus.Bus.watch`."""
        queue = WatchQueue()
        return Watch(self, self._do(self._start_watch, check_pattern(pattern), queue), queue)

    def _fetch(self, handler: str, url: str, options: FetchOptions, replace: bool) -> Transfer:
        transfer = Transfer(self, self._make(handler, url, options, replace), options.get("on_progress"))
        self._begin(transfer)
        return transfer

    def remove(self, pattern: str) -> int:
        """Removes a handler, or with a trailing slash all below it. Returns the number of removed requests."""
        check_pattern(pattern)
        answer = self._question(lambda token: self._core.remove(pattern, token, survives=True))
        return int(answer.operands[1]) if answer else 0

    def cancel(self, handler: str, request: str) -> None:
        """Cancels one request, of this or another program. Does nothing if the request does not exist.

        If the broker dies first, the cancellation is repeated at the next one, and the call waits for that.
        """
        check_handler(handler)
        self._question(lambda token: self._core.cancel((handler, request), token))

    def retry(self, handler: str, request: str) -> None:
        """Repeats a durable request that has failed. Raises `Refused`. See `earshot_bus.Bus.retry`."""
        check_handler(handler)
        self._question(lambda token: self._core.command(token, "RETRY", handler, request))

    def query(self, *subject: str) -> dict[str, Any]:
        """Returns the answer to a QUERY, as parsed JSON. See `earshot_bus.Bus.query`."""
        questions = pages(subject)
        question = next(questions)
        while True:
            answer = self._question(functools.partial(self._core.query, question))
            try:
                question = questions.send(json.loads(answer.body or b"{}") if answer else {})
            except StopIteration as end:
                found: dict[str, Any] = end.value
                return found

    def ping(self) -> None:
        """Waits until the broker has processed all earlier messages of this connection."""
        self.query("ping")

    def status(self) -> dict[str, Any]:
        """Returns the broker's status: counters, queue, workers and origins, as in `earshot status --json`."""
        return self.query("status")

    def settings(self) -> list[dict[str, Any]]:
        """Returns the settings: a list of dictionaries with name, value and source."""
        rows: list[dict[str, Any]] = self.query("settings")["settings"]
        return rows

    def why(self, handler: str, request: str) -> dict[str, Any]:
        """Returns the state of one request, and the reason why it waits. `request`: its ID."""
        return self.query("why", handler, request)

    def set(self, name: str, *value: object) -> str:
        """Changes a setting of the broker, and returns it in normal form. Raises `Refused`. See `earshot_bus.Bus.set`."""
        answer = self._question(lambda token: self._core.command(token, "SET", name, *map(str, value)))
        return " ".join(answer.operands) if answer else ""


def connect(runtime: Addresses = None, *, private: bool = False, window: int = 256, timeout: float = 10.0,
            lease: float | None = None, bodies: Bodies = "path", key: str | os.PathLike[str] | None = None,
            server_key: str | Sequence[str] | None = None) -> Bus:
    """Returns a bus, to be opened: `with earshot_bus.blocking.connect() as bus:`. Parameters as in `earshot_bus.connect`."""
    return Bus(BusLocation(runtime, private, key, server_key), window, timeout, lease, bodies)
