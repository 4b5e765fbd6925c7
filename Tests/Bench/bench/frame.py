"""Framework of measurements. Contenders take turns, and only ratios within one run count.

A suite is a module of `bench.suites` with

    NAME = "batch"
    TITLE = "Many files from a list"
    def rows(context, quick): ...   # yields a Measurement for each table; starts and stops its own servers

and makes its Measurements by `context.measure(...)`.
"""

import dataclasses
import statistics
import subprocess
import traceback
from collections.abc import Callable, Sequence


class Failed(Exception):
    """A contender failed, or gave a wrong result: its row states that."""


@dataclasses.dataclass(frozen=True)
class Sample:
    """Result of one round of one contender. `extra`: further figures by name, shown beside the value: p50_us, p99_us,
    p999_us, cpu_us (of all processes for each request), origin_requests …"""

    value: float
    extra: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Contender:
    """One competing program. `command`: the command shown in the table. `run` gets the number of the round, from 0: in
    round 0 it checks the content of every response, later count and size. It raises on any fault."""

    name: str
    command: str
    run: Callable[[int], Sample]
    is_ours: bool = False


@dataclasses.dataclass(frozen=True)
class Target:
    """Bound for the median over the rounds of `by`: "ratio" (ours / peer), "difference" (ours - peer) or "value" (ours
    alone). `of`: "value", or the name of an extra figure."""

    ours: str
    peer: str | None = None
    at_least: float | None = None
    at_most: float | None = None
    of: str = "value"
    by: str = "ratio"

    def __post_init__(self):
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("a target is at least or at most something")
        if self.by not in ("ratio", "difference", "value") or (self.by == "value") != (self.peer is None):
            raise ValueError(f"{self.by} with peer {self.peer}")

    def figure(self, ours, peer):
        """Returns the figure of one round."""
        match self.by:
            case "ratio":
                return ours / peer if peer else None
            case "difference":
                return ours - peer
            case "value":
                return ours

    def is_reached(self, figure):
        return figure >= self.at_least if self.at_most is None else figure <= self.at_most

    def describe(self):
        of = "" if self.of == "value" else f"{self.of} "
        limit = f"at least {self.at_least:g}" if self.at_most is None else f"at most {self.at_most:g}"
        match self.by:
            case "ratio":
                return f"{of}{limit} × {self.peer}"
            case "difference":
                return f"{of}{limit} more than {self.peer}"
            case "value":
                return f"{of}{limit}"


@dataclasses.dataclass(frozen=True)
class Spread:
    median: float
    low: float
    high: float

    @staticmethod
    def of(values):
        """Returns the spread of values; None without values."""
        values = list(values)
        return Spread(statistics.median(values), min(values), max(values)) if values else None


