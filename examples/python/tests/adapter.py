"""adapter.py FOLDER [lease=SECONDS]: executes the commands on standard input, for the tests common to all languages
(protocols/README.md). Writes bodies to files in FOLDER.

The package chooses request IDs itself, so the IDs of the commands only name transfers. The package reports removals,
replacements and cancellations by the program itself only to the tasks that await them, and no line reports them.
"""

import asyncio
import itertools
import pathlib
import sys

import earshot_bus

TYPES = {"retries": int, "max-bytes": int, "progress": int, "timeout": float, "deadline": float}
NAMES = {"max-bytes": "max_bytes", "progress": "progress_ms"}


class Adapter:
    def __init__(self, bus, folder):
        self._bus = bus
        self._folder = folder
        self._counter = itertools.count()
        self._handlers = {}
        self._transfers = {}
        self._given_up = set()
        self._tasks = set()
        self.output = asyncio.Queue()

    async def fetch(self, name, request, url, *fields):
        options = dict(field.split("=", 1) for field in fields)
        options = {NAMES.get(key, key): TYPES.get(key, str)(value) for key, value in options.items()}
        if "progress_ms" in options:
            options["on_progress"] = lambda step: self.output.put_nowait(
                f"progress {name} {request} {step.received}/{'-' if step.total is None else step.total}")
        if name not in self._handlers:
            self._handlers[name] = await self._bus.handler(name).__aenter__()
        if options.pop("replace", "no") == "yes":
            self._cancel(name)
            ending = self._handlers[name].replace(url, **options)
        else:
            self._transfers[name, request] = ending = self._handlers[name].start(url, **options)
        self._begin(self._await(name, request, ending))

    async def remove(self, pattern):
        self._cancel(pattern)
        count = await self._bus.remove(pattern)
        self.output.put_nowait(f"removed {pattern} {count}")

    async def cancel(self, name, request):
        self._transfers[name, request].cancel()

    async def subscribe(self, pattern):
        watch = self._bus.watch(pattern)
        await self._bus.ping()
        self.output.put_nowait("listening")

        async def receive():
            async for terminal in watch:
                self._report(terminal.handler, terminal.request, terminal)
        self._begin(receive())

    def _begin(self, work):
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _cancel(self, pattern):
        self._given_up.update(key for key in self._transfers
                              if key[0] == pattern or pattern.endswith("/") and key[0].startswith(pattern))

    async def _await(self, name, request, ending):
        self._given_up.discard((name, request))
        try:
            self._report(name, request, await ending)
        except asyncio.CancelledError:
            self.output.put_nowait(f"cancelled {name} {request}")
        except earshot_bus.FetchFailed as failure:
            if failure.code != "removed" or (name, request) not in self._given_up:
                self._report(name, request, failure)
        except earshot_bus.Refused as error:
            self.output.put_nowait(f"error {error}")

    def _report(self, name, request, terminal):
        path = self._folder / str(next(self._counter))
        if terminal.ok:
            terminal.save(path)
            self.output.put_nowait(f"result {name} {request} {terminal.status} {path}")
        else:
            path.write_bytes(terminal.body)
            self.output.put_nowait(f"failed {name} {request} {terminal.code} {terminal.status or '-'} {path}")


async def main():
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    options = {name: float(value) for name, _, value in (option.partition("=") for option in sys.argv[2:])}
    try:
        async with earshot_bus.connect(**options) as bus:
            adapter = Adapter(bus, pathlib.Path(sys.argv[1]))
            print("ready", flush=True)
            while line := (await lines.readline()).decode().split():
                if line[0] == "receive":
                    print(await adapter.output.get(), flush=True)
                else:
                    adapter._begin(getattr(adapter, line[0])(*line[1:]))
    except earshot_bus.NoBroker:
        print("gone", flush=True)
    except earshot_bus.EarshotError as error:
        print(f"error {error}", flush=True)


asyncio.run(main())
