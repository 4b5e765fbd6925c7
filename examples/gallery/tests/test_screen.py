"""Tests of items that leave their cells at different moments."""

import asyncio
import unittest

import test_gallery  # noqa: F401 (the paths come first)
import earshot_bus
from screen import Cell


class Answer:
    """Result with the members that a cell uses."""

    def __init__(self, data):
        self.data = data
        self.length = len(data)
        self.released = False

    def read(self):
        return self.data

    def release(self):
        self.released = True

    def header(self, _):
        return "image/png"


class Handler:
    """Bus that answers on command of the test."""

    def __init__(self):
        self.requested = {}

    async def replace(self, url, **_):
        self.requested[url] = asyncio.get_running_loop().create_future()
        return await self.requested[url]


async def run_tasks():
    """Runs all ready tasks of the event loop."""
    for _ in range(5):
        await asyncio.sleep(0)


class CellTests(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.handler = Handler()
        self.changes = []
        self.late = []
        self.ended = asyncio.Event()
        self.cell = Cell(self.handler, self.changed, self.late.append)

    def changed(self, cell):
        self.changes.append((cell.item, cell.picture and cell.picture.data, cell.failure))
        self.ended.set()

    async def test_a_result_of_the_row_before_is_not_shown(self):
        self.cell.show(1, "one")
        await run_tasks()
        answer = Answer(b"first")
        self.handler.requested["one"].set_result(answer)
        self.cell.show(13, "thirteen")
        await run_tasks()
        self.assertEqual((self.cell.picture, self.changes, self.late), (None, [], [5]))
        self.assertTrue(answer.released)
        self.handler.requested["thirteen"].set_result(Answer(b"second"))
        await self.ended.wait()
        self.assertEqual(self.changes, [(13, b"second", None)])

    async def test_a_failure_of_the_row_before_is_not_shown(self):
        self.cell.show(1, "one")
        await run_tasks()
        self.handler.requested["one"].set_exception(earshot_bus.FetchFailed("h", "1", "removed"))
        self.cell.show(13, "thirteen")
        await run_tasks()
        self.assertEqual((self.cell.failure, self.changes), (None, []))

    async def test_rows_that_leave_at_once_are_never_asked_for(self):
        self.cell.show(1, "one")
        self.cell.show(13, "thirteen")
        self.cell.clear()
        await run_tasks()
        self.assertEqual(self.handler.requested, {})
        self.cell.show(1, "one")
        await run_tasks()
        self.handler.requested["one"].set_exception(earshot_bus.FetchFailed("h", "1", "timeout"))
        await self.ended.wait()
        self.assertEqual(self.changes, [(1, None, "timeout")])

    async def test_a_row_that_stays_is_asked_for_once(self):
        self.cell.show(1, "one")
        await run_tasks()
        requested = self.handler.requested["one"]
        self.cell.show(1, "one")
        await run_tasks()
        self.assertIs(self.handler.requested["one"], requested)
