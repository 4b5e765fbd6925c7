"""Cancellation of thousands of tasks: queued requests never reach the server, running transfers are aborted."""

import asyncio
import unittest

import fixture  # noqa: F401 (the paths come first)
import earshot_bus
from support.harness import Bus, check_ledgers
from support.origin import Origin, body

TASKS = 2000
RUNNING = 48
"""A worker's 64 slots without those reserved for priority `high`."""


class CancellingTests(unittest.IsolatedAsyncioTestCase):
    async def test_1000_of_2000_tasks_are_cancelled(self):
        with Origin() as origin, Bus(workers=1, slots=64, origin_limit=500) as running:
            async with earshot_bus.connect(running.runtime) as bus, bus.handler("tasks") as handler:
                targets = [f"/gate/tasks?i={number}" for number in range(TASKS)]
                tasks = [asyncio.create_task(handler.fetch(origin.url + target)) for target in targets]
                await asyncio.to_thread(origin.await_running, RUNNING)
                begun = {request.target for request in origin.log()}
                cancelled, kept = set(targets[::2]), set(targets[1::2])
                cut = begun & cancelled
                self.assertTrue(cut and begun - cancelled, "some of both kinds run")

                # The newest first: a freed slot must not go to a request whose REMOVE is in transit.
                for task in reversed(tasks[::2]):
                    task.cancel()
                ends = await asyncio.gather(*tasks[::2], return_exceptions=True)
                self.assertEqual({type(end) for end in ends}, {asyncio.CancelledError})
                await asyncio.to_thread(origin.await_aborts, "/gate/tasks", len(cut))
                origin.open_gate("tasks")
                results = await asyncio.gather(*tasks[1::2])
                self.assertEqual({result.read() for result in results}, {body(100)})

                seen = origin.log()
                self.assertEqual({request.target for request in seen if request.aborted}, cut, "what ran is cut off")
                self.assertEqual({request.target for request in seen}, kept | cut, "what waited never came")
                self.assertEqual(len(seen), len(kept) + len(cut), "each once")
                ledger = await bus.query("ledger")
                check_ledgers(ledger)
                requests = ledger["requests"]
                self.assertEqual((requests["answered"], requests["removed"], requests["pending"]),
                                 (len(kept), len(cancelled), 0))
