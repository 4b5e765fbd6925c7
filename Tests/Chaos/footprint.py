"""Memory and descriptors of the bus after warm-up and at the end, as a table."""

import os
import pathlib
import time
from dataclasses import dataclass

from support.processes import command, resident, started_at

MOST_GROWTH = 1.5
MEMORY_FLOOR = 48 << 20
"""Bytes that a process may gain in addition: memory kept by the allocator."""
MORE_DESCRIPTORS = 8
"""Descriptors that a process may gain after warm-up."""
MOST_CONNECTIONS = 300
"""Maximum connections of a worker to origins. Idle ones are kept for reuse, up to a bound."""


@dataclass
class Footprint:
    """One process at one time."""

    role: str
    pid: int
    age: float
    memory: int
    descriptors: int
    """Descriptors except connections to origins."""
    connections: int

    @classmethod
    def of(cls, role, pid):
        links = descriptors(pid)
        inet = inet_sockets(pid)
        connections = sum(link in inet for link in links)
        return cls(role, pid, time.monotonic() - started_at(pid), resident(pid), len(links) - connections, connections)


def descriptors(pid):
    """Returns the targets of the descriptors of a process."""
    found = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{number}"))
        except FileNotFoundError:
            continue  # Closed meanwhile.
    return found


def inet_sockets(pid):
    """Returns the TCP sockets of the process's network namespace, named as descriptors are."""
    lines = pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    return {f"socket:[{line.split()[9]}]" for line in lines}


def take(pids):
    """Returns the footprints of live processes. `pids` maps roles to process numbers."""
    return [Footprint.of(role, pid) for role, numbers in pids.items() for pid in numbers if command(pid)]


def table(before, after):
    """Returns the footprints as text."""
    lines = ["             pid   age s      RSS MiB   descriptors   to origins"]
    for title, prints in (("after warm-up", before), ("at the end", after)):
        lines.append(title)
        for p in prints:
            lines.append(f"  {p.role:8} {p.pid:6} {p.age:7.1f} {p.memory / (1 << 20):12.1f} {p.descriptors:13} "
                         f"{p.connections:12}")
    return "\n".join(lines)


def growth(before, after):
    """Returns faults: growth beyond the bounds. The largest process of a role after warm-up is the
    reference."""
    violations = []
    for role in sorted({p.role for p in after}):
        first = [p for p in before if p.role == role]
        memory = max(p.memory for p in first) * MOST_GROWTH + MEMORY_FLOOR
        most = max(p.descriptors for p in first) + MORE_DESCRIPTORS
        for p in (p for p in after if p.role == role):
            if p.memory > memory:
                violations.append(f"{role} {p.pid} has {p.memory >> 20} MiB in the end, more than {int(memory) >> 20}")
            if p.descriptors > most:
                violations.append(f"{role} {p.pid} has {p.descriptors} descriptors in the end, more than {most}")
            if p.connections > MOST_CONNECTIONS:
                violations.append(f"{role} {p.pid} has {p.connections} connections to origins in the end")
    return violations
