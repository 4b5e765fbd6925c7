"""The built program under test: a bus in its own folder, and the commands that use it.

Builds nothing: the program is EARSHOT_BINARY (`bin/test` sets it), otherwise the result of `swift build` in `.build`.
Everything waits for an event with a deadline. Every process that a bus started has ended when its `with` ends, or the test
fails.
"""

import json
import os
import pathlib
import shutil
import signal
import tempfile
import unittest
import uuid

from .client import Client, StubbornClient
from .processes import Program, children, command, eventually, marked, watch_all

SUPPORT = pathlib.Path(__file__).resolve().parent
"""This package. `[PYTHON, SUPPORT, "peer", …]` runs its module `peer` as a program."""
ROOT = SUPPORT.parent.parent.parent
PYTHON = "/usr/bin/python3"


def binary():
    """Returns the path of the program under test."""
    candidates = [os.environ.get("EARSHOT_BINARY"), ROOT / ".build/debug/earshot", ROOT / ".build/release/earshot"]
    for candidate in candidates:
        if candidate and os.access(candidate, os.X_OK):
            return str(candidate)
    raise AssertionError("no built earshot: run bin/test, or set EARSHOT_BINARY")


def web():
    """Returns the path of `earshot-web`, by default of the same build as `earshot`."""
    for candidate in (os.environ.get("EARSHOT_WEB"), pathlib.Path(binary()).parent / "earshot-web"):
        if candidate and os.access(candidate, os.X_OK):
            return str(candidate)
    raise AssertionError("no built earshot-web: run bin/test web, or set EARSHOT_WEB")


def lab():
    """Returns the path of `earshot-lab`, whose `client`, `adapter` and `readers` tests use."""
    for candidate in (os.environ.get("EARSHOT_LAB"), ROOT / ".build/release/earshot-lab"):
        if candidate and os.access(candidate, os.X_OK):
            return str(candidate)
    raise AssertionError("no built earshot-lab: run bin/test, or set EARSHOT_LAB")


def temporary_folder():
    """Creates a folder with a short path (an ipc path holds at most 107 bytes)."""
    return pathlib.Path(tempfile.mkdtemp(prefix="ear-"))


def remove_folder(folder):
    """Removes a folder in which a broker may delete files at the same time."""
    def report(function, path, failure):
        if not issubclass(failure[0], FileNotFoundError):
            raise failure[1]
    shutil.rmtree(folder, onerror=report)


def check_ledgers(ledger):
    """Fails unless both ledgers balance."""
    requests, deliveries = ledger["requests"], ledger["deliveries"]
    ends = (requests["answered"] + sum(requests["failed"].values()) + requests["removed"] + requests["orphaned"]
            + requests["pending"])
    if requests["submitted"] != ends:
        raise AssertionError(f"requests do not balance: {ends} accounted: {requests}")
    accounted = deliveries["acknowledged"] + deliveries["lost"] + deliveries["outstanding"]
    if deliveries["due"] != accounted:
        raise AssertionError(f"deliveries do not balance: {accounted} accounted: {deliveries}")


OF_TESTS = {"EARSHOT_BINARY", "EARSHOT_LAB", "EARSHOT_WEB", "EARSHOT_LONG", "EARSHOT_SEED", "EARSHOT_TEST_SEED",
            "EARSHOT_FUZZ_SECONDS"}
"""Variables for the tests themselves."""


