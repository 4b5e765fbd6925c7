"""State of one page: a cell for each place on its screen, and the events that the page has not received yet."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import earshot_bus

if TYPE_CHECKING:
    from typing_extensions import Self

MOST_CELLS = 256
"""Maximum number of cells of one screen. A larger window gets larger cells."""

MOST_PICTURE_BYTES = 4 << 20
"""Maximum size of a picture in bytes. It stays in memory while its item is on the screen."""


@dataclass(frozen=True)
class Picture:
    """Picture as received from its server."""

    data: bytes
    content_type: str


class Cell:
    """Place on the screen, reused by one item after the other. It requests at most one picture at a time.

    `changed` is called with each result, unless its item has left the screen. `late` is called with the length of each
    body that arrived after its item had left.
    """

    def __init__(self, handler: earshot_bus.Handler, changed: Callable[[Cell], object],
                 late: Callable[[int], object]) -> None:
        self._handler = handler
        self._changed = changed
        self._late = late
        self._tasks: set[asyncio.Task[None]] = set()
        self._wanted: asyncio.Task[None] | None = None
        self.item: int | None = None
        """None without an item: at the end of the list, and before the page has sent its position."""
        self.picture: Picture | None = None
        self.failure: str | None = None
        """Code of protocols/8-codes.md; None unless the request failed."""

    def show(self, item: int, url: str) -> None:
        """Shows `item`, and replaces the request of the previous item."""
        if item == self.item:
            return
        self._forget(item)
        self._wanted = asyncio.create_task(self._load(url))
        self._tasks.add(self._wanted)
        self._wanted.add_done_callback(self._tasks.discard)

    def clear(self) -> None:
        """Shows no item, and cancels the request."""
        if self._wanted is not None:
            self._wanted.cancel()
        self._forget(None)

    def _forget(self, item: int | None) -> None:
        self.item, self.picture, self.failure, self._wanted = item, None, None, None

    def _is_wanted(self) -> bool:
        return self._wanted is asyncio.current_task()

    async def _load(self, url: str) -> None:
        # The item can leave before this task starts, and while a finished result waits in the event loop.
        if not self._is_wanted():
            return
        picture, failure = None, None
        try:
            result = await self._handler.replace(url, priority="high", max_bytes=MOST_PICTURE_BYTES)
            if self._is_wanted():
                data = await asyncio.to_thread(result.read)
                picture = Picture(data, result.header("content-type") or "")
            if not self._is_wanted():
                self._late(result.length)
                result.release()
        except (earshot_bus.FetchFailed, earshot_bus.Refused) as error:
            failure = error.code
        except ValueError:
            failure = "malformed-url"  # It contains a space, or is too long.
        except OSError:
            failure = "internal"
        except earshot_bus.Closed:
            return
        if self._is_wanted():
            self.picture, self.failure = picture, failure
            self._changed(self)


class Screen:
    """Cells of one page: `async with Screen(bus, urls, 12) as screen:`.

    Item N uses cell N modulo the number of cells, so an item that enters takes the cell of one that left. Leaving the
    `async with` removes all pending requests.
    """

    def __init__(self, bus: earshot_bus.Bus, urls: Sequence[str], cells: int) -> None:
        self.name = secrets.token_hex(8)
        """Random name, so that only the page that received it can move this screen."""
        self.late_bytes = 0
        self._bus = bus
        self._urls = urls
        self._count = cells
        self._cells: list[Cell] = []
        self._handlers = AsyncExitStack()
        self._queued: dict[int | str, dict[str, Any]] = {}
        self._has_events = asyncio.Event()

    async def __aenter__(self) -> Self:
        for number in range(self._count):
            handler = self._bus.handler(f"gallery/{self.name}/{number}")
            self._cells.append(Cell(await self._handlers.enter_async_context(handler), self._changed, self._came_late))
        return self

    async def __aexit__(self, *_: object) -> None:
        for cell in self._cells:
            cell.clear()
        await self._handlers.aclose()

    def move(self, first: int) -> None:
        """Scrolls the screen, so that `first` is its first item."""
        for item in range(first, first + self._count):
            number = item % self._count
            cell = self._cells[number]
            if item != cell.item:
                self._queued.pop(number, None)
            if item < len(self._urls):
                cell.show(item, self._urls[item])
            else:
                cell.clear()

    def picture(self, item: int) -> Picture | None:
        """Returns the picture of an item; None if it has not arrived, or the item has left the screen."""
        cell = self._cells[item % self._count]
        return cell.picture if cell.item == item else None

    def queue_event(self, topic: int | str, event: dict[str, Any]) -> None:
        """Queues an event for the page. Only the newest event of each topic is kept, which bounds the queue."""
        self._queued[topic] = event
        self._has_events.set()

    async def events(self) -> list[dict[str, Any]]:
        """Waits for events, and returns all that are queued."""
        while not self._queued:
            self._has_events.clear()
            await self._has_events.wait()
        events, self._queued = list(self._queued.values()), {}
        return events

    def _changed(self, cell: Cell) -> None:
        assert cell.item is not None, "a cell without an item has no request"
        number = cell.item % self._count
        if cell.failure is None:
            self.queue_event(number, {"item": cell.item, "picture": f"/picture/{self.name}/{cell.item}"})
        else:
            self.queue_event(number, {"item": cell.item, "failed": cell.failure})

    def _came_late(self, length: int) -> None:
        self.late_bytes += length
