"""cached: repeated URLs that are fresh in the cache."""

import contextlib

from bench import asking, peers, servers
from bench.frame import Target
from bench.suites import bare

NAME = "cached"
TITLE = "Repeated fresh URLs through the bus, 1 KiB"

FRESH = 'add_header Cache-Control "max-age=86400";'
URLS = 1000
REQUESTS = {1: 5000, 10: 50000, 100: 100000, 1000: 100000}
ANSWERS = 60000
"""Target in responses per second, unless OF_BARE of the bare bus is less."""
OF_BARE = 0.7


def rows(context, quick):
    with contextlib.ExitStack() as running:
        origin = running.enter_context(servers.Nginx(counted=True, more=FRESH))
        bus = running.enter_context(servers.Bus(workers=1, cache=True))
        worker = running.enter_context(peers.BenchWorker(bus))
        files = asking.Files(origin.url, URLS, 1024)
        roles = {"server": lambda: [bus.broker], "workers": lambda: bus.workers, "origin": lambda: origin.pids}
        cached = asking.Client("earshot, cached", asking.compiled("ask-earshot"), f"{bus.command}; ask-earshot",
                               bus.runtime, "", roles, True, counted=origin.requests)
        own = bare.of_earshot("earshot, bare bus", bus, worker)
        cached.ask(asking.Plan(files, 100, URLS), 0)  # Fills the cache.
        for outstanding in (100,) if quick else (1, 10, 100, 1000):
            requests = REQUESTS[outstanding] // (10 if quick else 1)
            contenders = [cached.contender(asking.Plan(files, outstanding, requests)),
                          own.contender(asking.Plan(asking.Nothing("bench:", bare.BODY), outstanding, requests))]
            targets = []
            if outstanding == 100:
                targets = [Target(cached.name, at_least=ANSWERS, by="value"),
                           Target(cached.name, own.name, at_least=OF_BARE)]
            yield context.measure(f"{outstanding} outstanding", "answers/s", contenders, targets,
                                  note="Either target is enough.")
