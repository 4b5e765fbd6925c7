"""What a fault of a cluster costs the origin: bin/chaos --costs.

Three nodes, Redis with two replicas and three sentinels are in network namespaces. Each node has one `earshot get --json`, and all get the
same URLs at a steady pace. A fault begins after two seconds. Journals of the commands and of the origin show afterwards

- that each URL has one line with the right digest,
- which part of the URLs was fetched once more, at most the percentage that docs/cluster.md has for the fault, and
- how far and how long transfers exceeded the limit of the origin: at most by the share of one node, for a second.

Needs root, for network namespaces.
"""

import argparse
import contextlib
import dataclasses
import pathlib
import signal
import subprocess
import sys
import threading
import time
import typing

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "Tests/Integration"))

from cluster import LIMIT, Disagreement, Journal, Load, Process  # noqa: E402
from support.bridge import HOME, Bridge, obstacle  # noqa: E402
from support.engine import SentinelEngine  # noqa: E402
from support.harness import temporary_folder  # noqa: E402
from support.nodes import Cluster  # noqa: E402
from support.origin import Origin  # noqa: E402
from support.processes import eventually  # noqa: E402

NODES = 3
SHARE = LIMIT // NODES
"""Transfers by which a fault may exceed the limit for at most `EXCESS_SECONDS`: the share of one node."""
EXCESS_SECONDS = 1
URLS, RATE = 800, 100
SIZES = [1_000, 10, 5_000, 1_000, 20_000]
BEGIN = 2
"""Seconds from the beginning of the load to the fault."""

CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static long offset(void) {
  FILE *file = fopen(getenv("CLOCK_OFFSET"), "r");
  long seconds = 0;
  if (file && fscanf(file, "%ld", &seconds) != 1) seconds = 0;
  if (file) fclose(file);
  return seconds;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  static int (*real)(struct timeval *, void *);
  if (!real) real = dlsym(RTLD_NEXT, "gettimeofday");
  int result = real(now, zone);
  now->tv_sec += offset();
  return result;
}
"""
"""Adds the number of a file to the clock of a program."""


class Trial:
    """A running cluster under load, and its faults: each method begins one, and returns the function that ends it or None."""

    def __init__(self, cluster, engine, machines, clock):
        self.cluster, self.engine, self.machines, self.clock = cluster, engine, machines, clock
        self.dead = set()
        self._pace = threading.Event()

    def wait(self, seconds):
        self._pace.wait(seconds)

    def role(self, name, number):
        with Process(self.cluster[0].pid_of(name)) as process:
            process.signal(number)

    def none(self):
        pass

    def broker(self):
        self.role("broker", signal.SIGKILL)

    def worker(self):
        self.role("worker", signal.SIGKILL)

    def gateway(self):
        self.role("node-gateway", signal.SIGKILL)

    def puller(self):
        self.role("puller", signal.SIGKILL)

    def supervisor(self):
        self.cluster[0].kill_service()
        self.wait(1)
        self.cluster[0].start_again()

    def node(self):
        self.dead.add(self.cluster[0].address)
        self.cluster[0].kill_all()

    def cut_node(self):
        others = self.machines[1:]
        self.machines[0].isolate(others)
        self.wait(8)
        self.machines[0].rejoin(others)

    def primary(self):
        server = self.engine.primary
        server.kill()
        self.wait(5)
        server.restart()

    def restarted_primary(self):
        self.engine.primary.restart()

    def two_sentinels(self):
        for sentinel in self.engine.sentinels[:2]:
            sentinel.kill()

    def lost_data(self):
        self.engine.execute("FLUSHALL")

    def move_clock(self, seconds):
        self.clock.write_text(str(seconds))
        eventually(lambda: abs(int(self.engine.execute("TIME")[0]) - time.time() - seconds) < 5, "the engine's clock has moved")

    def clock_ahead(self):
        self.move_clock(60)

    def clock_back(self):
        self.move_clock(-60)

    def sentinels_and_primary(self):
        primary = self.engine.primary
        for server in [*self.engine.sentinels[:2], primary]:
            server.kill()
        self.wait(8)
        for server in [primary, *self.engine.sentinels[:2]]:
            server.restart()

    def eviction(self):
        primary = self.engine.primary
        primary.execute("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        primary.execute("CONFIG", "SET", "maxmemory", "100mb")
        self.wait(5)
        primary.execute("CONFIG", "SET", "maxmemory-policy", "noeviction")

    def dead_bodies(self):
        gateway = Process(self.cluster[0].pid_of("node-gateway"))
        gateway.signal(signal.SIGSTOP)
        return lambda: (gateway.signal(signal.SIGCONT), gateway.close())


@dataclasses.dataclass
class Fault:
    name: str
    begin: typing.Callable
    bound: int
    """Percentage of the URLs that may be fetched twice, as docs/cluster.md has it."""


FAULTS = {fault.begin.__name__.replace("_", "-"): fault for fault in [
    Fault("none", Trial.none, 2),
    Fault("broker killed", Trial.broker, 5),
    Fault("worker killed", Trial.worker, 5),
    Fault("gateway of bodies killed", Trial.gateway, 5),
    Fault("puller killed", Trial.puller, 5),
    Fault("supervisor killed, back after 1 s", Trial.supervisor, 5),
    Fault("node killed", Trial.node, 5),
    Fault("node cut off for 8 s", Trial.cut_node, 20),
    Fault("primary killed", Trial.primary, 5),
    Fault("primary restarted at once", Trial.restarted_primary, 5),
    Fault("two sentinels killed", Trial.two_sentinels, 5),
    Fault("FLUSHALL", Trial.lost_data, 20),
    Fault("engine's clock 60 s ahead", Trial.clock_ahead, 20),
    Fault("engine's clock 60 s back", Trial.clock_back, 20),
    Fault("two sentinels and the primary gone for 8 s", Trial.sentinels_and_primary, 70),
    Fault("eviction on for 5 s", Trial.eviction, 70),
    Fault("gateway of bodies hangs", Trial.dead_bodies, 25),
]}


@dataclasses.dataclass
class Costs:
    """Journal of the origin."""

    urls: int
    fetches: int
    most: int
    """Transfers at once."""
    above: float
    """Seconds with more transfers than the limit."""
    far_above: float
    """Seconds with more than the limit and the share of one node."""

    @classmethod
    def of(cls, log, limit=LIMIT, share=SHARE):
        targets = {request.target for request in log}
        changes = sorted([(request.started, 1) for request in log]
                         + [(end, -1) for request in log if (end := request.ended or request.aborted)])
        most, running, last, above, far_above = 0, 0, 0, 0, 0
        for moment, change in changes:
            above += moment - last if running > limit else 0
            far_above += moment - last if running > limit + share else 0
            running, last = running + change, moment
            most = max(most, running)
        return cls(len(targets), len(log), most, above, far_above)

    @property
    def twice(self):
        """Percentage of the URLs that was fetched once more."""
        return 100 * (self.fetches - self.urls) / max(1, self.urls)


def clock_shim(folder):
    """Builds the library that moves a program's clock. Returns it and the file of the offset."""
    source, library, offset = folder / "clock.c", folder / "clock.so", folder / "offset"
    source.write_text(CLOCK)
    offset.write_text("0")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library, offset