class Commands:
    """Runs the program with one runtime folder. Its processes carry a mark by which survivors are found."""

    def __init__(self, runtime, folder):
        self.runtime = runtime
        self.folder = folder
        # The user's folder for the cache, partial bodies, and the spools of private buses.
        self.user_cache = folder / "caches" / "earshot"
        self.mark = f"BUS_UNDER_TEST={uuid.uuid4()}"
        # The program reports variables EARSHOT_… that it does not know.
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.lower().endswith("_proxy") and name not in OF_TESTS}
        name, _, value = self.mark.partition("=")
        self.environment.update({name: value, "EARSHOT_RUNTIME": str(runtime), "TMPDIR": str(folder),
                                 "XDG_CONFIG_HOME": str(folder / "config"), "XDG_STATE_HOME": str(folder / "state"),
                                 "XDG_CACHE_HOME": str(self.user_cache.parent)})

    def start(self, *arguments, cwd=None):
        return Program([binary(), *arguments], self.environment, cwd or self.folder)

    def start_ignoring(self, signals, *arguments):
        """Starts the program with these signals ignored, as nohup(1) does."""
        numbers = " ".join(str(int(number)) for number in signals)
        return Program(["/bin/sh", "-c", f"trap '' {numbers}; exec \"$0\" \"$@\"", binary(), *arguments],
                       self.environment, self.folder)

    def run(self, *arguments, cwd=None, timeout=60, input=None):
        """Runs a command to its end. The program's `status` is its exit code."""
        program = self.start(*arguments, cwd=cwd)
        if input is not None:
            program.write(input)
        program.status = program.wait(timeout)
        if program.crash_lines:
            raise AssertionError(f"it crashed\n{program.describe()}")
        return program

    def await_status(self, *options):
        """Returns the output of `status`, which waits only briefly for a broker of which a child fails."""
        return eventually(lambda: (program := self.run("status", *options)).status == 0 and program.stdout, "status has an answer")

    def await_no_survivors(self, timeout=60):
        """Waits until every process started here, directly or indirectly, has ended."""
        eventually(lambda: not marked(self.mark),
                   lambda: f"all processes gone; left: {[(p, command(p)) for p in marked(self.mark)]}", timeout)


