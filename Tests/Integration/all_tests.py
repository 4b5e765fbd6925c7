"""Runs the integration tests: python3 all_tests.py [--long | --slice] [-k PATTERN]…

Most tests wait for a lease to expire or for a slow server. Therefore one module per processor, and one more, run concurrently,
each in its own process. Modules that compare times run alone, after the others.

With EARSHOT_LONG=1 many tests use larger numbers and check the documented times, which hold on an otherwise idle machine.
`--long` sets it and runs the modules that read it, one after the other; `--slice` runs only a few short tests of them.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent
ALONE = {"test_fairness", "test_flood", "test_purge", "test_readers", "test_removal", "test_retry_after",
         "test_stopped_reader", "test_waiters"}
# Strict tests of a few seconds that meet their times with a wide margin.
SLICE = {"test_crashes": ["test_50_transfers_of_a_killed_worker"],
         "test_removal": ["test_a_removal_cuts_its_running_transfers"],
         "test_stream": ["test_who_comes_half_way_reads_what_is_there"],
         "test_waiters": ["test_"]}
# Longest first, so that no long module remains at the end.
LONGEST = ["test_hang", "test_crash_loop", "test_resume", "test_bounds", "test_adoption", "test_leases", "test_failures",
           "test_fetch", "test_http2", "test_stream", "test_own_workers", "test_supervisor", "test_readme", "test_decompression"]
NO_TESTS = 5  # Exit status of later Pythons if no test matches the pattern.


def run(module, patterns):
    """Runs a module's tests. Returns its name, success, number of tests, seconds, and output."""
    began = time.monotonic()
    chosen = [word for pattern in patterns for word in ("-k", pattern)]
    done = subprocess.run([sys.executable, "-B", "-m", "unittest", "-v", *chosen, module], cwd=HERE, text=True,
                          errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    ran = re.search(r"^Ran (\d+) tests?", done.stdout, re.MULTILINE)
    passed = done.returncode in (0, NO_TESTS)
    return module, passed, int(ran[1]) if ran else 0, time.monotonic() - began, done.stdout


def modules(options):
    """Returns the modules to run, the longest first."""
    found = [path for path in HERE.glob("test_*.py") if not options.long or "EARSHOT_LONG" in path.read_text()]
    names = SLICE if options.slice else [path.stem for path in found]
    return sorted(names, key=lambda name: (LONGEST.index(name) if name in LONGEST else len(LONGEST), name))


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("-k", dest="patterns", action="append", default=[], help="only tests with this in their name")
    options.add_argument("--long", action="store_true", help="only modules with strict tests, in their strict form")
    options.add_argument("--slice", action="store_true", help="only a few of the strict tests")
    options = options.parse_args()
    patterns, alone = options.patterns, ALONE
    if options.long or options.slice:
        os.environ["EARSHOT_LONG"] = "1"
        alone = modules(options)
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
        beside = [pool.submit(run, module, patterns) for module in modules(options) if module not in alone]
        for result in concurrent.futures.as_completed(beside):
            report(result.result())
    for module in modules(options):
        if options.slice:
            for pattern in SLICE[module]:
                result = run(module, [pattern])
                report(result)
                if not result[2]:
                    failed.append(f"{module} ({pattern}: no such test)")
        elif module in alone:
            report(run(module, patterns))
    print(f"{tests} tests in {time.monotonic() - began:.0f} s", flush=True)
    if not tests:
        sys.exit(f"no test has {' or '.join(patterns)} in its name")
    if failed:
        sys.exit(f"FAILED: {' '.join(sorted(failed))}")


if __name__ == "__main__":
    main()
