"""Paths. Permanent files are below `.build/bench`."""

import atexit
import functools
import os
import pathlib
import shutil
import tempfile

from bench.frame import Failed

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent.parent
SOURCES = ROOT / "Tests/Bench"

# The published tables, one file for each suite.
RESULTS = SOURCES / "results"

MADE = ROOT / ".build/bench"
DATA = MADE / "data"

# Compiled C programs, one for each file of Tests/Bench/c with a `main`.
PROGRAMS = MADE / "c"

# Virtual environment with PyPI's packages: created by the suite that needs it, not by bin/setup.
VENV = MADE / "venv"

PREFIX = "earshot-bench-"

# Outputs, sockets and logs are below it.
MEMORY = pathlib.Path("/dev/shm")


def earshot():
    """Returns the program under test: EARSHOT_BINARY, which bin/bench sets to the release that it built."""
    return os.environ.get("EARSHOT_BINARY") or str(ROOT / ".build/release/earshot")


def check_room(room):
    """Raises Failed without this many free bytes of memory for outputs, for a suite that must not measure a disk."""
    free = shutil.disk_usage(MEMORY).free if os.access(MEMORY, os.W_OK) else 0
    if free < room:
        raise Failed(f"{MEMORY} has {free >> 20} MiB free of the {room >> 20} MiB that the outputs need: mount a larger tmpfs there")


@functools.cache
def outputs():
    """Returns the folder for outputs, sockets and logs, until this process ends: in memory. ext4 searches for a free inode
    past all inodes freed in the last seconds, so on a disk each round would pay for the removals of the one before."""
    parent = MEMORY if os.access(MEMORY, os.W_OK) else MADE
    remove_left_over(parent)
    folder = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return pathlib.Path(folder)


def remove_left_over(parent):
    """Removes outputs of killed programs."""
    for folder in parent.glob(f"{PREFIX}*"):
        pid = folder.name[len(PREFIX):].partition("-")[0]
        if pid.isdigit() and not pathlib.Path("/proc", pid).exists():
            shutil.rmtree(folder, ignore_errors=True)
