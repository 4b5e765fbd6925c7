"""Scrolls over an Earshot bus: each handler replaces its request. SERVER is the bus's runtime folder."""

import asyncio
import contextlib

import churning
import earshot_bus


async def run(churn):
    tasks = {}
    async with earshot_bus.connect(churn.plan.server) as bus, contextlib.AsyncExitStack() as cells:
        handlers = [await cells.enter_async_context(bus.handler()) for _ in range(churn.plan.handlers)]

        async def fetch(number, row):
            with contextlib.suppress(earshot_bus.FetchFailed):  # Replaced.
                churn.came(row, (await handlers[number].replace(churn.url(row))).read())

        await churn.scroll(lambda number, row: tasks.update({number: asyncio.create_task(fetch(number, row))}))
        for task in tasks.values():
            task.cancel()


churning.main(run)
