"""Where things are. All that is made is below `.build/bench`."""

import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent.parent
SOURCES = ROOT / "Tests/Bench"
MADE = ROOT / ".build/bench"
DATA = MADE / "data"

# The built C programs, one for each file of Tests/Bench/c with a `main`.
PROGRAMS = MADE / "c"

# The virtual environment with PyPI's packages: bin/setup does not make it, the suite that needs it does.
VENV = MADE / "venv"


def earshot():
    """The program that is measured: EARSHOT_BINARY, which bin/bench sets to the release that it built."""
    return os.environ.get("EARSHOT_BINARY") or str(ROOT / ".build/release/earshot")
