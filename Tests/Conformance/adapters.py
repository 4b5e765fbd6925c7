"""Client libraries under test. Each has an adapter, a small program beside its examples."""

import os
import shlex

from checkout import ROOT
from languages import LANGUAGES
from support.harness import PYTHON, lab


class Adapter:
    """Start command of an adapter. `reconnects`: the library finds the next broker by itself, else it reports that
    it gives up."""

    def __init__(self, name, command, reconnects=False, folder=None, environment=None):
        self.name = name
        self.reconnects = reconnects
        self._command = command
        self._folder = folder
        self._environment = environment or {}

    def plays(self, scenario):
        """Whether the scenario applies to a library of this kind."""
        return scenario.only_for in (None, "reconnect" if self.reconnects else "give up")

    def started(self, environment):
        """Returns the command, its working folder and its environment; builds the adapter if needed."""
        folder = self._folder or next(language for language in LANGUAGES if language.name == self.name).built
        command = self._command() if callable(self._command) else self._command.split()
        return command, folder, {**environment, **self._environment}


def adapter_of(command, reconnects=False):
    """Returns an external adapter for a command line. It runs in the current folder."""
    return Adapter(command, lambda: shlex.split(command), reconnects, folder=os.getcwd())


def _lab(command):
    """The lab's program: `adapter` uses the Swift library's connection, `bus-adapter` uses `Bus`."""
    return [lab(), command]


ADAPTERS = [
    Adapter("c", "./adapter"),
    Adapter("node", "node adapter.mjs"),
    Adapter("python", f"{PYTHON} -B adapter.py", reconnects=True, folder=ROOT / "examples/python/tests",
            environment={"PYTHONPATH": str(ROOT / "examples/python")}),
    Adapter("swift", lambda: _lab("bus-adapter"), reconnects=True, folder=ROOT),
    Adapter("swift-connection", lambda: _lab("adapter"), reconnects=True, folder=ROOT),
]
