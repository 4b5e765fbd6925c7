"""Handlers and their transfers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from typing import TYPE_CHECKING, Any

from ._messages import Fetch, FetchOptions, Priority, Progress, check_priority
from ._results import EarshotError, Result
from ._shell import AnyTransfer

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from ._bus import Bus


class Transfer(AnyTransfer):
    """Pending request, made by `Handler.start`. `await` it for its `Result`; a failure raises `FetchFailed`.

    Cancelling a task that awaits the transfer cancels the transfer. Removing its handler ends it as `FetchFailed` with
    the code `removed`. Awaiting it again returns the same result.
    """

    def __init__(self, bus: Bus, fetch: Fetch, on_progress: Callable[[Progress], object] | None) -> None:
        super().__init__(fetch, on_progress)
        self._bus = bus
        self._progress: asyncio.Queue[Progress | None] | None = None
        self._future: asyncio.Future[Result] = bus._loop.create_future()
        self._future.add_done_callback(self._done)

    def done(self) -> bool:
        """Returns whether the request has ended."""
        return self._future.done()

    def __await__(self) -> Generator[Any, None, Result]:
        return self._future.__await__()

    def cancel(self) -> None:
        """Cancels the request. Tasks that await it receive `asyncio.CancelledError`."""
        self._future.cancel()

    def set_priority(self, priority: Priority) -> None:
        """Changes the priority of a request that waits. Raises `ValueError` for an unknown priority."""
        self._bus._apply(self._bus._core.prioritize((self.handler, self.request), check_priority(priority)))

    async def progress(self) -> AsyncIterator[Progress]:
        """Yields the progress until the request ends. Skips all but the newest report.

        Only for one reader, and only if the request was started with `progress_ms` or `on_progress`.
        """
        if self._progress is None:
            self._progress = asyncio.Queue()
        while not self._future.done() or not self._progress.empty():
            step = await self._progress.get()
            while not self._progress.empty() and (newer := self._progress.get_nowait()) is not None:
                step = newer
            if step is None:
                return
            yield step

    async def why(self) -> dict[str, Any]:
        """Returns the state of the request, and the reason why it waits."""
        return await self._bus.why(self.handler, self.request)

    def _report(self, step: Progress) -> None:
        if self._progress is not None:
            self._progress.put_nowait(step)
        self._call_progress(step)

    def _done(self, future: asyncio.Future[Result]) -> None:
        if self._progress is not None:
            self._progress.put_nowait(None)
        if future.cancelled():
            self._bus._cancelled((self.handler, self.request))

    def _succeed(self, result: Result) -> None:
        self._future.set_result(result)

    def _fail(self, error: EarshotError, expected: bool = False) -> None:
        if not self._future.done():
            self._future.set_exception(error)
        if expected and not self._future.cancelled():
            self._future.exception()  # Retrieved, so that asyncio logs no warning.


class Handler:
    """Name under which results are delivered: `async with bus.handler("gallery") as handler:`.

    Leaving the `async with` removes the handler with all its requests, also those of other programs. The broker drops
    the queued ones, and aborts running transfers that no other handler needs.
    """

    def __init__(self, bus: Bus, name: str) -> None:
        self._bus = bus
        self.name = name
        self._open = False

    async def __aenter__(self) -> Self:
        self._bus._open_handler(self.name)
        self._open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._open = False
        self._bus._handlers.discard(self.name)
        if not self._bus._closed:
            await self._bus._remove(self.name, survives=False)

    def start(self, url: str, **options: Unpack[FetchOptions]) -> Transfer:
        """Requests a URL and returns its transfer without waiting.

        Raises `ValueError` or `TypeError` for an invalid URL or option, and `RuntimeError` outside of the `async with`.
        """
        return self._start(url, options)

    async def fetch(self, url: str, **options: Unpack[FetchOptions]) -> Result:
        """Requests a URL and returns its result. Cancelling the task cancels the request.

        Raises `FetchFailed` after a failure or an HTTP status of 400 or more, `Refused` if the broker rejects the
        request, and `Closed` if the bus is closed meanwhile. Otherwise as `start`.
        """
        return await self._start(url, options)

    async def replace(self, url: str, **options: Unpack[FetchOptions]) -> Result:
        """As `fetch`, and removes all earlier requests of the handler. They end with the code `removed`."""
        return await self._start(url, options, replace=True)

    def _start(self, url: str, options: FetchOptions, replace: bool = False) -> Transfer:
        if not self._open:
            raise RuntimeError(f"the handler {self.name} is not open: use it inside its `async with`")
        return self._bus._fetch(self.name, url, options, replace)
