"""Time line of a run: for readers, and for the judge, which excuses failures by disturbances."""

import threading
import time
from dataclasses import dataclass

BUS = ("broker", "worker", "serve")
"""Subjects whose disturbances keep the bus from acting at once."""

RECOVERY_SECONDS = 2.0
"""Seconds after such a disturbance that count as disturbed."""


@dataclass
class Disturbance:
    """One disturbance; `ended` is None while it lasts. `about` is its subject (`broker`, `worker`, `serve`, `disk`,
    `queue`, `cooling`, `client N`)."""

    about: str
    what: str
    began: float
    ended: float | None = None

    def touches(self, begin, end):
        """Whether it overlaps a period."""
        return self.began <= end and (self.ended is None or self.ended >= begin)


class Timeline:
    """Log of events and disturbances. Thread-safe."""

    def __init__(self):
        self.begin = time.monotonic()
        self.lines = []
        self.disturbances = []
        self._lock = threading.Lock()

    def note(self, text):
        with self._lock:
            self.lines.append((time.monotonic(), text))

    def begin_disturbance(self, about, what):
        disturbance = Disturbance(about, what, time.monotonic())
        with self._lock:
            self.disturbances.append(disturbance)
        self.note(what)
        return disturbance

    def end_disturbance(self, disturbance, what=None):
        disturbance.ended = time.monotonic()
        self.note(what or f"end of: {disturbance.what}")

    def add(self, about, what):
        """Adds a disturbance without duration."""
        disturbance = self.begin_disturbance(about, what)
        disturbance.ended = disturbance.began
        return disturbance

    # Queries of the judge.

    def count(self, about, begin, end):
        """Returns the number of disturbances of these subjects in a period."""
        return sum(d.about in about and d.touches(begin, end) for d in self.disturbances)

    def calm(self, begin, end):
        """Returns the seconds of a period in which no disturbance affected the bus, nor had within `RECOVERY_SECONDS`
        seconds."""
        disturbed = sorted((max(begin, d.began), min(end, (end if d.ended is None else d.ended) + RECOVERY_SECONDS))
                           for d in self.disturbances if d.about in BUS)
        calm, upto = 0.0, begin
        for start, stop in disturbed:
            if stop <= upto or start >= end:
                continue
            calm += max(0.0, start - upto)
            upto = stop
        return calm + max(0.0, end - upto)

    def text(self, begin=None, end=None):
        return "\n".join(f"{at - self.begin:8.2f} {text}" for at, text in self.lines
                         if (begin is None or at >= begin) and (end is None or at <= end))
