"""shared: many clients request the same URLs."""

import contextlib
import dataclasses
import shutil

from bench import load, servers
from bench.frame import Contender, Target
from bench.suites import service

NAME = "shared"
TITLE = "Clients that ask for the same 1,000 URLs, 1 KiB"

OUTSTANDING = 10
"""Requests of each client."""

SAMPLED = 25000
"""Responses for contenders that fetch each time, so that they do not take minutes."""
FETCHES_EACH_TIME = ["zurl", "gearman", "libcurl in process", "aiohttp, uvloop", "pycurl multi"]

LOCKED = """
    proxy_cache_path {kept} keys_zone=kept:10m max_size=1g;
    upstream origin {{ server 127.0.0.1:{port}; keepalive 64; }}
    server {{
        listen 127.0.0.1:{front} backlog=4096;
        location / {{
            proxy_pass http://origin;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_cache kept;
            proxy_cache_lock on;
        }}
    }}
"""
"""nginx as a cache in front of the origin, by ngx_http_proxy_module: one upstream request for concurrent requests, and
connections to the origin kept, as ngx_http_upstream_module recommends for HTTP/1.1."""


class Locked(servers.Nginx):
    """The cache fetches from `origin`."""

    def __init__(self, origin):
        self.front = servers.free_port()
        self._kept = servers.private_folder("kept")
        super().__init__(more=LOCKED.format(kept=self._kept, port=origin.port, front=self.front))

    def __exit__(self, *error):
        super().__exit__(*error)
        shutil.rmtree(self._kept, ignore_errors=True)


def rows(context, quick):
    with contextlib.ExitStack() as running:
        services = service.Services(running, counted=True, more=servers.FRESH)
        origin = services.origin
        files = load.Files(origin.url, 1000, 1024)
        for clients in (10,) if quick else (10, 100):
            plan = load.Plan(files, OUTSTANDING, 100 if quick else 1000, clients)
            contenders = [ours(origin, plan), locked(origin, plan)]
            some = dataclasses.replace(plan, requests=min(plan.requests, SAMPLED // clients))
            contenders += [client.contender(some if client.name in FETCHES_EACH_TIME else plan)
                           for client in peers_of(services, quick)]
            targets = []
            if clients == 100:
                targets = [Target("earshot", of="origin_requests", at_most=plan.requests, by="value"),
                           *(Target("earshot", name, at_least=10) for name in FETCHES_EACH_TIME)]
            yield context.measure(f"{clients} clients", "answers/s", contenders, targets,
                                  note=f"Contenders that fetch each time request {some.requests} URLs.")


def peers_of(services, quick):
    c = {client.name: client for client in services.clients("C")}
    in_python = [] if quick else [services.of_aiohttp("aiohttp, uvloop", "uvloop"), services.of_pycurl()]
    return [c["zurl"], c["gearman"], services.of_gearman("coalesce"), c["libcurl in process"], *in_python]


def ours(origin, plan):
    def run_round(number):
        with servers.Bus(None, service.ORIGIN_LIMIT, service.SLOTS, cache=True) as bus:
            roles = {"server": lambda: [bus.broker], "workers": lambda: bus.workers, "origin": lambda: origin.pids}
            client = load.Client("earshot", load.compiled("load-earshot"), "", bus.runtime, "", roles,
                                 counted=origin.requests)
            return client.run_round(plan, number)
    limits = f"--origin-limit {service.ORIGIN_LIMIT} --slots {service.SLOTS}"
    command = f"earshot serve {limits} --cache-folder"
    return Contender("earshot", f"{command}; load-earshot --clients {plan.clients}", run_round, True)


def locked(origin, plan):
    def run_round(number):
        with Locked(origin) as front:
            files = load.Behind(plan.files, f"http://127.0.0.1:{front.front}")
            roles = {"server": lambda: front.pids, "origin": lambda: origin.pids}
            client = load.Client("", load.compiled("load-curl"), "", "none", "", roles, counted=origin.requests)
            return client.run_round(dataclasses.replace(plan, files=files), number)
    command = f"nginx with proxy_cache_lock; load-curl --clients {plan.clients}"
    return Contender("nginx cache lock, libcurl", command, run_round)