def measure(fault, urls, rate):
    """Runs one fault. Returns its `Costs`."""
    with contextlib.ExitStack() as stack:
        bridge = stack.enter_context(Bridge())
        machines = [bridge.machine() for _ in range(6)]
        folder = temporary_folder()
        library, clock = clock_shim(folder)
        for machine in machines[NODES:]:
            machine.prefix = [*machine.prefix, "env", f"LD_PRELOAD={library}", f"CLOCK_OFFSET={clock}"]
        origin = stack.enter_context(Origin(host=HOME))
        engine = stack.enter_context(SentinelEngine(machines[NODES:]))
        cluster = stack.enter_context(Cluster(engine, machines=machines[:NODES], members=NODES, origin_limit=LIMIT, crashes=True))
        trial = Trial(cluster, engine, machines, clock)
        journals = [Journal(node) for node in cluster]
        load = Load(journals, origin, rate, SIZES, urls)
        load.start()
        trial.wait(BEGIN)
        repair = fault.begin(trial)
        load.join()
        try:
            for journal in journals:
                if journal.address not in trial.dead:
                    journal.end(load.digests)
        finally:
            if repair:
                repair()
        for server in engine.sentinels:
            if not server.program.running:
                server.restart()
        return Costs.of(origin.log())


def violations(fault, costs):
    """Bounds that were exceeded."""
    found = []
    if costs.twice > fault.bound:
        found.append(f"{costs.twice:.1f} % were fetched twice, at most {fault.bound} % are permitted")
    if costs.above > EXCESS_SECONDS or costs.far_above:
        found.append(f"up to {costs.most} transfers at once, {costs.above:.1f} s above the limit of {LIMIT}")
    return found


def table():
    """Names and bounds of the table in docs/cluster.md."""
    text = (ROOT / "docs/cluster.md").read_text().partition("## What a fault costs the origin")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {row[0]: row[1] for row in rows[2:]}


def main():
    parser = argparse.ArgumentParser(prog="bin/chaos --costs", description=__doc__.splitlines()[0])
    parser.add_argument("--fault", action="append", choices=FAULTS, help="only these faults")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--urls", type=int, default=URLS)
    parser.add_argument("--rate", type=int, default=RATE, help="URLs a second")
    options = parser.parse_args()
    reason = obstacle()
    if reason:
        sys.exit(f"chaos: no network namespaces: {reason}")
    found = []
    print(f"{'fault':44} {'twice, %':>8} {'at once':>7} {'above, s':>8}")
    for _ in range(options.rounds):
        for name in options.fault or FAULTS:
            fault = FAULTS[name]
            try:
                costs = measure(fault, options.urls, options.rate)
            except (Disagreement, AssertionError) as error:
                found.append(f"{fault.name}: {error}")
                continue
            print(f"{fault.name:44} {costs.twice:8.1f} {costs.most:7} {costs.above:8.2f}", flush=True)
            found += [f"{fault.name}: {violation}" for violation in violations(fault, costs)]
    for violation in found:
        print(f"chaos: {violation}", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
