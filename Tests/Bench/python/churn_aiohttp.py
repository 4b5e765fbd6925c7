"""Scrolls by aiohttp: each handler cancels the task that it replaces."""

import asyncio

import aiohttp
import churning


async def run(churn):
    connector = aiohttp.TCPConnector(limit=churn.plan.connections)
    async with aiohttp.ClientSession(connector=connector) as session:
        tasks = {}

        async def fetch(row):
            async with session.get(churn.url(row)) as response:
                response.raise_for_status()
                churn.came(row, await response.read())

        def replace(number, row):
            if number in tasks:
                tasks[number].cancel()
            tasks[number] = asyncio.create_task(fetch(row))

        await churn.scroll(replace)
        for task in tasks.values():
            task.cancel()


churning.main(run)
