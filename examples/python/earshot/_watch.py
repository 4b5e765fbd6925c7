"""Hearing what becomes of requests, whoever asked."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from ._results import FetchFailed, Hold, Terminal

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._bus import Bus


class Watch:
    """What becomes of a handler's requests, whoever asked: `async for terminal in bus.watch("gallery/"):`.

    Each is a `Result` or a `FetchFailed`; `ok` tells them apart. It begins with the call of `watch`, and ends with
    `close`, its `async with`, the last reference to it, or the bus. What has come and is not taken counts among what
    fills the bus's window: behind a full one the rest waits at the broker, and with it what the bus itself wants. What
    is not taken when the watch ends is lost. It comes back with the next broker, and does not hear what ended before
    that.
    """

    def __init__(self, bus: Bus, token: int, queue: Queue) -> None:
        self._bus = bus
        self._token = token
        self._queue = queue

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Terminal:
        item = await self._queue.get()
        if item is None:
            raise StopAsyncIteration
        found, hold = item
        if isinstance(found, FetchFailed) or found.body is not None:
            hold.release()
        return found

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hears no more."""
        self._bus._unwatch(self._token)

    def __del__(self) -> None:
        self._bus._later(self._bus._unwatch, self._token)


class Queue:
    """What a watch has not taken. After `end` it yields None."""

    def __init__(self) -> None:
        self._items: deque[tuple[Terminal, Hold]] = deque()
        self._ended = False
        self._changed = asyncio.Event()

    def put(self, found: Terminal, hold: Hold) -> None:
        self._items.append((found, hold))
        self._changed.set()

    def end(self) -> None:
        while self._items:
            self._items.popleft()[1].release()
        self._ended = True
        self._changed.set()

    async def get(self) -> tuple[Terminal, Hold] | None:
        while not self._items and not self._ended:
            self._changed.clear()
            await self._changed.wait()
        return self._items.popleft() if self._items else None
