"""bare: the bus without HTTP."""

import contextlib

from bench import asking, peers, servers
from bench.frame import Target

NAME = "bare"
TITLE = "Round trips through the broker to a worker that answers at once"

BODY = 64  # BARE_BODY_BYTES in bare.h.
REQUESTS = {1: 5000, 10: 50000, 100: 100000, 1000: 100000}

TARGETS = {100: [Target("earshot", "C broker, 6 frames", at_least=1),
                 Target("earshot", "C broker, 2 frames", at_least=0.8)]}


def of_earshot(name, bus, worker):
    """The bus without HTTP."""
    roles = {"server": lambda: [bus.broker], "workers": lambda: worker.pids}
    command = f"{bus.command}; bench-worker; ask-earshot --prefix bench:"
    return asking.Client(name, asking.compiled("ask-earshot"), command, bus.runtime, "", roles, True)


def clients(bus, worker, bare):
    """Clients of Earshot and of the minimal bus, the latter with messages of six frames and of two."""
    of_bare = {"server": lambda: [bare.broker], "workers": lambda: [bare.worker]}
    yield of_earshot("earshot", bus, worker)
    for frames in (6, 2):
        yield asking.Client(f"C broker, {frames} frames", asking.compiled("ask-bare"),
                            f"bare-broker; bare-worker; ask-bare --extra {frames}", bare.folder, str(frames), of_bare)


def rows(context, quick):
    with contextlib.ExitStack() as running:
        bus = running.enter_context(servers.Bus(workers=1))
        worker = running.enter_context(peers.BenchWorker(bus))
        bare = running.enter_context(peers.BareBus())
        for outstanding in (1, 100) if quick else (1, 10, 100, 1000):
            requests = REQUESTS[outstanding] // (10 if quick else 1)
            plan = asking.Plan(asking.Nothing("bench:", BODY), outstanding, requests)
            yield context.measure(f"{outstanding} outstanding", "round trips/s",
                                  [client.contender(plan) for client in clients(bus, worker, bare)],
                                  TARGETS.get(outstanding, []))
