"""bin/bench --against PROGRAM: suites with two Earshot programs in turns, and the ratios of their figures within each round."""

import contextlib
import math
import os
import statistics

from bench import folders, suites, table
from bench.frame import Context


def compare(name, other, quick, rounds, report):
    """Runs a suite with each program once in each round; each round begins with the other program. Returns the lines of the
    tables, and the failures of Earshot."""
    programs = [folders.earshot(), str(other)]
    found = []
    for number in range(rounds):
        turn = {}
        for program in programs if number % 2 == 0 else programs[::-1]:
            with _under_test(program):
                context = Context(quick, 1, lambda text: report(f"{program}: {text}"), first=number)
                turn[program] = {each.title: each for each in suites.load(name).rows(context, quick)}
        found.append([turn[program] for program in programs])
    lines = [line for title in found[0][0] for line in _table([[half[title] for half in pair] for pair in found])]
    failures = [f"{one.name} in {measurement.title}: {measurement.failures[one.name]}"
                for pair in found for half in pair for measurement in half.values() for one in measurement.ours
                if one.name in measurement.failures]
    return lines, failures


def ratio(pairs):
    """Returns the mean of the ratios of some pairs, and its standard error: not a number for one pair."""
    found = [one / other for one, other in pairs]
    error = statistics.stdev(found) / math.sqrt(len(found)) if len(found) > 1 else math.nan
    return statistics.mean(found), error


@contextlib.contextmanager
def _under_test(program):
    before = folders.earshot()
    os.environ["EARSHOT_BINARY"] = program
    try:
        yield
    finally:
        os.environ["EARSHOT_BINARY"] = before


def _table(pairs):
    """Returns the table of one measurement, which has a pair for each round."""
    measurement = pairs[0][0]
    head = ["", measurement.unit, "other", "ratio", "CPU, µs", "other", "ratio"]
    rows = [[contender.name, *_cells(pairs, contender.name, "value"), *_cells(pairs, contender.name, "cpu_us")]
            for contender in measurement.contenders]
    return [f"## {measurement.title}", "", *table.grid(head, rows), ""]


def _cells(pairs, name, of):
    """Returns the medians of both programs and the ratio, without rounds that lack one."""
    figures = [[figure for half in pair for figure in half.figures(name, of).values()] for pair in pairs]
    figures = [pair for pair in figures if len(pair) == 2 and pair[1]]
    if not figures:
        return ["", "", ""]
    mean, error = ratio(figures)
    return [*(table.number(statistics.median(half)) for half in zip(*figures)), f"{mean:.3f} ± {error:.3f}"]
