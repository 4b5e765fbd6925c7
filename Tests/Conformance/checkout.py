"""Paths of the checkout. Importing this makes `support` of Tests/Integration and the modules of examples/tests importable."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "Tests" / "Integration"), str(ROOT / "examples" / "tests")]
