"""churn: a list that scrolls fast, and the share of bytes fetched for cancelled requests."""

import contextlib
import json
import urllib.request

from bench import cpu, peers, servers
from bench.frame import Contender, Failed, Sample, Target
from bench.programs import run

NAME = "churn"
TITLE = "50 handlers of a list that is scrolled, 64 KiB from an origin that takes 100 ms"

HANDLERS, SIZE, DELAY_MS, TICK_MS = 50, 65536, 100, 20

SCROLLS = [
    # title, plan, connections to the origin, whether the bus has its cache, note
    ("one handler replaces each 20 ms", ["--rows", 1], 100, False,
     "Each request stays open for a second. A client that fetches at once gets all 50 answers a second in time."),
    ("five handlers replace each 20 ms, 6 connections", ["--rows", 5], 6, False,
     "Each request stays open for 200 ms. 6 connections bring at most 60 answers a second, so the others are cancelled."),
    ("all handlers replace each 20 ms, for half of each second", ["--positions"], 100, True,
     "A handler is a place in the window and requests the next row at each tick, so one handler after the other requests "
     "a row. With a shared fetch and a cache the row arrives while the list moves; a client that cancels and requests "
     "again gets it when the list rests."),
]


class Origin(peers.Program):
    """C program that answers after a delay, and counts its requests and bytes."""

    def __init__(self):
        self.port = servers.free_port()
        super().__init__("slow-origin", self.port, DELAY_MS, SIZE, is_ready=lambda: servers.answers(self.port))

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def statistics(self):
        with urllib.request.urlopen(f"{self.url}/statistics", timeout=10) as answer:
            return json.load(answer)


def scroll(script, origin, plan, server, pids):
    """One round: answers a second that arrived while their request was open, and the share of wasted bytes."""
    before = origin.statistics()
    arguments = [peers.python(), peers.script(script), "--prefix", f"{origin.url}/", "--handlers", HANDLERS,
                 "--tick", TICK_MS, "--size", SIZE, *plan, "--server", server]
    with cpu.Meter(pids) as meter:
        found = json.loads(run(arguments, env=peers.scripts_environment(), timeout=120).stdout)
    after = origin.statistics()
    did = {name: after[name] - before[name] for name in after}
    if found["rows"] > did["answered"] or found["asked"] < found["wanted"]:
        raise Failed(f"more answers than there were: {found}, origin {did}")
    wasted = did["bytes"] - found["rows"] * SIZE
    return Sample(found["wanted"] / found["seconds"], {
        "asked": found["asked"], "origin_requests": did["begun"],
        "wasted_percent": 100 * wasted / did["bytes"] if did["bytes"] else 0,
        "client_ms": found["cpu"] * 1e3, "server_ms": meter.seconds * 1e3})


def ours(origin, plan, connections, has_cache):
    def run_round(_):
        with servers.Bus(1, connections, slots=200, cache=has_cache) as bus:
            return scroll("churn_earshot.py", origin, plan, bus.runtime, bus.pids)
    command = f"earshot serve --origin-limit {connections} --workers 1 --slots 200" + ("" if has_cache else " --no-cache")
    return Contender("earshot, asyncio", f"{command}; churn_earshot.py {' '.join(map(str, plan))}", run_round, True)


def aiohttp(origin, plan):
    def run_round(_):
        return scroll("churn_aiohttp.py", origin, plan, "none", [])
    return Contender("aiohttp", f"churn_aiohttp.py {' '.join(map(str, plan))}", run_round)


def rows(context, quick):
    seconds = 1 if quick else 10
    with contextlib.ExitStack() as running:
        origin = running.enter_context(Origin())
        for title, moves, connections, has_cache, note in SCROLLS[1:] if quick else SCROLLS:
            plan = [*moves, "--connections", connections, "--seconds", seconds]
            contenders = [ours(origin, plan, connections, has_cache), aiohttp(origin, plan)]
            targets = [Target("earshot, asyncio", "aiohttp", at_least=2),
                       Target("earshot, asyncio", of="wasted_percent", at_most=10, by="value")]
            yield context.measure(title, "wanted answers/s", contenders, targets, note=note)
