"""Subscriptions to the results of handlers."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from ._results import FetchFailed, Hold, Terminal

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._bus import Bus


class Watch:
    """Subscription made by `Bus.watch`: `async for terminal in bus.watch("gallery/"):`.

    Each item is a `Result` or a `FetchFailed`; the property `ok` distinguishes them. The subscription begins with the
    call of `watch`. It ends with `close`, with its `async with`, with the last reference to it, or with the bus;
    results not taken by then are lost.

    Results not yet taken count towards the window of the bus. Behind a full window further results wait at the broker,
    also those of the bus's own requests. So read a watch continuously, or give it a bus of its own.

    The subscription survives the broker, but misses results that end before the next broker runs.
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
        """Ends the subscription."""
        self._bus._unwatch(self._token)

    def __del__(self) -> None:
        self._bus._later(self._bus._unwatch, self._token)


class Queue:
    """Queue of results that a watch has not taken. After `end` it yields None."""

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
