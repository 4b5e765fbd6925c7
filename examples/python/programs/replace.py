"""Reuses one handler, as a list reuses a cell while it scrolls: replace.py URL...

Each URL replaces the request for the one before, and only the last one is certain to be fetched.
"""

import asyncio
import sys

import earshot_bus


async def main(urls: list[str]) -> None:
    async with earshot_bus.connect() as bus, bus.handler() as cell:
        shown = [asyncio.create_task(cell.replace(url)) for url in urls]
        for url, end in zip(urls, await asyncio.gather(*shown, return_exceptions=True)):
            print(url, end.status if isinstance(end, earshot_bus.Result) else end)


asyncio.run(main(sys.argv[1:]))
