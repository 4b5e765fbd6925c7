"""The apparatus of Tests/Integration and the languages of examples/tests, by path."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "Tests" / "Integration"), str(ROOT / "examples" / "tests")]
