"""Where things are. What is kept is below `.build/bench`."""

import atexit
import functools
import os
import pathlib
import shutil
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent.parent
SOURCES = ROOT / "Tests/Bench"

# The published tables, one file for each suite.
RESULTS = SOURCES / "results"

MADE = ROOT / ".build/bench"
DATA = MADE / "data"

# The built C programs, one for each file of Tests/Bench/c with a `main`.
PROGRAMS = MADE / "c"

# The virtual environment with PyPI's packages: bin/setup does not make it, the suite that needs it does.
VENV = MADE / "venv"

PREFIX = "earshot-bench-"


def earshot():
    """The program that is measured: EARSHOT_BINARY, which bin/bench sets to the release that it built."""
    return os.environ.get("EARSHOT_BINARY") or str(ROOT / ".build/release/earshot")


@functools.cache
def outputs():
    """Where programs write and servers have their sockets and logs, until this one ends: in memory. ext4 looks for a free
    inode past all that were freed in the last seconds, so on a disk each round would pay for what the one before it left to
    be removed."""
    memory = pathlib.Path("/dev/shm")
    parent = memory if os.access(memory, os.W_OK) else MADE
    remove_left_over(parent)
    folder = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return pathlib.Path(folder)


def remove_left_over(parent):
    """Removes the outputs of programs that were killed."""
    for folder in parent.glob(f"{PREFIX}*"):
        pid = folder.name[len(PREFIX):].partition("-")[0]
        if pid.isdigit() and not pathlib.Path("/proc", pid).exists():
            shutil.rmtree(folder, ignore_errors=True)
