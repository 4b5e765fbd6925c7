"""What one page shows: a cell for each place on its screen, and the news that the page has not heard yet."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import earshot

if TYPE_CHECKING:
    from typing_extensions import Self

MOST_CELLS = 64
"""Places on one screen."""

MOST_PICTURE_BYTES = 16 << 20
"""Bytes of a picture. It is kept in memory while its row is on the screen."""


@dataclass(frozen=True)
class Picture:
    """What the server of a picture sent."""

    data: bytes
    content_type: str


class Cell:
    """A place on the screen, used by one row after the other. It wants the picture of one row at most.

    `changed` is told of each end but those of rows that have left; `late` of bodies that came whole and too late.
    """

    def __init__(self, handler: earshot.Handler, changed: Callable[[Cell], object],
                 late: Callable[[int], object]) -> None:
        self._handler = handler
        self._changed = changed
        self._late = late
        self._tasks: set[asyncio.Task[None]] = set()
        self._wanted: asyncio.Task[None] | None = None
        self.row: int | None = None
        """None while it shows no row: at the end of the list, and before the page has said where it is."""
        self.picture: Picture | None = None
        self.failure: str | None = None
        """A code of protocols/3-CODES.md."""

    def show(self, row: int, url: str) -> None:
        """From now on it is for `row`. What the row before it wanted is not fetched any more."""
        if row == self.row:
            return
        self._forget(row)
        self._wanted = asyncio.create_task(self._load(url))
        self._tasks.add(self._wanted)
        self._wanted.add_done_callback(self._tasks.discard)

    def clear(self) -> None:
        """No row is here."""
        if self._wanted is not None:
            self._wanted.cancel()
        self._forget(None)

    def _forget(self, row: int | None) -> None:
        self.row, self.picture, self.failure, self._wanted = row, None, None, None

    def _is_wanted(self) -> bool:
        return self._wanted is asyncio.current_task()

    async def _load(self, url: str) -> None:
        # The row can leave before this begins, and while a result that is there waits for its turn in the event loop.
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
        except (earshot.FetchFailed, earshot.Refused) as error:
            failure = error.code
        except ValueError:
            failure = "malformed-url"  # Not even to be said: a space in it, or too long.
        except OSError:
            failure = "internal"
        except earshot.Closed:
            return
        if self._is_wanted():
            self.picture, self.failure = picture, failure
            self._changed(self)


class Screen:
    """The cells of one page: `async with Screen(bus, urls, 12) as screen:`. Row N is in cell N modulo their number, so
    that a row which comes in takes the cell of one that left. Leaving it gives up all that is not there yet."""

    def __init__(self, bus: earshot.Bus, urls: Sequence[str], cells: int) -> None:
        self.name = secrets.token_hex(8)
        """Nobody can guess it: only the page that was told it moves this screen."""
        self.late_bytes = 0
        self._bus = bus
        self._urls = urls
        self._count = cells
        self._cells: list[Cell] = []
        self._handlers = AsyncExitStack()
        self._untold: dict[int | str, dict[str, Any]] = {}
        self._has_news = asyncio.Event()

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
        """Rows from `first` on are on the screen, and no others."""
        for row in range(first, first + self._count):
            number = row % self._count
            cell = self._cells[number]
            if row != cell.row:
                self._untold.pop(number, None)
            if row < len(self._urls):
                cell.show(row, self._urls[row])
            else:
                cell.clear()

    def picture(self, row: int) -> Picture | None:
        """None if it is not there, or the row is not on the screen any more."""
        cell = self._cells[row % self._count]
        return cell.picture if cell.row == row else None

    def tell(self, topic: int | str, news: dict[str, Any]) -> None:
        """Tells the page. Of each topic the newest waits, so that a page which reads nothing costs no more than its
        cells."""
        self._untold[topic] = news
        self._has_news.set()

    async def news(self) -> list[dict[str, Any]]:
        """What the page has not heard, once there is something."""
        while not self._untold:
            self._has_news.clear()
            await self._has_news.wait()
        news, self._untold = list(self._untold.values()), {}
        return news

    def _changed(self, cell: Cell) -> None:
        assert cell.row is not None, "a cell without a row wants nothing"
        number = cell.row % self._count
        if cell.failure is None:
            self.tell(number, {"row": cell.row, "picture": f"/picture/{self.name}/{cell.row}"})
        else:
            self.tell(number, {"row": cell.row, "failed": cell.failure})

    def _came_late(self, length: int) -> None:
        self.late_bytes += length
