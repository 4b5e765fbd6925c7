"""Programs of a measurement: run to their end with their resource usage, or beside it as servers."""

import ctypes
import dataclasses
import functools
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import time

from bench import cpu, folders
from bench.frame import Failed

SYSTEM = "/usr/sbin:/usr/bin:/sbin:/bin"

REST_SECONDS, REST_CPU_SECONDS = 0.25, 0.001
"""Servers rest if they take less CPU in this time, which is longer than any delay of a write."""


def environment(**more):
    """Returns the environment of programs: no proxy, no user settings, and a private home and temporary folder."""
    own = {name: value for name, value in os.environ.items()
           if not name.lower().endswith("_proxy") and not name.startswith(("EARSHOT_", "XDG_"))}
    own["PATH"] = own.get("PATH", "") + ":" + SYSTEM
    own["HOME"] = str(folders.outputs() / "home")
    own["TMPDIR"] = str(folders.outputs())
    return {**own, **{name: str(value) for name, value in more.items()}}


@dataclasses.dataclass(frozen=True)
class Finished:
    seconds: float
    cpu_seconds: float  # Of the program and of all processes that it started.
    stdout: bytes
    stderr: str


def run(arguments, *, timeout=120, env=None, cwd=None, input=None, statuses=(0,)):
    """Runs a program to its end. Raises Failed on a status outside `statuses`, and on timeout. Processes that the program
    leaves behind, such as a private bus, count for the CPU and not for the time; none is left at the return."""
    arguments = [str(argument) for argument in arguments]
    _adopt()
    with tempfile.TemporaryFile(dir=folders.outputs()) as out, tempfile.TemporaryFile(dir=folders.outputs()) as err:
        stdin = subprocess.DEVNULL if input is None else input
        began = time.perf_counter()
        process = subprocess.Popen(arguments, env=env or environment(), cwd=cwd, stdin=stdin, stdout=out, stderr=err,
                                   start_new_session=True)
        killer = threading.Timer(timeout, process.kill)
        killer.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            os.wait4(process.pid, 0)
            raise
        finally:
            killer.cancel()
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        left = _await_left(process.pid)
        out.seek(0)
        err.seek(0)
        errors = err.read().decode(errors="replace")
        if process.returncode not in statuses:
            why = "no end in time" if process.returncode == -signal.SIGKILL else f"status {process.returncode}"
            raise Failed(f"{pathlib.Path(arguments[0]).name}: {why}: {errors[-300:]}")
        return Finished(seconds, _seconds(usage) + left, out.read(), errors)


@functools.cache
def _adopt():
    """Makes this process the parent of processes whose own parent has ended: PR_SET_CHILD_SUBREAPER, prctl(2)."""
    if ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) != 0:
        raise Failed("prctl: this kernel has no PR_SET_CHILD_SUBREAPER")


def _await_left(session):
    """Waits for the end of the processes that a program left in its session. Returns their CPU time in seconds."""
    spent = []

    def has_none():
        left = [pid for pid in cpu.tree(os.getpid()) if _session(pid) == session]
        for pid in left:
            try:
                ended, _, usage = os.wait4(pid, os.WNOHANG)
            except ChildProcessError:
                continue  # A child of another one of them.
            if ended:
                spent.append(_seconds(usage))
        return not left
    eventually(has_none, lambda: "the processes that a program left have ended")
    return sum(spent)


def _session(pid):
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def _seconds(usage):
    return usage.ru_utime + usage.ru_stime


def await_rest(pids):
    """Waits until servers have finished all work, such as writes to the cache that follow the last response."""
    if not pids:
        return
    spent = -1.0

    def rests():
        nonlocal spent
        before, spent = spent, sum(cpu.seconds(pid) for pid in pids)
        if spent - before < REST_CPU_SECONDS:
            return True
        threading.Event().wait(REST_SECONDS)
        return False
    eventually(rests, lambda: "the servers rest", timeout=60)


def eventually(condition, what, timeout=10):
    """Polls until the answer is true, and returns it; `what()` describes it in the error on timeout."""
    deadline = time.monotonic() + timeout
    pace = threading.Event()
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise Failed(f"not within {timeout} s: {what()}")
        pace.wait(0.005)
    return answer


class Server:
    """Context manager of a program. Its output goes to a log in `folder`. It ends with this process in any case."""

    def __init__(self, name, arguments, folder, env=None):
        self.name = name
        self._arguments = ["setpriv", "--pdeathsig", "TERM", "--", *(str(argument) for argument in arguments)]
        self._folder = pathlib.Path(folder)
        self._env = env
        self._process = None

    def __enter__(self):
        self._folder.mkdir(parents=True, exist_ok=True)
        self.log = self._folder / f"{self.name}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(self._arguments, env=self._env or environment(), stdin=subprocess.DEVNULL,
                                             stdout=log, stderr=log, start_new_session=True)
        try:
            self.await_readiness()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        """Sends SIGTERM, and SIGKILL after five seconds."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def await_readiness(self):
        """Readiness of a server that is ready once it runs. Others override it with `await_condition`."""

    def await_condition(self, condition, timeout=10):
        def ready():
            if self._process.poll() is not None:
                raise Failed(f"{self.name} ended: {self._tail()}")
            return condition()
        eventually(ready, lambda: f"{self.name} is ready: {self._tail()}", timeout)

    def _tail(self):
        return self.log.read_text(errors="replace")[-300:]

    @property
    def pid(self):
        return self._process.pid
