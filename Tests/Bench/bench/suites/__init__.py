"""The suites, in their order in a full run."""

import importlib

NAMES = ["default", "batch", "service", "shared", "cached", "large", "latency", "idle", "churn", "origins", "tls", "bare", "scrape", "cluster"]


def load(name):
    return importlib.import_module(f"bench.suites.{name}")
