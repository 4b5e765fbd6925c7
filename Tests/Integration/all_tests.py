"""Runs the integration tests: python3 all_tests.py [-k PATTERN]

They mostly wait, for a lease to end or a server that takes its time, so as many modules as there are processors, and one
more, run beside each other, each in a process of its own. Those that hold something to a time run alone, after the others."""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent
ALONE = {"test_fairness", "test_flood", "test_origins", "test_purge", "test_readers", "test_removal", "test_retry_after",
         "test_starvation", "test_stopped_reader", "test_waiters"}
# The longest first, so that none is left at the end.
LONG = ["test_hang", "test_fetch", "test_leases", "test_stream", "test_resume", "test_adoption", "test_crash_loop",
        "test_names", "test_addresses", "test_cookies", "test_forms"]
NO_TESTS = 5  # What later Pythons end with where no test has the pattern.


def run(module, patterns):
    """A module's tests: its name, whether they passed, how many there were, seconds, and what was said."""
    began = time.monotonic()
    chosen = [word for pattern in patterns for word in ("-k", pattern)]
    done = subprocess.run([sys.executable, "-B", "-m", "unittest", "-v", *chosen, module], cwd=HERE, text=True,
                          errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    ran = re.search(r"^Ran (\d+) tests?", done.stdout, re.MULTILINE)
    passed = done.returncode in (0, NO_TESTS)
    return module, passed, int(ran[1]) if ran else 0, time.monotonic() - began, done.stdout


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("-k", dest="patterns", action="append", default=[], help="only tests with this in their name")
    patterns = options.parse_args().patterns
    modules = sorted((path.stem for path in HERE.glob("test_*.py")),
                     key=lambda name: (LONG.index(name) if name in LONG else len(LONG), name))
    failed, tests, began = [], 0, time.monotonic()

    def report(result):
        nonlocal tests
        module, passed, count, seconds, said = result
        tests += count
        if not passed:
            failed.append(module)
        if count or not passed:
            print(f"{said.rstrip()}\n-- {module}: {'passed' if passed else 'FAILED'}, {count} in {seconds:.1f} s\n", flush=True)

    with concurrent.futures.ThreadPoolExecutor((os.cpu_count() or 1) + 1) as pool:
        beside = [pool.submit(run, module, patterns) for module in modules if module not in ALONE]
        for result in concurrent.futures.as_completed(beside):
            report(result.result())
    for module in modules:
        if module in ALONE:
            report(run(module, patterns))
    print(f"{tests} tests in {time.monotonic() - began:.0f} s", flush=True)
    if not tests:
        sys.exit(f"no test has {' or '.join(patterns)} in its name")
    if failed:
        sys.exit(f"FAILED: {' '.join(sorted(failed))}")


if __name__ == "__main__":
    main()
