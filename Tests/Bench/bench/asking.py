"""Clients that ask for many URLs, so many at a time, and the CPU that all processes spend on it."""

import dataclasses
import functools
import json
import zlib
from collections.abc import Callable, Iterable

from bench import data, peers, places
from bench.cpu import Meter
from bench.frame import Contender, Failed, Sample
from bench.programs import run


class Files:
    """The files that are asked for, and what the answers must add up to."""

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
    """The same files by another server."""

    def __init__(self, files, origin):
        self.count = files.count
        self.size = files.size
        self.prefix = f"{origin}/{files.size}/"
        self.suffix = files.suffix
        self.checksums = files.checksums


class Nothing:
    """Answers of the bare bus: so many zeros, whatever is asked for."""

    def __init__(self, prefix, size):
        self.count = 10**8
        self.size = size
        self.prefix = prefix
        self.suffix = ""
        self._checksum = zlib.crc32(bytes(size))

    @property
    def checksums(self):
        return Same(self._checksum)


class Same:
    """One value for any number of places."""

    def __init__(self, value):
        self._value = value

    def __getitem__(self, _):
        return self._value


@dataclasses.dataclass
class Plan:
    """What one run asks for."""

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
        """The sum of all answers' checksums."""
        checksums = self.files.checksums
        return self.clients * sum(checksums[number % self.files.count] for number in range(self.requests))


@dataclasses.dataclass
class Client:
    """A program that asks. `servers`: by role, the processes that work for it. `describe`: what the table says. `env`:
    further variables of its environment."""

    name: str
    program: list
    describe: str
    place: object = ""
    extra: str = ""
    servers: dict = dataclasses.field(default_factory=dict)
    is_ours: bool = False
    counted: Callable[[], int] | None = None
    env: dict = dataclasses.field(default_factory=dict)

    def contender(self, plan):
        return Contender(self.name, self.describe, lambda number: self.ask(plan, number), self.is_ours)

    def ask(self, plan, number):
        """One round: answers a second, and what it cost."""
        arguments = [*self._resolved(), *plan.arguments()]
        if self.place:
            arguments += ["--place", self.place() if callable(self.place) else self.place]
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
    return [places.PROGRAMS / name]


def scripted(name):
    """A client in Python. The interpreter is looked for when it is first run: without PyPI only these rows fail."""
    return [peers.python, peers.script(name)]


def pids(*processes: Callable[[], Iterable[int]]):
    """The processes of a role, asked for at each round: a worker may be another one by then."""
    return lambda: [pid for found in processes for pid in found()]
