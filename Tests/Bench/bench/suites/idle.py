"""Idle load beside active load: transfers from a silent server, and idle clients.

Several buses run at once, each with another number of waiting transfers or clients. A waiting transfer may cost memory
and wake-ups, but must not slow down active transfers.
"""

import contextlib
import json
import shutil
import sys
import threading

from bench import cpu, places
from bench.data import Files
from bench.frame import Contender, Sample, Target
from bench.programs import Server, run
from bench.servers import Bus, Nginx, answers, free_port, private_folder

NAME = "idle"
TITLE = "Waiting transfers beside busy ones"

BUSY = 10


def rows(context, quick):
    file = Files(1, 1_024)
    silent_counts = [0, 500] if quick else [0, 1_000, 5_000]
    clients = 200 if quick else 1_000
    with contextlib.ExitStack() as stack:
        origin = stack.enter_context(Nginx())
        silent = stack.enter_context(Silent())
        buses = {count: stack.enter_context(_holding("transfers", count, silent)) for count in silent_counts}
        url = f"{origin.url}/{file.paths()[0]}"
        seconds = 0.3 if quick else 2
        none = _beside(0)
        yield context.measure(
            f"{BUSY} busy transfers of 1 KiB", "requests/s",
            [_busy(buses[count], count, seconds, url) for count in reversed(silent_counts)],
            [Target(_beside(count), none, at_least=0.7) for count in silent_counts if count])
        with _holding("clients", clients, silent) as bus:
            resting = [(f"{count:,} silent transfers" if count else "nothing", buses[count]) for count in silent_counts]
            resting.append((f"{clients:,} idle clients", bus))
            yield context.measure(
                "Nothing happens", "wake-ups/s", [_resting(name, bus, seconds) for name, bus in resting], is_rate=False)


def _beside(count):
    return f"beside {count:,} silent"


@contextlib.contextmanager
def _holding(what, count, silent):
    """A bus with this many waiting transfers or clients."""
    with Bus(origin_limit=10_000, slots=10_000, arguments=["--requests", "100000"]) as bus:
        if not count:
            yield bus
            return
        words = [what, count] + ([silent.url] if what == "transfers" else [])
        with Holder([places.PROGRAMS / "hold", *words], bus) as holder:
            if what == "transfers":
                holder.await_condition(lambda: running(bus) == count, timeout=60)
            yield bus


def running(bus):
    """Returns the number of running transfers."""
    # Further pages of origins are further lines.
    first = run([places.earshot(), "status", "--json"], env=bus.env).stdout.splitlines()[0]
    return json.loads(first)["flights-now"]["running"]


def _busy(bus, count, seconds, url):
    def go(_):
        pids = bus.pids
        with cpu.Meter(pids) as meter:
            done = run([places.PROGRAMS / "busy", BUSY, seconds, url, 1_024], env=bus.env)
        rate = float(done.stdout)
        return Sample(rate, {"cpu_us": (done.cpu_seconds + meter.seconds) / (rate * seconds) * 1e6,
                             "resident_mib": sum(cpu.resident(pid) for pid in pids) / 2**20})
    return Contender(_beside(count), f"busy {BUSY} {seconds} URL 1024  # beside {bus.command}", go, is_ours=True)


def _resting(name, bus, seconds):
    def go(_):
        pids = bus.pids
        before = sum(cpu.wakeups(pid) for pid in pids)
        with cpu.Meter(pids) as meter:
            threading.Event().wait(seconds)  # The measured interval must be idle.
        wakeups = sum(cpu.wakeups(pid) for pid in pids) - before
        return Sample(wakeups / seconds, {"cpu_us_per_s": meter.seconds / seconds * 1e6,
                                          "resident_mib": sum(cpu.resident(pid) for pid in pids) / 2**20})
    return Contender(name, bus.command, go, is_ours=True)


class Silent(Server):
    """Origin that never answers."""

    def __init__(self):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/"
        super().__init__("silent", [sys.executable, "-B", places.SOURCES / "bench/silent.py", self.port],
                         private_folder("silent"))

    def await_readiness(self):
        self.await_condition(lambda: answers(self.port))

    def __exit__(self, *error):
        super().__exit__(*error)
        shutil.rmtree(self._folder, ignore_errors=True)


class Holder(Server):
    """Program that holds the waiting transfers or clients."""

    def __init__(self, arguments, bus):
        super().__init__("hold", arguments, bus.folder, env=bus.env)

    def await_readiness(self):
        self.await_condition(lambda: "ready" in self.log.read_text(errors="replace"), timeout=60)
