"""The suites, in their order in a full run."""

import importlib

NAMES = ["default", "batch", "service", "shared", "large", "latency", "churn", "tls", "door", "cluster"]
QUICK = ["default", "batch", "service", "shared", "large", "latency"]
"""Suites that `--quick` runs if none is named. At small sizes they need no packages of PyPI and no build."""


def load(name):
    return importlib.import_module(f"bench.suites.{name}")
