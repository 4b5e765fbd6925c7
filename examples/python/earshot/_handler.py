"""A handler, and the transfers under it."""

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
    """One request under way: `await` it for its `Result`.

    It is cancelled when a task that awaits it is, and with its handler.
    """

    def __init__(self, bus: Bus, fetch: Fetch, on_progress: Callable[[Progress], object] | None) -> None:
        super().__init__(fetch, on_progress)
        self._bus = bus
        self._progress: asyncio.Queue[Progress | None] | None = None
        self._future: asyncio.Future[Result] = bus._loop.create_future()
        self._future.add_done_callback(self._done)

    def done(self) -> bool:
        """Whether it has ended."""
        return self._future.done()

    def __await__(self) -> Generator[Any, None, Result]:
        return self._future.__await__()

    def cancel(self) -> None:
        """Not wanted any more: whoever awaits it gets `asyncio.CancelledError`."""
        self._future.cancel()

    def set_priority(self, priority: Priority) -> None:
        """Another class while it waits."""
        self._bus._apply(self._bus._core.prioritize((self.handler, self.request), check_priority(priority)))

    async def progress(self) -> AsyncIterator[Progress]:
        """How far it is, now and then until it ends. Of several the newest is told. For one reader, and only of what
        was started with `progress_ms` or `on_progress`."""
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
        """What it waits for, or who fetches it."""
        return await self._bus.why(self.handler, self.request)

    def _report(self, step: Progress) -> None:
        if self._progress is not None:
            self._progress.put_nowait(step)
        self._tell(step)

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
            self._future.exception()  # No complaint if nobody awaits it.


class Handler:
    """A name under which URLs are wanted: `async with bus.handler("gallery") as h:`. Leaving it removes it, and what
    is still wanted under it is fetched no more, whoever asked for it."""

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
        """Asks for a URL and does not wait."""
        return self._start(url, options)

    async def fetch(self, url: str, **options: Unpack[FetchOptions]) -> Result:
        """The result. Raises `FetchFailed` if there is none. Cancelling the task cancels the request."""
        return await self._start(url, options)

    async def replace(self, url: str, **options: Unpack[FetchOptions]) -> Result:
        """As `fetch`, instead of all that the handler wants: that ends as `FetchFailed` with the code `removed`."""
        return await self._start(url, options, replace=True)

    def _start(self, url: str, options: FetchOptions, replace: bool = False) -> Transfer:
        if not self._open:
            raise RuntimeError(f"the handler {self.name} is not open: use it inside its `async with`")
        return self._bus._fetch(self.name, url, options, replace)
