"""Runs a module of this package as a program in a process of its own: `python3 support MODULE ARGUMENT…`."""

import pathlib
import runpy
import sys

sys.path[0] = str(pathlib.Path(__file__).resolve().parent.parent)
del sys.argv[0]
runpy.run_module(f"support.{sys.argv[0]}", run_name="__main__", alter_sys=True)
