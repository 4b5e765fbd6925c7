"""Schedule of the disturbances of a chaos run, from the seed alone.

A decision names its victim by a number modulo the number of candidates, since the processes at that time depend on
the run. So a seed determines the decisions and their times, but not the run.
"""

import random
from dataclasses import dataclass

KINDS = {
    "kill worker": 6, "stop worker": 4, "cut worker": 2, "kill broker": 2.5, "stop broker": 3, "terminate serve": 0.8,
    "kill serve": 0.6, "reload": 0.7, "kill client": 8, "stop client": 6, "cut client": 8, "fill disk": 2,
    "small spool": 1.5, "no room": 1.5, "set": 7,
}
"""Kinds of disturbances with their weights."""

MOST_OFF = 5
"""Maximum number of kinds that a seed leaves out, so that others run without them."""

MEAN_GAP = 1.3
"""Mean time between two decisions, in seconds."""

STOPS = {"stop worker": (0.2, 9), "stop broker": (0.1, 3), "stop client": (0.2, 12), "fill disk": (1, 5),
         "small spool": (1, 6), "no room": (1, 4), "set": (2, 10)}
"""Minimum and maximum duration of states, in seconds."""

SETTINGS = [
    ("origin-limit", ("1", "3", "16", "64")), ("slots", ("2", "8", "64")), ("workers", ("1", "2", "4")),
    ("inline-bytes", ("0", "2000", "262144")), ("origin-spacing", ("0.01", "0.1")), ("cache-size", ("0", "500000")),
    ("requests-per-client", ("5", "30")), ("requests", ("100",)), ("cool-down", ("5",)),
]
"""Settings that are changed for a while, with their values."""


@dataclass(frozen=True)
class Decision:
    """A disturbance `at` this many seconds after the start, for `lasting` seconds if it is a state."""

    at: float
    kind: str
    victim: int
    lasting: float = 0.0
    words: tuple = ()

    def __str__(self):
        detail = " ".join(self.words) or f"#{self.victim}"
        return f"{self.at:7.2f} {self.kind} {detail}{f' for {self.lasting:.1f} s' if self.lasting else ''}"


def switched_off(seed):
    """Returns the kinds that this seed leaves out."""
    chance = random.Random(f"{seed}/off")
    return set(chance.sample(sorted(KINDS), chance.randrange(MOST_OFF + 1)))


def schedule(seed, begin, end):
    """Returns the decisions between two times, in order."""
    chance = random.Random(f"{seed}/schedule")
    off = switched_off(seed)
    kinds = [kind for kind in KINDS if kind not in off]
    weights = [KINDS[kind] for kind in kinds]
    decisions, at = [], begin
    while (at := at + chance.expovariate(1 / MEAN_GAP)) < end:
        kind = chance.choices(kinds, weights)[0]
        lasting = chance.uniform(*STOPS[kind]) if kind in STOPS else 0.0
        words = ()
        if kind == "set":
            name, values = chance.choice(SETTINGS)
            words = (name, chance.choice(values))
        decisions.append(Decision(at, kind, chance.randrange(1 << 30), min(lasting, end - at), words))
    return decisions
