"""Requests from the origin by aiohttp in the client's process, as docs.aiohttp.org recommends: one session for all
requests ("Client Quickstart"), with its speedups ("Library Installation"). EXTRA `uvloop` selects that loop."""

import asyncio

import aiohttp
import load


async def fetch_all(client):
    # Connections are kept; there are as many as requests at once.
    connector = aiohttp.TCPConnector(limit=client.plan.outstanding)
    async with aiohttp.ClientSession(connector=connector) as session:
        client.ready()

        async def one_after_the_other():
            while request := client.next():
                async with session.get(request[0]) as response:
                    response.raise_for_status()
                    client.record(request[1], await response.read())
        await asyncio.gather(*(one_after_the_other() for _ in range(client.plan.outstanding)))


def run(client):
    if client.plan.extra == "uvloop":
        import uvloop
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(fetch_all(client))
    else:
        asyncio.run(fetch_all(client))


load.main(run)
