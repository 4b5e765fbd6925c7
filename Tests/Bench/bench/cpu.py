"""What processes used."""

import os
import pathlib
import time


def seconds(pid):
    """CPU seconds of the process until now, those of its ended threads too, to the nanosecond; 0 if it is gone."""
    try:
        # The CPU clock of another process, as clock_getcpuclockid(3) makes it: the number's complement, and 2 for
        # the scheduler's own count.
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


class Meter:
    """`with Meter(pids) as meter: …` and then `meter.seconds`, those of all, or `meter.of[pid]`."""

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
    """The process and all below it that live."""
    found = [pid]
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            below = task.read_text().split()
        except OSError:
            continue  # It ended while we looked.
        for child in below:
            found += tree(int(child))
    return found


def resident(pid):
    """Bytes of memory that are resident."""
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def most_resident(pid):
    """The most bytes of memory that were resident at any time."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


def wakeups(pid):
    """How often the threads that live now went to sleep of their own will: each is a wake-up."""
    total = 0
    for status in pathlib.Path(f"/proc/{pid}/task").glob("*/status"):
        for line in status.read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches:"):
                total += int(line.split()[1])
    return total
