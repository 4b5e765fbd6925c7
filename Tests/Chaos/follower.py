"""Client of a chaos run, on the Python package: `follower.py PLAN JOURNAL RUNTIME [CANARY]`.

Executes the plan (`plans.py`) and records its requests and their ends in the journal (`journal.py`). Prints `idle`
when all have ended, and leaves when its standard input ends. `canaries.py` has the deliberate faults.
"""

import asyncio
import hashlib
import os
import sys
import time

import checkout

sys.path.insert(0, str(checkout.PACKAGE))

import canaries  # noqa: E402
import earshot_bus  # noqa: E402
from earshot_bus._handler import Transfer  # noqa: E402
from earshot_bus._messages import Fetch  # noqa: E402
from plans import PlannedRequest  # noqa: E402

OPTION_TYPES = {"retries": int, "max-bytes": int, "timeout": float, "deadline": float}
RECONNECT_SECONDS = 0.05


def planned_of(request):
    """Returns the name of a planned request from its ID, to which the package adds a number if it requests a lost body again."""
    return request.partition("~")[0]


class Pen:
    """Writer of the journal. Each line is one write call, before any consequence of the event."""

    def __init__(self, path):
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, verb, *words):
        line = " ".join([str(int(time.monotonic() * 1000)), verb, *map(str, words)])
        os.write(self._file, line.encode() + b"\n")


class Follower:
    """One client. `_open` holds transfers that have neither ended nor been dropped."""

    def __init__(self, bus, pen, steps):
        self._bus = bus
        self._pen = pen
        self._steps = steps
        self._handlers = {}
        self._open = {}
        self._watches = {}
        self._unfinished = 0
        self._done = asyncio.Event()
        self._tasks = set()

    async def run(self, root):
        """Returns when the plan is done and everything has ended."""
        loop = asyncio.get_running_loop()
        begin = loop.time()
        self._watch(root)
        self._left = len(self._steps)
        for line in self._steps:
            loop.call_at(begin + int(line.split(" ", 1)[0]) / 1000, self._begin, line)
        self._check()
        await self._done.wait()
        self._pen.note("idle")

    def _begin(self, line):
        task = asyncio.get_running_loop().create_task(self._step(line))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task):
        self._tasks.discard(task)
        if not task.cancelled() and task.exception():
            # A fault of this program: its journals are unreliable.
            print(f"follower: {task.exception()!r}", file=sys.stderr, flush=True)
            os._exit(70)

    async def _step(self, line):
        _, verb, *words = line.split(" ")
        self._left -= 1
        self._unfinished += 1
        if verb == "request":
            await self._submit(PlannedRequest.of(line))
        elif verb == "cancel" and words[0] in self._open:
            transfer = self._drop(words[0])
            await self._bus.cancel(transfer.handler, transfer.request)
            self._pen.note("cancelled", words[0])
        elif verb == "remove":
            self._pen.note("remove", words[0])
            self._drop_all(words[0])
            count = await self._bus.remove(words[0])
            self._pen.note("removed", words[0], count)
        elif verb == "watch":
            self._pen.note("watch", words[0])
            self._watch(words[0])
        elif verb == "unwatch":
            self._pen.note("unwatch", words[0])
            self._watches.pop(words[0]).close()
        self._unfinished -= 1
        self._check()

    async def _submit(self, planned):
        if planned.handler not in self._handlers:
            handler = self._handlers[planned.handler] = self._bus.handler(planned.handler)
            await handler.__aenter__()
        options = {key.replace("-", "_"): OPTION_TYPES.get(key, str)(value)
                   for key, value in planned.options.items() if key not in ("hold", "replace")}
        if planned.replaces:
            self._drop_all(planned.handler)
        self._pen.note("request", planned.name, planned.handler, planned.url)
        # The name is the ID, by which others recognise the terminal. The package chooses IDs itself.
        transfer = Transfer(self._bus, Fetch.make(planned.handler, planned.name, planned.url, options, planned.replaces), None)
        self._bus._begin(transfer)
        self._open[planned.name] = transfer
        hold = int(planned.options.get("hold", 0)) / 1000
        self._begin_following(planned.name, transfer, hold)

    def _begin_following(self, name, transfer, hold):
        task = asyncio.get_running_loop().create_task(self._follow(name, transfer, hold))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def _follow(self, name, transfer, hold):
        """Awaits the end, and records it unless the request was dropped."""
        broker, end = "-", None
        try:
            result = await transfer
            broker = self._bus.broker
            if result.body is None:
                await pause(hold)
            with result:
                if self._open.get(name) is transfer:
                    digest = hashlib.sha256(result.read()).hexdigest()
                    end = ["-", result.status, result.length, result.sha256 or "-", digest,
                           result.header("x-generation") or "-"]
        except earshot_bus.FetchFailed as failure:
            broker = self._bus.broker
            end = [failure.code, failure.status or "-", 0, "-", "-", "-"]
        except earshot_bus.Refused as refusal:
            self._pen.note("refused", name, refusal.code)
        except (earshot_bus.Closed, asyncio.CancelledError):
            return
        if self._open.get(name) is transfer:
            del self._open[name]
            if end:
                self._pen.note("end", name, broker, *end)
        self._check()

    def _watch(self, pattern):
        if pattern not in self._watches:
            watch = self._watches[pattern] = self._bus.watch(pattern)
            task = asyncio.get_running_loop().create_task(self._watch_terminals(watch))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    async def _watch_terminals(self, watch):
        async for terminal in watch:
            word = terminal.status if terminal.ok else terminal.code
            self._pen.note("received", terminal.handler, terminal.request, planned_of(terminal.request), word, self._bus.broker)
            if terminal.ok:
                terminal.release()

    def _drop(self, name):
        self._pen.note("drop", name)
        return self._open.pop(name)

    def _drop_all(self, pattern):
        for name, transfer in list(self._open.items()):
            if transfer.handler == pattern or (pattern.endswith("/") and transfer.handler.startswith(pattern)):
                self._drop(name)

    def _check(self):
        if not self._left and not self._open and not self._unfinished:
            self._done.set()


async def pause(seconds):
    if seconds:
        try:
            await asyncio.wait_for(asyncio.Event().wait(), seconds)
        except asyncio.TimeoutError:
            pass


async def connect(runtime, window, lease):
    """Connects to the bus. Retries without end while there is no broker."""
    while True:
        bus = earshot_bus.connect(runtime, window=window, lease=lease)
        try:
            return await bus.__aenter__()
        except earshot_bus.NoBroker:
            await pause(RECONNECT_SECONDS)


async def main():
    plan, journal, runtime, *canary = sys.argv[1:]
    with open(plan) as file:
        first, *steps = file.read().splitlines()
    pen = canaries.pen(canary[0], Pen(journal)) if canary else Pen(journal)
    root = f"chaos/c{os.path.basename(journal).split('.')[0]}/"
    loop = asyncio.get_running_loop()
    leaving = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), leaving.set)
    _, window, _, lease = first.split(" ")
    bus = await connect(runtime, int(window), int(lease))
    follower = Follower(bus, pen, steps)
    await follower.run(root)
    print("idle", flush=True)
    await leaving.wait()
    await bus.__aexit__(None, None, None)
    pen.note("bye")


if __name__ == "__main__":
    asyncio.run(main())
