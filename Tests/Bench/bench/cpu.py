"""CPU time and memory of processes."""

import pathlib
import time


def seconds(pid):
    """Returns the CPU seconds of a process, ended threads included, with nanosecond resolution; 0 if it has ended."""
    try:
        # ID of another process's CPU clock, as clock_getcpuclockid(3) forms it: the complement of the number, and 2 for
        # the scheduler's count.
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


class Meter:
    """Context manager: `with Meter(pids) as meter: …`. Then `meter.seconds` is the CPU time of all,
    `meter.of[pid]` of one."""

    def __init__(self, pids):
        self._pids = list(pids)
        self.of = {}

    def __enter__(self):
        self._before = {pid: seconds(pid) for pid in self._pids}
        return self

    def __exit__(self, *_):
        self.of = {pid: max(0.0, seconds(pid) - self._before[pid]) for pid in self._pids}

    @property
    def seconds(self):
        return sum(self.of.values())


def tree(pid):
    """Returns a process and its live descendants."""
    found = [pid]
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            below = task.read_text().split()
        except OSError:
            continue  # It has ended meanwhile.
        for child in below:
            found += tree(int(child))
    return found
