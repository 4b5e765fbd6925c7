"""Chaos runs of a whole bus: `bin/chaos --minutes N --seed N`.

Starts a bus, an origin and clients in two languages, disturbs all of them by a schedule, waits until everything has
ended, and compares the clients' journals with the ledgers of the origin and the broker. Exits with 1 on any
disagreement, and keeps all files of the run. A seed determines the decisions, but not the timing of real processes.
"""

import argparse
import pathlib
import shutil
import signal
import sys

import checkout
import canaries
import schedule
from run import Run, disturbed

MOST_SHOWN = 12
"""Maximum number of violations printed. The file `violations` has all of them."""
AROUND_SECONDS = 8
"""Seconds of the time line printed before and after the first violation."""
KEPT = checkout.ROOT / ".build/chaos"


def main():
    options = parse()
    if options.show:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        print(f"without: {', '.join(sorted(schedule.switched_off(options.seed))) or 'nothing'}")
        for decision in schedule.schedule(options.seed, *disturbed(options.minutes * 60)):
            print(decision)
        return 0
    # A signal that ends the run also ends all its processes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    print(f"chaos: {arguments(options)}", flush=True)
    run = Run(options)
    try:
        run.go()
        print(run.summary(), flush=True)
        if run.violations or options.keep:
            keep(options, run)
        if run.violations:
            report(options, run)
    finally:
        shutil.rmtree(run.folder, ignore_errors=True)
    return 1 if run.violations else 0


def parse():
    parser = argparse.ArgumentParser(prog="bin/chaos", description=__doc__.partition("\n\n")[2])
    parser.add_argument("--minutes", type=float, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--canary", choices=canaries.NAMES, help="break the run on purpose: that has to be found")
    parser.add_argument("--show", action="store_true", help="print what the seed decides, and do nothing")
    parser.add_argument("--keep", action="store_true", help="keep journals and logs of a good run too")
    return parser.parse_args()


def arguments(options):
    """Returns the options that reproduce the decisions."""
    canary = f" --canary {options.canary}" if options.canary else ""
    return f"--seed {options.seed} --minutes {options.minutes:g} --clients {options.clients}{canary}"


def keep(options, run):
    """Copies plans, journals, logs and time line to a permanent folder."""
    target = pathlib.Path(KEPT) / f"seed-{options.seed}{'-' + options.canary if options.canary else ''}"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for path in run.folder.glob("clients/*"):
        shutil.copy(path, target)
    (target / "timeline").write_text(run.timeline.text() + "\n")
    (target / "origin").write_text("".join(map(origin_line, run.judge.requests)) if run.judge else "")
    (target / "violations").write_text("\n".join(map(str, run.violations)) + "\n")
    print(f"kept: {target.relative_to(checkout.ROOT)}", flush=True)


def origin_line(request):
    """Returns the origin's record of a request as a line."""
    end = "runs"
    if request.ended or request.aborted:
        end = f"ended {request.ended:.3f}" if request.ended else f"left {request.aborted:.3f}"
    return f"{request.started:.3f} {request.target} {request.headers.get('range', '-')} {end}\n"


def report(options, run):
    print(f"\n{len(run.violations)} violations; again: bin/chaos {arguments(options)}")
    for violation in run.violations[:MOST_SHOWN]:
        print(violation)
    first = min((v.at for v in run.violations if v.at is not None), default=None)
    if first is not None:
        print(f"\nthe time line around {first - run.timeline.begin:.2f} s (journals: {first:.3f})")
        print(run.timeline.text(first - AROUND_SECONDS, first + AROUND_SECONDS))


if __name__ == "__main__":
    sys.exit(main())
