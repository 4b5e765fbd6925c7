"""Clients that request many URLs with a fixed number outstanding, and the CPU time of all processes involved."""

import dataclasses
import functools
import json
import zlib
from collections.abc import Callable, Iterable

from bench import data, peers, folders
from bench.cpu import Meter
from bench.frame import Contender, Failed, Sample
from bench.programs import run


class Files:
    """Requested files, and the expected sums of the responses."""

    def __init__(self, origin, count, size):
        self._files = data.Files(count, size)
        self.count = count
        self.size = size
        self.prefix = f"{origin}/{size}/"
        self.suffix = ".bin"

    @functools.cached_property
    def checksums(self):
        return [zlib.crc32(self._files.expected(name)) for name in self._files.names]


class Behind:
    """The same files, served by another server."""

    def __init__(self, files, origin):
        self.count = files.count
        self.size = files.size
        self.prefix = f"{origin}/{files.size}/"
        self.suffix = files.suffix
        self.checksums = files.checksums


@dataclasses.dataclass
class Plan:
    """Requests of one run."""

    files: object
    outstanding: int
    requests: int
    clients: int = 1

    def arguments(self):
        return ["--prefix", self.files.prefix, "--suffix", self.files.suffix, "--files", self.files.count,
                "--size", self.files.size, "--outstanding", self.outstanding, "--requests", self.requests,
                "--clients", self.clients]

    @property
    def answers(self):
        return self.requests * self.clients

    def total(self):
        """Returns the sum of the checksums of all responses."""
        checksums = self.files.checksums
        return self.clients * sum(checksums[number % self.files.count] for number in range(self.requests))


@dataclasses.dataclass
class Client:
    """A client program. `servers`: processes that work for it, by role. `describe`: its command in the table. `env`:
    additional environment variables."""

    name: str
    program: list
    describe: str
    server: object = ""
    extra: str = ""
    servers: dict = dataclasses.field(default_factory=dict)
    is_ours: bool = False
    counted: Callable[[], int] | None = None
    env: dict = dataclasses.field(default_factory=dict)

    def contender(self, plan):
        return Contender(self.name, self.describe, lambda number: self.run_round(plan, number), self.is_ours)

    def run_round(self, plan, number):
        """Runs one round. Returns responses per second and the CPU time."""
        arguments = [*self._resolved(), *plan.arguments()]
        if self.server:
            arguments += ["--server", self.server() if callable(self.server) else self.server]
        if self.extra:
            arguments += ["--extra", self.extra]
        if number == 0:
            arguments += ["--sums"]
        meters = {role: Meter(pids()) for role, pids in self.servers.items()}
        before = self.counted() if self.counted else 0
        for meter in meters.values():
            meter.__enter__()
        finished = run(arguments, env={**peers.scripts_environment(), **self.env}, timeout=300)
        for meter in meters.values():
            meter.__exit__()
        found = json.loads(finished.stdout)
        if found["answers"] != plan.answers or found["bytes"] != plan.answers * plan.files.size:
            raise Failed(f"{found['answers']} answers, {found['bytes']} bytes")
        if number == 0 and found["sum"] != plan.total():
            raise Failed("the answers have other bytes than the origin's files")
        spent = {"client": found["cpu"], **{role: meter.seconds for role, meter in meters.items()}}
        extra = {"p50_us": found["p50"], "p99_us": found["p99"], "p999_us": found["p999"],
                 "cpu_us": sum(spent[role] for role in spent if role != "origin") / plan.answers * 1e6,
                 **{f"{role}_us": seconds / plan.answers * 1e6 for role, seconds in spent.items()}}
        if self.counted:
            extra["origin_requests"] = self.counted() - before
        return Sample(plan.answers / found["seconds"], extra)

    def _resolved(self):
        return [step() if callable(step) else step for step in self.program]


def compiled(name):
    return [folders.PROGRAMS / name]


def scripted(name):
    """Returns a client in Python. The interpreter is located at the first run: without PyPI only these rows fail."""
    return [peers.python, peers.script(name)]


def pids(*processes: Callable[[], Iterable[int]]):
    """Returns a function that lists the processes of a role. It runs at each round, since a worker may have been
    replaced."""
    return lambda: [pid for found in processes for pid in found()]
