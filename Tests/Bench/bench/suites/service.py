"""service: clients in C, Python and Swift send requests to a running broker."""

import contextlib

from bench import load, peers, servers, swift
from bench.frame import Target

NAME = "service"
TITLE = "A client asks a running service, 1 KiB"

ORIGIN_LIMIT = 100
SLOTS = 200
GEARMAN_WORKERS = 16
"""Pool size, the fastest of 4 to 64 at 100 outstanding."""
REQUESTS = {1: 2000, 10: 8000, 100: 16000, 1000: 16000}
SLOW = 0.25
"""Share of the requests that clients in Python and Swift send."""
LANGUAGES = ["C", "Python", "Swift"]

TARGETS = {
    ("C", 1): [Target("earshot", "zurl", of="p50_us", at_most=0.85)],
    ("C", 100): [Target("earshot", "zurl", at_least=4), Target("earshot", "gearman", at_least=3)],
    ("Python", 100): [Target("earshot, blocking", "aiohttp", at_least=2),
                      Target("earshot, asyncio", "aiohttp", at_least=1.2),
                      Target("earshot, uvloop", "aiohttp, uvloop", at_least=1.2)],
    ("Swift", 100): [Target("earshot", "async-http-client", at_least=1)],
}


class Services:
    """The contenders and their clients."""

    def __init__(self, running, bus=None, **origin):
        self.origin = running.enter_context(servers.Nginx(**origin))
        self.bus = running.enter_context(bus or servers.Bus(None, ORIGIN_LIMIT, SLOTS))
        self.zurl = running.enter_context(peers.Zurl())
        self.gearmand = running.enter_context(peers.Gearmand())
        self._pool = running.enter_context(peers.GearmanWorkers(self.gearmand, GEARMAN_WORKERS))
        self.counted = self.origin.requests if origin.get("counted") else None

    def clients(self, language):
        """Returns the clients of a language."""
        return {"C": self._c, "Python": self._python, "Swift": self._swift}[language]()

    def _c(self):
        yield self._earshot("earshot", load.compiled("load-earshot"), "load-earshot")
        yield self.of_zurl("zurl", load.compiled("load-zurl"), "load-zurl")
        yield self.of_gearman()
        yield self._alone("libcurl in process", load.compiled("load-curl"), "load-curl")

    def _python(self):
        for form in ("blocking", "asyncio", "uvloop"):
            yield self._earshot(f"earshot, {form}", load.scripted("load_earshot.py"), "load_earshot.py", form)
        yield self.of_aiohttp("aiohttp", "asyncio")
        yield self.of_aiohttp("aiohttp, uvloop", "uvloop")
        yield self.of_pycurl()
        yield self.of_zurl("zurl", load.scripted("load_zurl.py"), "load_zurl.py")

    def _swift(self):
        yield self._earshot("earshot", swift.program("bus", "load-earshot"), "swift/bus load-earshot")
        yield self._alone("async-http-client", swift.program("http", "load-http"), "swift/http load-http")

    def of_aiohttp(self, name, loop):
        return self._alone(name, load.scripted("load_aiohttp.py"), "load_aiohttp.py", loop)

    def of_pycurl(self):
        return self._alone("pycurl multi", load.scripted("load_pycurl.py"), "load_pycurl.py")

    def of_gearman(self, extra=""):
        name = "gearman, " + extra if extra else "gearman"
        command = f"{peers.Gearmand.COMMAND}; gearman-worker PORT {GEARMAN_WORKERS}; load-gearman"
        roles = {"server": lambda: self.gearmand.pids, "workers": lambda: self._pool.pids}
        return self._client(name, load.compiled("load-gearman"), command, self.gearmand.port, extra, roles)

    def of_zurl(self, name, program, command):
        roles = {"server": lambda: self.zurl.pids}
        return self._client(name, program, f"zurl; {command}", self.zurl.endpoint, "", roles)

    def _earshot(self, name, program, command, extra=""):
        roles = {"server": lambda: [self.bus.broker], "workers": lambda: self.bus.workers}
        return self._client(name, program, f"{self.bus.command}; {command}", self.bus.runtime, extra, roles, True)

    def _alone(self, name, program, command, extra=""):
        return self._client(name, program, command, "none", extra, {})

    def _client(self, name, program, command, server, extra, roles, is_ours=False):
        roles = {**roles, "origin": lambda: self.origin.pids}
        command += f" --extra {extra}" if extra else ""
        return load.Client(name, program, command, server, extra, roles, is_ours, self.counted)


def rows(context, quick):
    with contextlib.ExitStack() as running:
        services = Services(running)
        files = load.Files(services.origin.url, 10000, 1024)
        for language in LANGUAGES[:1] if quick else LANGUAGES:
            for outstanding in (1, 10, 100, 1000):
                if quick and not TARGETS.get((language, outstanding)):
                    continue
                requests = REQUESTS[outstanding] * (1 if language == "C" else SLOW) / (10 if quick else 1)
                requests = max(outstanding, int(requests))
                plan = load.Plan(files, outstanding, requests)
                contenders = [client.contender(plan) for client in services.clients(language)]
                yield context.measure(f"{language}, {outstanding} outstanding", "answers/s", contenders,
                                      TARGETS.get((language, outstanding), []))
