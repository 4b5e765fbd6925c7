"""Paths of the checkout. Importing this makes `support` of Tests/Integration importable."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PACKAGE = ROOT / "examples/python"

sys.path.insert(0, str(ROOT / "Tests/Integration"))