class Bus(Commands):
    """Running `earshot serve`: `with Bus(workers=1) as bus:`.

    `descriptors`: limit of each process. `crashes`: whether the test expects crashes. `environment`: additional variables of
    its processes. `prefix`: command that starts the program.
    """

    def __init__(self, workers=2, slots=64, origin_limit=None, folder=None, arguments=(), descriptors=None,
                 crashes=False, environment=None, prefix=()):
        self._prefix = list(prefix)
        self._owned = folder is None
        folder = folder or temporary_folder()
        super().__init__(folder / "run", folder)
        self.environment.update(environment or {})
        self.spool = folder / "spool"
        self._options = ["--workers", workers, "--slots", slots, *arguments]
        if origin_limit:
            self._options += ["--origin-limit", origin_limit]
        self._count = workers
        self._clients = []
        self._descriptors = descriptors
        self._crashes = crashes
        self.program = None

    def spooled(self, *suffixes):
        """Returns the files in the spool and in the folders of workers, except the lock; with suffixes only theirs."""
        paths = [pathlib.Path(folder, name) for folder, _, names in os.walk(self.spool) for name in names]
        return [path for path in paths if path.suffix != ".lock" and (not suffixes or path.suffix in suffixes)]

    def __enter__(self):
        limit = ["prlimit", f"--nofile={self._descriptors}:{self._descriptors}"] if self._descriptors else []
        serve = [binary(), "serve", "--runtime", self.runtime, "--spool", self.spool, *self._options]
        self.program = Program([*self._prefix, *limit, *serve], self.environment, self.folder)
        try:
            self.program.await_line("ready, bus ")
        except AssertionError:
            self._abort()
            raise
        return self

    def __exit__(self, kind, error, _):
        for client in self._clients:
            client.close()
        try:
            if error is None:
                self._stop()
            else:
                error.add_note(self.program.describe())
        finally:
            self._abort()

    # Its processes.

    @property
    def supervisor(self):
        return self.program.pid

    @property
    def broker(self):
        """The broker's process ID, once it runs."""
        return eventually(lambda: self._pids("broker"), "the supervisor has a broker")[0]

    @property
    def workers(self):
        """The workers' process IDs, once all of them run."""
        def all_of_them():
            pids = self._pids("worker")
            return pids if len(pids) == self._count else None
        return eventually(all_of_them, f"the supervisor has {self._count} workers")

    def family(self):
        """Process IDs of the supervisor, the broker and the workers."""
        return [self.supervisor, self.broker, *self.workers]

    def _pids(self, role):
        return [pid for pid in children(self.supervisor) if role in command(pid)[1:2]]

    # Its state.

    def client(self, kind=Client, **options):
        """Returns a new client, closed at the end."""
        client = kind(self.runtime, **options)
        self._clients.append(client)
        return client

    def stubborn_client(self, **options):
        return self.client(StubbornClient, **options)

    def status(self):
        answer = self.run("status", "--json")
        if answer.status:
            raise AssertionError(f"status failed with {answer.status}\n{answer.describe()}")
        return json.loads(answer.stdout)

    # Its end.

    def kill_service(self):
        """Kills the supervisor with SIGKILL and awaits the deaths of its processes; the test's programs continue."""
        watched = watch_all(self.family())
        self.program.kill()
        self._await_deaths(watched)

    def kill(self):
        """Kills the supervisor with SIGKILL and awaits the deaths of all processes of the test."""
        watched = watch_all(marked(self.mark))
        self.program.kill()
        # A process whose environment is gone may still hold its locks.
        self._await_deaths(watched)
        self.await_no_survivors()

    def _await_deaths(self, watched):
        try:
            for process in watched:
                if not process.await_death():
                    raise AssertionError(f"{process.pid} {command(process.pid)} outlived serve\n"
                                         + self.program.describe())
        finally:
            for process in watched:
                process.close()

    def _stop(self):
        """Sends SIGTERM, and once more if work is left. Then no process may be left, and none may have crashed."""
        watched = watch_all(marked(self.mark))
        try:
            if self.program.running:
                self.program.signal(signal.SIGTERM)
                if not watched_death(watched, self.supervisor, 2):
                    self.program.signal(signal.SIGTERM)
                status = self.program.wait()
                if status != 0:
                    raise AssertionError(f"serve ended with {status}\n{self.program.describe()}")
        except BaseException:
            for process in watched:
                process.close()
            raise
        self._await_deaths(watched)
        if self.program.crash_lines and not self._crashes:
            raise AssertionError(f"a process crashed\n{self.program.describe()}")

    def _abort(self):
        for pid in marked(self.mark):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if self.program.running:
            self.program.kill()
        if self._owned:
            shutil.rmtree(self.folder, ignore_errors=True)


def watched_death(watched, pid, timeout):
    """Returns whether the process died in time; true if it had already ended."""
    return all(process.await_death(timeout) for process in watched if process.pid == pid)


class TestCase(unittest.TestCase):
    """Common parts of the tests."""

    longMessage = True

    def balance(self, client):
        """Returns the ledger, after checking that it balances."""
        ledger = client.query("ledger")
        check_ledgers(ledger)
        return ledger

    def await_requests(self, client, timeout=60, **wanted):
        """Polls the ledger until its counts of requests match: `pending=0, orphaned=50`."""
        last = {}

        def reached():
            last.update(client.query("ledger")["requests"])
            return all(last[name] == value for name, value in wanted.items())
        eventually(reached, lambda: f"requests {wanted}, they are {last}", timeout)

    def assertResult(self, message, content):
        """Asserts a RESULT with this content, and correct length and checksum."""
        self.assertEqual(message.verb, "RESULT", message)
        self.assertEqual(int(message.fields["length"]), len(content), message)
        self.assertTrue(message.content() == content, f"{message}: other bytes than the origin's")

    def assertHolds(self, client, **wanted):
        """Asserts that the broker uses these settings, such as `origin_limit="3"`."""
        settings = client.settings()
        found = {name: settings.get(name.replace("_", "-"), (None,))[0] for name in wanted}
        self.assertEqual(found, wanted)

    def assertFailed(self, message, code):
        self.assertEqual((message.verb, message.operands[2:]), ("FAILED", [code]), message)
