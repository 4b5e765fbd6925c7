"""Shows a grid of pictures from the bus as a web page on 127.0.0.1: gallery.py [--port PORT] FILE

FILE contains the URL of a picture in each line; - is standard input.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys

import earshot_bus
from pages import Pages

MOST_ITEMS = 100_000
"""Maximum number of items. Browsers draw nothing beyond about 16 million pixels."""


async def main(urls: list[str], port: int) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with earshot_bus.connect() as bus, Pages(bus, urls, port) as pages:
        print(f"gallery: {pages.url}", flush=True)
        await stopping.wait()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Show a grid of pictures from the bus as a web page.")
    parser.add_argument("--port", type=int, default=0, help="port of the page (default: a free one)")
    parser.add_argument("file", type=argparse.FileType(encoding="utf-8", errors="replace"),
                        help="file with the URL of a picture in each line; - is standard input")
    return parser.parse_args()


if __name__ == "__main__":
    given = arguments()
    items = [line.strip() for line in given.file if line.strip()]
    if not 0 < len(items) <= MOST_ITEMS:
        sys.exit(f"gallery: {len(items)} URLs in the file; the grid shows 1 to {MOST_ITEMS}")
    try:
        asyncio.run(main(items, given.port))
    except (earshot_bus.EarshotError, OSError, OverflowError) as error:
        sys.exit(f"gallery: {error}")
