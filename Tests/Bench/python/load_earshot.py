"""Requests from an Earshot bus by examples/python: SERVER is its runtime folder, EXTRA `blocking`, `asyncio` or
`uvloop`."""

import asyncio
import collections
import sys

import load
import earshot_bus
import earshot_bus.blocking


def blocking(client):
    with earshot_bus.blocking.connect(client.plan.server) as bus, bus.handler() as handler:
        client.ready()
        outstanding = collections.deque()
        while client.answered < client.plan.requests:
            while len(outstanding) < client.plan.outstanding and (request := client.next()):
                outstanding.append((handler.start(request[0]), request[1]))
            transfer, requested = outstanding.popleft()
            client.record(requested, transfer.result().read())


async def asynchronous(client):
    async with earshot_bus.connect(client.plan.server) as bus, bus.handler() as handler:
        client.ready()

        async def one_after_the_other():
            while request := client.next():
                result = await handler.fetch(request[0])
                client.record(request[1], result.read())
        await asyncio.gather(*(one_after_the_other() for _ in range(client.plan.outstanding)))


def run(client):
    if client.plan.extra == "blocking":
        blocking(client)
    elif client.plan.extra == "asyncio":
        asyncio.run(asynchronous(client))
    elif client.plan.extra == "uvloop":
        import uvloop
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(asynchronous(client))
    else:
        sys.exit("EXTRA is blocking, asyncio or uvloop")


load.main(run)
