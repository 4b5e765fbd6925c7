"""Plays scenarios: play.py [--library LANGUAGE | --adapter COMMAND [--reconnects]] [--broken KIND[:NUMBER]] [NAME ...]

Without an adapter it plays the scenarios of `broker`, otherwise those of `library` and `stand-in`. --library names a
library of this repository, --adapter the command of any other; protocols/scenarios/README.md describes an adapter.
--reconnects states that the library finds the next broker by itself. --broken drops, duplicates, swaps or changes the
message of that number, from 1, so that every scenario must fail. EARSHOT_BINARY is the broker's program. The exit
status is 1 if a scenario fails.
"""

import argparse
import sys

import checkout  # noqa: F401 (the paths come first)

from adapters import ADAPTERS, adapter_of
from player import Player
from scenario import all_scenarios
from support.harness import Bus
from tampering import KINDS, Tampering


def chosen(adapter, names=()):
    """Returns the scenarios to play."""
    if adapter is None:
        found = all_scenarios("broker")
    else:
        found = [s for s in all_scenarios("library") + all_scenarios("stand-in") if adapter.plays(s)]
    return [s for s in found if not names or s.name in names]


def problem(scenario, bus, adapter=None, tampering=None):
    """Plays one scenario. Returns the description of its failure, or None."""
    try:
        Player(scenario, bus, adapter and adapter.started(bus.environment), tampering).play()
    except AssertionError as error:
        return "\n".join([str(error), *getattr(error, "__notes__", [])])
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    library = parser.add_mutually_exclusive_group()
    library.add_argument("--library", choices=[adapter.name for adapter in ADAPTERS])
    library.add_argument("--adapter", metavar="COMMAND", help="command of an adapter, with its arguments")
    parser.add_argument("--reconnects", action="store_true", help="the adapter's library finds the next broker by itself")
    parser.add_argument("--broken", metavar="KIND[:NUMBER]", help=f"{', '.join(KINDS)}")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    if arguments.adapter:
        adapter = adapter_of(arguments.adapter, arguments.reconnects)
    else:
        adapter = next((each for each in ADAPTERS if each.name == arguments.library), None)
    kind, _, number = (arguments.broken or "").partition(":")
    wrong = 0
    with Bus(workers=1) as bus:
        for scenario in chosen(adapter, arguments.names):
            what = problem(scenario, bus, adapter, Tampering(kind, int(number or 1)) if kind else None)
            wrong += (what is None) == bool(kind)
            print(f"{scenario}: {f'failed: {what}' if what else 'passed'}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
