"""Figures of a run: computation and output."""

import statistics
import sys


def percentile(values, share):
    """Returns the smallest value that `share` percent of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * share // 100) - 1)]


def milliseconds(values, share=50):
    return 1000 * (statistics.median(values) if share == 50 else percentile(values, share))


def report(what):
    """Prints a line of figures, for comparison between runs."""
    print(f"\n    {what}", file=sys.stderr, end=" ... ", flush=True)