class Measurement:
    """One table: the samples of each contender in each round."""

    def __init__(self, title: str, unit: str, contenders: Sequence[Contender], targets: Sequence[Target] = (), *,
                 is_rate=True):
        names = [contender.name for contender in contenders]
        if len(set(names)) != len(names):
            raise ValueError(f"two contenders of one name: {names}")
        for target in targets:
            if target.ours not in names or target.peer not in [None, *names]:
                raise ValueError(f"nobody has the names of {target}")
        self.title = title
        self.unit = unit
        self.is_rate = is_rate  # True if larger is better.
        self.contenders = list(contenders)
        self.targets = list(targets)
        self.suite = None
        self.note = None
        self._samples = {name: {} for name in names}
        self.failures = {}

    # Measuring.

    def run(self, rounds, report=lambda text: None, first=0):
        """Runs round 1 of each contender, round 2 of each …; each round begins with the next contender. A failed contender
        does not run again. `first`: rounds that another run has done."""
        for number in range(first, first + rounds):
            start = number % len(self.contenders)
            for contender in self.contenders[start:] + self.contenders[:start]:
                if contender.name in self.failures:
                    continue
                report(f"{self.title}: round {number + 1} of {first + rounds}: {contender.name}")
                try:
                    self.add(contender.name, number, contender.run(number))
                except Exception as error:  # A peer's failure does not stop the others.
                    self.failures[contender.name] = describe(error)
                    report(f"{contender.name} failed: {self.failures[contender.name]}")
        return self

    def add(self, name, number, sample):
        self._samples[name][number] = sample

    # Results.

    def samples(self, name):
        """Returns the figures by round."""
        return self._samples[name]

    def figures(self, name, of="value"):
        """Returns the figures by round, without rounds that lack them."""
        found = {number: sample.value if of == "value" else sample.extra.get(of)
                 for number, sample in self._samples[name].items()}
        return {number: figure for number, figure in found.items() if figure is not None}

    def spread(self, name, of="value"):
        return Spread.of(self.figures(name, of).values())

    def extras(self):
        """Returns the names of all extra figures, in order of appearance."""
        return list(dict.fromkeys(name for rounds in self._samples.values() for sample in rounds.values()
                                  for name in sample.extra))

    def found(self, target):
        """Returns the spread of a target's figure over the rounds; None if one of the two has no rounds, or
        failed."""
        if {target.ours, target.peer} & self.failures.keys():
            return None
        ours = self.figures(target.ours, target.of)
        peer = self.figures(target.peer, target.of) if target.peer else ours
        figures = [target.figure(ours[number], peer[number]) for number in ours if number in peer]
        return Spread.of(figure for figure in figures if figure is not None)

    def ratio(self, ours, peer):
        """Returns the spread of ours / peer over the rounds; None if one of the two has no rounds."""
        return self.found(Target(ours, peer, at_least=0))

    def is_reached(self, target):
        """Returns whether the target is met; None if unknown, because one of the two failed."""
        found = self.found(target)
        return None if found is None else target.is_reached(found.median)

    @property
    def ours(self):
        return [contender for contender in self.contenders if contender.is_ours]

    @property
    def peers(self):
        return [contender for contender in self.contenders if not contender.is_ours]

    def as_json(self):
        def spread(value):
            return dataclasses.asdict(value) if value else None

        return {
            "suite": self.suite, "title": self.title, "unit": self.unit, "is_rate": self.is_rate, "note": self.note,
            "contenders": [
                {"name": contender.name, "command": contender.command, "is_ours": contender.is_ours,
                 "failure": self.failures.get(contender.name), "value": spread(self.spread(contender.name)),
                 "extra": {name: spread(self.spread(contender.name, name)) for name in self.extras()
                           if self.spread(contender.name, name)},
                 "samples": [{"round": number, "value": sample.value, **sample.extra}
                             for number, sample in sorted(self._samples[contender.name].items())]}
                for contender in self.contenders],
            "ratios": [{"ours": ours.name, "peer": peer.name, "ratio": spread(self.ratio(ours.name, peer.name))}
                       for ours in self.ours for peer in self.peers],
            "targets": [{**dataclasses.asdict(target), "found": spread(self.found(target)),
                         "reached": self.is_reached(target)} for target in self.targets],
        }


class Context:
    """Context of a suite. `report` reports progress. `first`: number of the first round."""

    def __init__(self, quick=False, rounds=5, report=lambda text: None, first=0):
        self.quick = quick
        self.rounds = rounds
        self.report = report
        self.first = first

    def measure(self, title, unit, contenders, targets=(), *, is_rate=True, note=None):
        """Runs all rounds. `is_rate`: larger is better; otherwise the figure is a time or a cost. `note`: a sentence for the
        table."""
        measurement = Measurement(title, unit, contenders, targets, is_rate=is_rate)
        measurement.note = note
        return measurement.run(self.rounds, self.report, self.first)


def describe(error):
    """Returns an error as one line; an unexpected one includes its location."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, (Failed, OSError, subprocess.SubprocessError)):
        return text[:300]
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {text[:300]} ({frame.filename.rpartition('/')[2]}:{frame.lineno})"
