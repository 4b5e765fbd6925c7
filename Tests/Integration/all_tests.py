"""Runs the integration tests: python3 all_tests.py [--long | --slice] [--folder FOLDER] [--modules FILES] [-k PATTERN]…

Most tests wait for a lease to expire or for a slow server, and modules use a third of a processor. Therefore two modules per
processor, and one more, run concurrently, each in its own process. Modules whose ordinary form depends on the load run alone,
after the others.

With EARSHOT_LONG=1 many tests use larger numbers and check the documented times, which hold on an otherwise idle machine.
`--long` sets it and runs the modules that read it, one after the other; `--slice` runs only a few short tests of them.
`--folder` names another folder of modules, such as that of the tests of earshot-web.

The peers that tests play use the pyzmq of the interpreter that runs this.
"""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent
ALONE = {"test_cluster_turns", "test_stopped_reader"}
# Strict tests of a few seconds that meet their times with a wide margin.
SLICE = {"test_crashes": ["test_50_transfers_of_a_killed_worker"],
         "test_removal": ["test_a_removal_cuts_its_running_transfers"],
         "test_stream": ["test_who_comes_half_way_reads_what_is_there"],
         "test_cluster_removal": ["test_a_removed_handler"],
         "test_waiters": ["test_"]}
# Longest first, so that no long module remains at the end.
LONGEST = ["test_door_hostile", "test_server_hostile", "test_remote", "test_cluster_sharing", "test_removed_folders", "test_background",
           "test_large_removal", "test_completions", "test_cluster_security", "test_durable", "test_network", "test_cluster_health",
           "test_users", "test_bounds", "test_cluster_bodies", "test_gateway", "test_gateway_hostile", "test_cluster_deaths",
           "test_cluster_drain", "test_lists", "test_crash_loop", "test_hang"]
NO_TESTS = 5  # Exit status of later Pythons if no test matches the pattern.


def run(module, patterns, folder):
    """Runs a module's tests. Returns its name, success, number of tests, seconds, and output."""
    began = time.monotonic()
    chosen = [word for pattern in patterns for word in ("-k", pattern)]
    done = subprocess.run([sys.executable, "-B", "-m", "unittest", "-v", *chosen, module], cwd=folder, text=True, errors="replace",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    ran = re.search(r"^Ran (\d+) tests?", done.stdout, re.MULTILINE)
    passed = done.returncode in (0, NO_TESTS)
    return module, passed, int(ran[1]) if ran else 0, time.monotonic() - began, done.stdout


def jobs(options):
    """Returns modules with patterns of tests to run, the longest first."""
    if options.tests:
        return [(module, [pattern]) for module, patterns in options.tests.items() for pattern in patterns]
    found = [path for path in options.folder.glob(options.modules) if not options.long or "EARSHOT_LONG" in path.read_text()]
    names = sorted((path.stem for path in found),
                   key=lambda name: (LONGEST.index(name) if name in LONGEST else len(LONGEST), name))
    return [(name, options.patterns) for name in names]


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("-k", dest="patterns", action="append", default=[], help="only tests with this in their name")
    options.add_argument("--folder", type=pathlib.Path, default=HERE, help="folder of the modules")
    options.add_argument("--modules", default="test_*.py", help="only modules whose files match this")
    options.add_argument("--long", action="store_true", help="only modules with strict tests, in their strict form")
    options.add_argument("--slice", dest="tests", action="store_const", const=SLICE, help="only a few of the strict tests")
    options = options.parse_args()
    is_strict = options.long or options.tests is not None
    if is_strict:
        os.environ["EARSHOT_LONG"] = "1"
    failed, tests, skipped, began = [], 0, [], time.monotonic()

    def report(result):
        nonlocal tests
        module, passed, count, seconds, output = result
        tests += count
        skipped.extend(re.findall(r"\.\.\. skipped ['\"](.*)['\"]$", output, re.MULTILINE))
        if not passed:
            failed.append(module)
        elif options.tests and not count:
            failed.append(f"{module} (no such test)")
        if count or not passed:
            print(f"{output.rstrip()}\n-- {module}: {'passed' if passed else 'FAILED'}, {count} in {seconds:.1f} s\n", flush=True)

    alone = [job for job in jobs(options) if is_strict or job[0] in ALONE]
    with concurrent.futures.ThreadPoolExecutor(2 * (os.cpu_count() or 1) + 1) as pool:
        beside = [pool.submit(run, *job, options.folder) for job in jobs(options) if job not in alone]
        for result in concurrent.futures.as_completed(beside):
            report(result.result())
    for job in alone:
        report(run(*job, options.folder))
    for reason, count in sorted(collections.Counter(skipped).items()):
        print(f"{count} skipped: {reason}")
    print(f"{tests} tests in {time.monotonic() - began:.0f} s, {len(skipped)} of them skipped", flush=True)
    if not tests:
        sys.exit(f"no test has {' or '.join(options.patterns)} in its name")
    if failed:
        sys.exit(f"FAILED: {' '.join(sorted(failed))}")


if __name__ == "__main__":
    main()
