"""Fetches URLs until NUMBER of them have arrived: fetch_many.py NUMBER URL...

Leaving the handler removes its pending requests: the broker drops queued ones and aborts running transfers.
"""

import asyncio
import sys

import earshot_bus


async def main(enough: int, urls: list[str]) -> None:
    async with earshot_bus.connect() as bus, bus.handler() as handler:
        tasks = [asyncio.create_task(handler.fetch(url)) for url in urls]
        for number, following in enumerate(asyncio.as_completed(tasks), 1):
            result = await following
            print(result.status, len(result.read()), result.url)
            if number == enough:
                break
    done = await asyncio.gather(*tasks, return_exceptions=True)
    removed = [end for end in done if isinstance(end, earshot_bus.FetchFailed) and end.code == "removed"]
    print(f"{len(removed)} were dropped")


asyncio.run(main(int(sys.argv[1]), sys.argv[2:]))
