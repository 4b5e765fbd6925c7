"""door: the HTTP door, and caches that share fetches as well, before one origin.

Squid with collapsed_forwarding (squid.conf.documented); Varnish, which always shares (varnishd(1)); nginx with proxy_cache_lock
(ngx_http_proxy_module). Each keeps the bodies in memory and has no access log.
"""

import contextlib
import dataclasses
import re

from bench import load, peers, servers
from bench.frame import Contender, Target
from bench.suites import service, shared

FRESH = 'add_header Cache-Control "max-age=86400";'

NAME = "door"
TITLE = "Programs that speak HTTP, 100 connections"

CONNECTIONS = 100
URLS = 1000
"""Of the hits."""
HITS = {1024: 50_000, 65_536: 10_000}
MISSES = {"cacheable": {1024: 300, 65_536: 100}, "uncacheable": {1024: 100, 65_536: 30}}
"""URLs, each of which all connections request. nginx holds those of an uncacheable one back for five seconds."""
FIELDS = {"cacheable": FRESH, "uncacheable": 'add_header Cache-Control "no-store";'}

SQUID = """
http_port 127.0.0.1:{front} accel defaultsite=127.0.0.1 no-vhost
cache_peer 127.0.0.1 parent {port} 0 no-query no-digest originserver
http_access allow all
collapsed_forwarding on
cache_mem 512 MB
maximum_object_size_in_memory 1 MB
memory_cache_shared off
access_log none
cache_log {folder}/cache.log
pid_filename {folder}/squid.pid
coredump_dir {folder}
visible_hostname bench
pinger_enable off
shutdown_lifetime 0 seconds
"""


class Door(servers.Bus):
    COMMAND = "earshot serve --http 0"

    def __init__(self, origin):
        super().__init__(None, service.ORIGIN_LIMIT, service.SLOTS, cache=True, arguments=["--http", "0"])
        self._origin = origin

    @property
    def base(self):
        """Start of the URLs of the origin's files."""
        return f"{re.search('door listens at (http:.*)/', self.log.read_text())[1]}/{self._origin.url}"


class Front(peers.OwnServer):
    """A cache at a port of its own."""

    def __init__(self, name, command, front):
        super().__init__(name, command, self.folder)
        self.base = f"http://127.0.0.1:{front}"
        self._front = front

    def await_readiness(self):
        # Varnish compiles its configuration first.
        self.await_condition(lambda: servers.answers(self._front), timeout=30)


class Squid(Front):
    COMMAND = "squid -N, collapsed_forwarding on"

    def __init__(self, origin):
        self.folder = servers.private_folder("squid")
        front, file = servers.free_port(), self.folder / "squid.conf"
        file.write_text(SQUID.format(front=front, port=origin.port, folder=self.folder))
        # Started by root, it changes to a user of its own.
        self.folder.chmod(0o777)
        self.folder.parent.chmod(0o711)
        super().__init__("squid", ["squid", "-N", "-f", file], front)


class Varnish(Front):
    COMMAND = "varnishd -s malloc,512m"

    def __init__(self, origin):
        self.folder = servers.private_folder("varnish")
        front = servers.free_port()
        super().__init__("varnish", ["varnishd", "-F", "-j", "none", "-n", self.folder / "state", "-s", "malloc,512m",
                                     "-a", f"127.0.0.1:{front}", "-b", f"127.0.0.1:{origin.port}"], front)


class Nginx(shared.Locked):
    COMMAND = "nginx, proxy_cache_lock on"

    @property
    def base(self):
        return f"http://127.0.0.1:{self.front}"


SERVERS = {"earshot": Door, "squid": Squid, "varnish": Varnish, "nginx": Nginx}


def rows(context, quick):
    part = 10 if quick else 1
    for size in (1024,) if quick else (1024, 65_536):
        yield hits(context, size, HITS[size] // part)
        for kind, urls in MISSES.items():
            yield misses(context, size, kind, urls[size] // part)


def hits(context, size, requests):
    with contextlib.ExitStack() as running:
        origin = running.enter_context(servers.Nginx(counted=True, more=FRESH))
        plan = load.Plan(load.Files(origin.url, URLS, size), CONNECTIONS, requests)
        contenders = []
        for name, kind in SERVERS.items():
            server = running.enter_context(kind(origin))
            run_round(server, origin, dataclasses.replace(plan, requests=URLS), 0)  # Fills the cache.
            contenders.append(contender(name, plan, lambda number, server=server: run_round(server, origin, plan, number)))
        return context.measure(f"hits, {size >> 10} KiB", "answers/s", contenders, [Target("earshot", "squid", at_least=1)])


def misses(context, size, kind, urls):
    def fresh(server, number):
        with server(origin) as running:
            return run_round(running, origin, plan, number)
    with servers.Nginx(counted=True, more=FIELDS[kind]) as origin:
        plan = load.Plan(load.Files(origin.url, urls, size), 1, urls, CONNECTIONS)
        return context.measure(
            f"{kind} misses, {size >> 10} KiB", "answers/s",
            [contender(name, plan, lambda number, server=server: fresh(server, number)) for name, server in SERVERS.items()],
            [Target("earshot", name, at_least=1) for name in SERVERS if name != "earshot"],
            note=f"All connections request the same {urls} URLs in the same order, of a server that just began.")


def contender(name, plan, run):
    command = f"{SERVERS[name].COMMAND}; load-curl --clients {plan.clients} --outstanding {plan.outstanding}"
    return Contender(name, command, run, name == "earshot")


def run_round(server, origin, plan, number):
    roles = {"server": lambda: server.pids, "origin": lambda: origin.pids}
    client = load.Client("", load.compiled("load-curl"), "", "none", "", roles, counted=origin.requests)
    return client.run_round(dataclasses.replace(plan, files=load.Behind(plan.files, server.base)), number)
