"""A cell of a list that is reused while one scrolls: each URL replaces the one before: replace.py URL...

Only the last one is waited for. Of those before it what had not come is not fetched.
"""

import asyncio
import sys

import earshot


async def main(urls: list[str]) -> None:
    async with earshot.connect() as bus, bus.handler() as cell:
        shown = [asyncio.create_task(cell.replace(url)) for url in urls]
        for url, end in zip(urls, await asyncio.gather(*shown, return_exceptions=True)):
            print(url, end.status if isinstance(end, earshot.Result) else end)


asyncio.run(main(sys.argv[1:]))
