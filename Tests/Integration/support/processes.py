"""Processes as a test needs them: started with their output read, awaited without sleeping, looked at through /proc."""

import os
import pathlib
import select
import signal
import subprocess
import threading
import time

CRASH_SIGNS = ("Fatal error", "Precondition failed", "Assertion failed", "Program crashed", "Segmentation fault",
               "Illegal instruction", "SIGSEGV", "SIGABRT", "SIGILL", "SIGTRAP", "SIGBUS", "terminate called")


def eventually(condition, what, timeout=10):
    """Asks `condition` again until it answers something true, and returns that. For what gives no event to await;
    `what` names it when `timeout` seconds were not enough (a callable is asked then)."""
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
    """A started program. Threads read its output, so that it never stands on a full pipe."""

    def __init__(self, arguments, environment=None, cwd=None, stdin=subprocess.PIPE):
        self.arguments = [str(a) for a in arguments]
        self._process = subprocess.Popen(
            self.arguments, env=environment, cwd=cwd, stdin=stdin, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)
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

    def await_line(self, part, stream="stderr", timeout=10):
        """The first line of `stream` that holds `part`."""
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

    def write(self, data):
        self._process.stdin.write(data)
        self._process.stdin.close()

    def signal(self, number):
        self._process.send_signal(number)

    def kill(self):
        """`kill -9`, and its death awaited."""
        self._process.kill()
        return self.wait()

    def wait(self, timeout=30):
        """The exit status (negative: the signal), once it is there and all output was read."""
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
            reader.join(10)  # A surviving grandchild may hold the pipe: then what was read so far counts.
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
    """Those of these processes that are still there, to be closed."""
    found = []
    for pid in pids:
        try:
            found.append(Watched(pid))
        except ProcessLookupError:
            pass  # It ended while we looked.
    return found


class Watched:
    """A process that is not our child, held by a pidfd: its death can be awaited, its number not be mistaken."""

    def __init__(self, pid):
        self.pid = pid
        self._descriptor = os.pidfd_open(pid)

    def await_death(self, timeout=10):
        """Whether it was gone within `timeout`."""
        poller = select.poll()
        poller.register(self._descriptor, select.POLLIN)
        return bool(poller.poll(timeout * 1000))

    def signal(self, number):
        signal.pidfd_send_signal(self._descriptor, number)

    def close(self):
        os.close(self._descriptor)


def kill(pid):
    """`kill -9` of a process that is not our child, and its death awaited."""
    process = Watched(pid)
    try:
        process.signal(signal.SIGKILL)
        if not process.await_death():
            raise AssertionError(f"{pid} lives after kill -9")
    finally:
        process.close()


def children(pid):
    """The living children of `pid`."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            after_name = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # It ended while we looked.
        if int(after_name[1]) == pid and after_name[0] not in "ZX":
            found.append(int(entry.name))
    return sorted(found)


def command(pid):
    """The arguments `pid` was started with; none if it is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def process_name(pid):
    """What `pid` is called in lists of processes; nothing if it is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def marked(mark):
    """The living processes that inherited `mark` in their environment."""
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
    """Resident memory of `pid` now, in bytes."""
    return _status_field(f"/proc/{pid}/status", "VmRSS") * 1024


def resident_peak(pid):
    """The most resident memory `pid` had since its start or `reset_peak`, in bytes."""
    return _status_field(f"/proc/{pid}/status", "VmHWM") * 1024


def reset_peak(pid):
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")


def wakeups(pid):
    """How often the threads of `pid` that live now have gone to sleep of their own will: each is a wake-up."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        total += _status_field(task / "status", "voluntary_ctxt_switches")
    return total


def started_at(pid):
    """When `pid` was started, on the clock of `time.monotonic()`; the kernel tells it to 10 ms."""
    after_name = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    since_boot = int(after_name[19]) / os.sysconf("SC_CLK_TCK")
    return since_boot - (time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic())
