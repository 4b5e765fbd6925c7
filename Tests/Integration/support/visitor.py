"""Client of another user, in its own process: `support visitor UID RUNTIME CODE`, started by root.

Runs CODE with the rights of the user: `client(**options)` connects, `report(value)` prints a value as a line of JSON, and `pull`
reads a body. Prints `ready` first; the last line is `done` unless CODE failed.
"""

import json
import os
import pathlib
import sys

# Loaded before the rights are gone: the checkout may be closed to other users.
import encodings.idna  # noqa: F401
import uuid  # noqa: F401

import zmq  # noqa: F401
import zmq.utils.monitor  # noqa: F401

from .client import Client
from .harness import PYTHON, ROOT, SUPPORT
from .processes import Program
from .puller import pull


class Visitor(Program):
    """Running visitor. `prefix`: a command that starts it, such as unshare(1)."""

    def __init__(self, user, runtime, code, prefix=()):
        super().__init__([*prefix, PYTHON, "-B", SUPPORT, "visitor", user, runtime, code])

    def reported(self, timeout=60):
        """Returns the reported values, after its end."""
        if self.wait(timeout):
            raise AssertionError(self.describe())
        lines = self.stdout.decode().splitlines()
        if lines[:1] != ["ready"] or lines[-1:] != ["done"]:
            raise AssertionError(self.describe())
        return [json.loads(line) for line in lines[1:-1]]


def main():
    sys.path.append(str(ROOT / "examples/python"))
    import earshot_bus.blocking  # noqa: F401
    user, runtime, code = int(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    if user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    print("ready", flush=True)

    def report(value):
        print(json.dumps(value), flush=True)

    exec(code, {"client": lambda **options: Client(runtime, **options), "report": report, "pull": pull, "runtime": runtime,
                "os": os, "sys": sys})
    print("done", flush=True)


if __name__ == "__main__":
    main()
