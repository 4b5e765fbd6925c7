"""The same names without `await`, for scripts and threads: a thread runs the event loop.

    with earshot.blocking.connect() as bus, bus.handler("gallery") as gallery:
        result = gallery.fetch("https://example.org/")

Any thread may call. A call that is interrupted (Ctrl-C) cancels what it asked for.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from . import _bus, _handler, _watch
from ._messages import FetchOptions, Priority, Progress
from ._results import Closed, Result, Terminal

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

T = TypeVar("T")

__all__ = ["Bus", "Handler", "Transfer", "Watch", "connect"]


class Transfer:
    """One request under way."""

    def __init__(self, bus: Bus, transfer: _handler.Transfer) -> None:
        self._bus = bus
        self._transfer = transfer

    @property
    def handler(self) -> str:
        """The handler's name."""
        return self._transfer.handler

    @property
    def request(self) -> str:
        """The request's ID, such as `why` wants it."""
        return self._transfer.request

    @property
    def url(self) -> str:
        """As it was asked for."""
        return self._transfer.url

    def done(self) -> bool:
        """Whether it has ended."""
        return self._transfer.done()

    def result(self, timeout: float | None = None) -> Result:
        """Waits for the result. Raises `FetchFailed`; `concurrent.futures.CancelledError` if it was cancelled; or
        `TimeoutError` after so many seconds, and it goes on."""
        async def wait() -> Result:
            future = self._transfer._future
            if timeout is not None:
                done, _ = await asyncio.wait([future], timeout=timeout)
                if not done:
                    raise TimeoutError(f"no result within {timeout:g} s")
            return await self._transfer
        return self._bus._run(wait())

    def cancel(self) -> None:
        """Not wanted any more."""
        self._bus._call(self._transfer.cancel)

    def set_priority(self, priority: Priority) -> None:
        """Another class while it waits."""
        self._bus._call(self._transfer.set_priority, priority)

    def progress(self) -> Iterator[Progress]:
        """How far it is, now and then until it ends; only of what was started with `progress_ms` or `on_progress`."""
        steps = self._transfer.progress()

        async def step() -> Progress | None:
            return await anext(steps, None)
        while (found := self._bus._run(step())) is not None:
            yield found

    def why(self) -> dict[str, Any]:
        """What it waits for, or who fetches it."""
        return self._bus._run(self._transfer.why())


class Handler:
    """A name under which URLs are wanted. Leaving its `with` removes it."""

    def __init__(self, bus: Bus, handler: _handler.Handler) -> None:
        self._bus = bus
        self._handler = handler
        self.name = handler.name

    def __enter__(self) -> Self:
        self._bus._run(self._handler.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self._bus._run(self._handler.__aexit__())

    def start(self, url: str, **options: Unpack[FetchOptions]) -> Transfer:
        """Asks for a URL and does not wait."""
        return Transfer(self._bus, self._bus._call(self._handler._start, url, options))

    def fetch(self, url: str, **options: Unpack[FetchOptions]) -> Result:
        """The result. Raises `FetchFailed` if there is none."""
        return self._bus._run(self._handler.fetch(url, **options))

    def replace(self, url: str, **options: Unpack[FetchOptions]) -> Result:
        """As `fetch`, instead of all that the handler wants."""
        return self._bus._run(self._handler.replace(url, **options))


class Watch:
    """What becomes of a handler's requests: `for terminal in bus.watch("gallery/"):`."""

    def __init__(self, bus: Bus, watch: _watch.Watch) -> None:
        self._bus = bus
        self._watch = watch

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Terminal:
        async def following() -> Terminal | None:
            return await anext(self._watch, None)
        found = self._bus._run(following())
        if found is None:
            raise StopIteration
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hears no more."""
        self._bus._call(self._watch.close)


class Bus:
    """A connection to the broker."""

    def __init__(self, bus: _bus.Bus) -> None:
        self._bus = bus
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        loop = asyncio.new_event_loop()
        self._loop = loop
        self._thread = threading.Thread(target=loop.run_forever, name="earshot", daemon=True)
        self._thread.start()
        try:
            self._run(self._bus.__aenter__())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._run(self._bus.__aexit__())
        finally:
            self._stop()

    @property
    def broker(self) -> str | None:
        """Names this life of the broker."""
        return self._bus.broker

    def handler(self, name: str | None = None) -> Handler:
        """A handler, to be entered with `with`; without a name it has one that nobody else has."""
        return Handler(self, self._bus.handler(name))

    def watch(self, pattern: str) -> Watch:
        """What becomes of a handler's requests from now on; with a slash at its end, of all handlers below it."""
        return Watch(self, self._call(self._bus.watch, pattern))

    def remove(self, pattern: str) -> int:
        """Nothing under a handler, or below `pattern/`, is wanted any more: how many requests that was."""
        return self._run(self._bus.remove(pattern))

    def cancel(self, handler: str, request: str) -> None:
        """One request is not wanted any more."""
        self._run(self._bus.cancel(handler, request))

    def query(self, *subject: str) -> dict[str, Any]:
        """What QUERY `subject` asks for."""
        return self._run(self._bus.query(*subject))

    def ping(self) -> None:
        """Returns when the broker has dealt with all that was said before."""
        self._run(self._bus.ping())

    def status(self) -> dict[str, Any]:
        """What waits, what runs, where it all went."""
        return self._run(self._bus.status())

    def settings(self) -> list[dict[str, Any]]:
        """What is set, and where each value comes from."""
        return self._run(self._bus.settings())

    def why(self, handler: str, request: str) -> dict[str, Any]:
        """What one request waits for, or who fetches it."""
        return self._run(self._bus.why(handler, request))

    def set(self, name: str, *value: object) -> str:
        """Changes a setting of the broker. Returns it in normal form."""
        return self._run(self._bus.set(name, *value))

    def _call(self, function: Callable[..., T], *arguments: object) -> T:
        async def call() -> T:
            return function(*arguments)
        return self._run(call())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            work.close()
            raise Closed("this bus is not open: use it inside its `with`")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _stop(self) -> None:
        loop, self._loop = self._loop, None
        if loop is None or self._thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        # Whoever waits in another thread is told, then what the loop owns is closed.
        loop.run_until_complete(asyncio.sleep(0))
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def connect(runtime: str | os.PathLike[str] | None = None, *, private: bool = False, window: int | None = 256,
            timeout: float = 10.0, lease: float = 0.0) -> Bus:
    """The bus, to be entered: `with earshot.blocking.connect() as bus:`. The rest is as in `earshot.connect`."""
    return Bus(_bus.connect(runtime, private=private, window=window, timeout=timeout, lease=lease))
