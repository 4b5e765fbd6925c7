"""Processes for tests: started with captured output, awaited without sleeping, inspected through /proc."""

import os
import pathlib
import re
import select
import signal
import subprocess
import threading
import time

CRASH_SIGNS = ("Fatal error", "Precondition failed", "Assertion failed", "Program crashed", "Segmentation fault",
               "Illegal instruction", "SIGSEGV", "SIGABRT", "SIGILL", "SIGTRAP", "SIGBUS", "terminate called")
SIZE = r"[\d.]+ (B|[KMG]iB)"
#: Lines about a server or broker that is slow, and about the progress of `get`.
PROGRESS = re.compile(rf"earshot: (waiting|nothing received yet$|\d+/\d+\+? files, |.* {SIZE} of (unknown size|{SIZE})"
                      rf"(, {SIZE}/s)?(, ETA [\ddh: ]+)?(, waiting.*)?$)")


def eventually(condition, what, timeout=60):
    """Polls `condition` until it returns a true value, and returns that. For conditions without an event to await. `what`
    describes the condition if `timeout` seconds were not enough; it may be callable."""
    deadline = time.monotonic() + timeout
    pace = threading.Event()
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what() if callable(what) else what}")
        pace.wait(0.002)


class Program:
    """Running program. Threads read its output, so that it never blocks on a full pipe."""

    def __init__(self, arguments, environment=None, cwd=None, stdin=subprocess.PIPE, pass_fds=()):
        self.arguments = [str(a) for a in arguments]
        self._process = subprocess.Popen(
            self.arguments, env=environment, cwd=cwd, stdin=stdin, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, pass_fds=pass_fds)
        self.pid = self._process.pid
        self._changed = threading.Condition()
        self._bytes = {"stdout": bytearray(), "stderr": bytearray()}
        self._open = 2
        self._readers = [threading.Thread(target=self._read, args=(name,), daemon=True) for name in self._bytes]
        for reader in self._readers:
            reader.start()

    def _read(self, name):
        with getattr(self._process, name) as pipe:
            while data := pipe.read1(1 << 16):
                with self._changed:
                    self._bytes[name] += data
                    self._changed.notify_all()
        with self._changed:
            self._open -= 1
            self._changed.notify_all()

    @property
    def stdout(self):
        with self._changed:
            return bytes(self._bytes["stdout"])

    @property
    def stderr(self):
        with self._changed:
            return self._bytes["stderr"].decode(errors="replace")

    @property
    def messages(self):
        """Lines of standard error, except those of PROGRESS: on a busy machine there may be some."""
        return [line for line in self.stderr.splitlines() if not PROGRESS.match(line)]

    def await_line(self, part, stream="stderr", timeout=60):
        """Returns the first line of `stream` that contains `part`."""
        def find():
            lines = self._bytes[stream].decode(errors="replace").split("\n")[:-1]
            return next((line for line in lines if part in line), None)

        with self._changed:
            self._changed.wait_for(lambda: find() is not None or self._open == 0, timeout)
            line = find()
        if line is None:
            when = f"within {timeout} s" if self._open else "before it ended"
            raise AssertionError(f"no line with '{part}' on {stream} {when}\n{self.describe()}")
        return line

    def write(self, data, ends=True):
        """Writes to its standard input, and closes it unless more follows."""
        self._process.stdin.write(data)
        self._process.stdin.flush()
        if ends:
            self._process.stdin.close()

    def signal(self, number):
        self._process.send_signal(number)

    def kill(self):
        """Sends SIGKILL and awaits its death."""
        self._process.kill()
        return self.wait()

    def wait(self, timeout=60):
        """Returns the exit status (negative: the signal) after the end, with all output read."""
        try:
            status = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            description = self.describe()
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"did not end within {timeout} s\n{description}") from None
        finally:
            if self._process.stdin:
                self._process.stdin.close()
        for reader in self._readers:
            reader.join(10)  # A surviving grandchild may hold the pipe: then the output so far counts.
        return status

    @property
    def running(self):
        return self._process.poll() is None

    def describe(self):
        lines = self.stderr.splitlines()
        if len(lines) > 40:
            lines[20:-20] = [f"({len(lines) - 40} lines)"]
        shown = "\n    ".join(lines)
        return f"{' '.join(self.arguments)[:300]}\n  stdout: {self.stdout[-500:]!r}\n  stderr:\n    {shown}"

    @property
    def crash_lines(self):
        return [line for line in self.stderr.splitlines() if any(sign in line for sign in CRASH_SIGNS)]


def watch_all(pids):
    """Returns handles of those of these processes that still exist, to be closed."""
    found = []
    for pid in pids:
        try:
            found.append(Watched(pid))
        except ProcessLookupError:
            pass  # It ended meanwhile.
    return found


class Watched:
    """Process that is not our child, held by a pidfd: its death can be awaited, and its ID cannot be mistaken."""

    def __init__(self, pid):
        self.pid = pid
        self._descriptor = os.pidfd_open(pid)

    def await_death(self, timeout=60):
        """Returns whether it ended within `timeout`."""
        poller = select.poll()
        poller.register(self._descriptor, select.POLLIN)
        return bool(poller.poll(timeout * 1000))

    def signal(self, number):
        signal.pidfd_send_signal(self._descriptor, number)

    def close(self):
        os.close(self._descriptor)


def kill(pid, number=signal.SIGKILL):
    """Sends a signal to a process that is not our child, and awaits its death."""
    process = Watched(pid)
    try:
        process.signal(number)
        if not process.await_death():
            raise AssertionError(f"{pid} lives after signal {number}")
    finally:
        process.close()


def children(pid):
    """Returns the living children of `pid`."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            after_name = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # It ended meanwhile.
        if int(after_name[1]) == pid and after_name[0] not in "ZX":
            found.append(int(entry.name))
    return sorted(found)


def command(pid):
    """Returns the arguments of `pid`; none after its end."""
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def process_name(pid):
    """Returns the name of `pid` in process listings; empty after its end."""
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def marked(mark):
    """Returns the living processes that inherited `mark` in their environment."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue  # Ended, or not ours.
    return found


def _status_field(path, name):
    for line in pathlib.Path(path).read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    raise AssertionError(f"{path} has no {name}")


def resident(pid):
    """Returns the resident memory of `pid` in bytes."""
    return _status_field(f"/proc/{pid}/status", "VmRSS") * 1024


def resident_peak(pid):
    """Returns the peak of resident memory of `pid` since its start or `reset_peak`, in bytes."""
    return _status_field(f"/proc/{pid}/status", "VmHWM") * 1024


def reset_peak(pid):
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")


def wakeups(pid):
    """Returns how often the current threads of `pid` went to sleep voluntarily: each is a wake-up."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        total += _status_field(task / "status", "voluntary_ctxt_switches")
    return total


def started_at(pid):
    """Returns the start time of `pid` on the clock of `time.monotonic()`; the kernel's resolution is 10 ms."""
    after_name = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    since_boot = int(after_name[19]) / os.sysconf("SC_CLK_TCK")
    return since_boot - (time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic())
