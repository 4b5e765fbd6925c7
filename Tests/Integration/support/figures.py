"""Figures of one run: how they are made of what was measured, and told."""

import statistics
import sys


def percentile(values, share):
    """The smallest value that `share` percent of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * share // 100) - 1)]


def milliseconds(values, share=50):
    return 1000 * (statistics.median(values) if share == 50 else percentile(values, share))


def tell(what):
    """Says a line of figures, for whoever follows them over runs."""
    print(f"\n    {what}", file=sys.stderr, end=" ... ", flush=True)
