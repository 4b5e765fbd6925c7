"""bin/bench instructions: instruction counts of the hot paths, which are independent of the machine's load.

callgrind counts inside one function of `earshot-lab bench count`, with the same hashes in each run. The counts depend
on the compiler, the packages and the kind of CPU. `--check` compares them with the committed ones, and `--write`
replaces these."""

import argparse
import os
import re
import subprocess
import sys

from bench import folders
from bench.programs import environment

OPERATIONS = ["decode", "submit", "join", "assign", "complete", "encode"]
COMMITTED = folders.SOURCES / "instructions.tsv"

# Growth above the committed counts, in percent, above which --check fails: of one operation, and of their sum. The counts stay
# those of one commit, so that small steps do not add up.
ALLOWED = 10
ALLOWED_SUM = 3

# Parameters of --check: callgrind needs about three seconds for each operation with these.
CHECKED_QUEUED = 1_000


def count(operation, queued):
    """Returns the instructions of one operation with this many requests queued."""
    lab = os.environ.get("EARSHOT_LAB") or str(folders.ROOT / ".build/release/earshot-lab")
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no",
               "--toggle-collect=*Bench*counted*", lab, "bench", "count", operation, str(queued)]
    done = subprocess.run(command, env=environment(SWIFT_DETERMINISTIC_HASHING=1), capture_output=True, text=True)
    found = re.search(r"Collected : (\d+)", done.stderr)
    # No count: the function was renamed or inlined.
    if done.returncode or not found or int(found[1]) == 0:
        raise SystemExit(f"bench: {' '.join(command)}: status {done.returncode}\n{done.stderr[-2000:]}")
    return round(int(found[1]) / int(done.stdout))  # The program prints the number of repetitions.


def committed():
    """Returns the instructions by operation."""
    lines = [line.split("\t") for line in COMMITTED.read_text().splitlines() if line and not line.startswith("#")]
    return {operation: int(instructions) for operation, instructions in lines}


def compare(expected, found):
    """Returns the lines of the comparison, and the operations that grew too much or are only on one side. The last line is the sum."""
    lines, failed = [], []
    if expected.keys() == found.keys():
        expected = {**expected, "sum": sum(expected.values())}
        found = {**found, "sum": sum(found.values())}
    for operation in dict.fromkeys([*expected, *found]):
        before, now = expected.get(operation), found.get(operation)
        if before is None or now is None:
            lines.append(f"{operation:10} {before or '-':>10} {now or '-':>10}  MISSING")
            failed.append(operation)
            continue
        allowed = ALLOWED_SUM if operation == "sum" else ALLOWED
        verdict = "GREW" if now * 100 > before * (100 + allowed) else ""
        lines.append(f"{operation:10} {before:10} {now:10} {now / before - 1:+8.1%}  {verdict}".rstrip())
        if verdict:
            failed.append(operation)
    return lines, failed


def check():
    lines, failed = compare(committed(), {operation: count(operation, CHECKED_QUEUED) for operation in OPERATIONS})
    print(f"{'':10} {'committed':>10} {'now':>10}   growth")
    print("\n".join(lines))
    if failed:
        print(f"bench: more than {ALLOWED} % ({ALLOWED_SUM} % in the sum) over Tests/Bench/instructions.tsv: {', '.join(failed)}. "
              "Is it worth it? bin/bench instructions --write, and say in the commit what was bought.", file=sys.stderr)
    return 1 if failed else 0


def write():
    found = {operation: count(operation, CHECKED_QUEUED) for operation in OPERATIONS}
    head = subprocess.run(["git", "-C", str(folders.ROOT), "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True)
    COMMITTED.write_text("".join([
        f"# Instructions of one operation at commit {head.stdout.strip() or 'unknown'}, {CHECKED_QUEUED} requests being queued: "
        "bin/bench instructions --write\n",
        *(f"{operation}\t{instructions}\n" for operation, instructions in found.items())]))
    return 0


def report(sizes):
    print(f"{'queued':24}" + "".join(f"{queued:12}" for queued in sizes))
    for operation in OPERATIONS:
        print(f"{operation + ', instructions':24}" + "".join(f"{count(operation, size):12}" for size in sizes),
              flush=True)
    return 0


def main(words):
    parser = argparse.ArgumentParser(prog="bin/bench instructions")
    parser.error = lambda message: parser.exit(64, f"{parser.format_usage()}bench: {message}\n")
    parser.add_argument("sizes", nargs="*", type=int, metavar="QUEUED", help="requests queued (1000 1000000)")
    parser.add_argument("--check", action="store_true", help=f"fail if an operation grew by more than {ALLOWED} %%, or their sum by more than {ALLOWED_SUM} %%")
    parser.add_argument("--write", action="store_true", help="replace the committed counts by the present ones")
    options = parser.parse_args(words)
    if options.check:
        return check()
    return write() if options.write else report(options.sizes or [1_000, 1_000_000])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
