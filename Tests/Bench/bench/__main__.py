"""bin/bench: the suites, their tables and results.json."""

import argparse
import json
import os
import pathlib
import signal
import sys
import time

from bench import against, machine, folders, suites, table
from bench.frame import Context, describe


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.print_usage(sys.stderr)
        self.exit(64, f"bench: {message}\n")


def arguments(words):
    parser = Parser(prog="bin/bench", description="Measures Earshot and its peers side by side.",
                    epilog="bin/bench core and bin/bench instructions measure the core alone, see bin/bench itself.")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="all of them, or 'all', if none is named without --quick")
    parser.add_argument("--quick", action="store_true", help=f"small sizes, and only these suites if none is named: {', '.join(suites.QUICK)}")
    parser.add_argument("--rounds", type=int, help="rounds of each contender (5; with --quick 2)")
    parser.add_argument("--against", type=pathlib.Path, metavar="PROGRAM",
                        help="absolute path of another Earshot, which takes turns in each round; prints the ratios")
    parser.add_argument("--json", type=pathlib.Path, default=folders.MADE / "results.json", metavar="FILE",
                        help="where the results go (.build/bench/results.json)")
    parser.add_argument("--publish", action="store_true", help="write the tables to Tests/Bench/results, one file for each suite")
    parser.add_argument("--list", action="store_true", help="list the suites' names")
    parser.add_argument("--try", action="store_true", dest="only_try", help=argparse.SUPPRESS)  # bin/bench, first.
    options = parser.parse_args(words)
    if options.rounds is None:
        options.rounds = 2 if options.quick else 5
    if not 1 <= options.rounds <= 100:
        parser.error("rounds are 1 to 100")
    for name in options.suites:
        if name != "all" and name not in suites.NAMES:
            parser.error(f"no suite '{name}': {', '.join(suites.NAMES)}, all")
    if not options.suites and options.quick:
        options.suites = suites.QUICK
    if not options.suites or "all" in options.suites:
        options.suites = suites.NAMES
    if options.publish and options.quick:
        parser.error("--publish needs the full sizes: leave out --quick")
    if options.publish and options.against:
        parser.error("--publish writes the figures of one program: leave out --against")
    if options.against and not os.access(options.against, os.X_OK):
        parser.error(f"--against {options.against} is no program")
    return options


def publish(name, machine_text, tables):
    """Replaces the published tables of a suite. Each file names the machine, the time and the commit of its run."""
    folders.RESULTS.mkdir(parents=True, exist_ok=True)
    title, _, rest = tables.partition("\n")
    (folders.RESULTS / f"{name}.md").write_text(f"{title}\n\n{machine_text.strip()}\n{rest.rstrip()}\n")


class Output:
    """Prints text and keeps it for publication."""

    def __init__(self):
        self.text = ""

    def write(self, text):
        print(text, flush=True)
        self.text += text + "\n"


def report(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


def measure(name, options, output):
    """Returns the measurements of a suite, and the reason if it failed."""
    suite = suites.load(name)
    done = []
    began = time.monotonic()
    error = None
    output.write(f"# {name}: {suite.TITLE}\n")
    try:
        for measurement in suite.rows(Context(options.quick, options.rounds, report), options.quick):
            measurement.suite = name
            done.append(measurement)
            output.write("\n".join(table.render(measurement)))
    except Exception as failure:
        error = describe(failure)
        output.write(f"FAILED: {error}\n")
    report(f"{name}: {time.monotonic() - began:.0f} s")
    return done, error


def run(options):
    """Runs all chosen suites. The exit status is 1 if a measurement of Earshot failed."""
    folders.MADE.mkdir(parents=True, exist_ok=True)
    description = machine.describe()
    machine_text = "\n\n".join(machine.lines(description))
    print(f"{machine_text}\n", flush=True)
    results, errors = [], {}
    for name in options.suites:
        output = Output()
        done, error = measure(name, options, output)
        if options.publish and not error:
            publish(name, machine_text, output.text)
        results += done
        if error:
            errors[name] = error
        options.json.write_text(json.dumps(
            {"machine": description, "quick": options.quick, "rounds": options.rounds, "errors": errors,
             "measurements": [measurement.as_json() for measurement in results]}, indent=1) + "\n")
    verdicts = [measurement.is_reached(target) for measurement in results for target in measurement.targets]
    print(f"Targets: {verdicts.count(True)} reached, {verdicts.count(False)} not, {verdicts.count(None)} unknown.", flush=True)
    ours = [f"{one.name} in {measurement.title}" for measurement in results for one in measurement.ours
            if one.name in measurement.failures]
    for failure in [*ours, *(f"{name}: {error}" for name, error in errors.items())]:
        print(f"FAILED: {failure}", file=sys.stderr)
    return 1 if ours or errors else 0


def compare(options):
    """Compares two programs in all chosen suites. The exit status is 1 if a measurement of one of them failed."""
    print("\n\n".join(machine.lines(machine.describe())), flush=True)
    failures = []
    for name in options.suites:
        print(f"\n# {name}: {suites.load(name).TITLE}\n", flush=True)
        lines, failed = against.compare(name, options.against.absolute(), options.quick, options.rounds, report)
        print("\n".join(lines), flush=True)
        failures += failed
    for failure in failures:
        print(f"FAILED: {failure}", file=sys.stderr)
    return 1 if failures else 0


def main(words):
    options = arguments(words)
    if options.list:
        for name in suites.NAMES:
            print(f"{name:12} {suites.load(name).TITLE}")
        return 0
    if options.only_try:
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # Stops the servers.
    return compare(options) if options.against else run(options)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
