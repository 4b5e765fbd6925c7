"""The suites, in the order in which all of them run."""

import importlib

NAMES = ["batch", "large", "latency", "idle"]


def load(name):
    return importlib.import_module(f"bench.suites.{name}")
