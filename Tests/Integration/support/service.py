"""Notification socket of a service manager such as systemd, which keeps notifications in order."""

import contextlib
import pathlib
import socket
import time

from .harness import Commands, binary, temporary_folder
from .processes import Program


class NotifySocket:
    """`environment` is the environment for a service. `abstract`: the socket has no file."""

    def __init__(self, folder, watchdog=None, abstract=False):
        self._path = str(folder / "notify")
        name = f"@{self._path}" if abstract else self._path
        self.environment = {"NOTIFY_SOCKET": name}
        if watchdog:
            self.environment["WATCHDOG_USEC"] = str(int(watchdog * 1_000_000))
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + self._path if abstract else self._path)
        self.received = []

    def close(self):
        self._socket.close()

    def next(self, timeout=60):
        """Returns the variables of the next datagram; None after the timeout."""
        self._socket.settimeout(max(timeout, 0.000_001))
        try:
            text = self._socket.recv(4096).decode()
        except TimeoutError:
            return None
        variables = dict(line.split("=", 1) for line in text.splitlines())
        self.received.append(variables)
        return variables

    def expect(self, variable, value=None, timeout=60):
        """Returns the first later datagram that has the variable (and exactly this value)."""
        deadline = time.monotonic() + timeout
        while (variables := self.next(deadline - time.monotonic())) is not None:
            if variable in variables and value in (None, variables[variable]):
                return variables
        raise AssertionError(f"no {variable}={value} within {timeout} s; heard {self.received}")

    def pending(self):
        """Returns the unread notifications."""
        found = []
        while (variables := self.next(0)) is not None:
            found.append(variables)
        return found


class Service(Commands):
    """`earshot serve` as started by a service manager: its folders in the environment, without arguments."""

    def __init__(self, watchdog=None, abstract=False, workers=2):
        folder = temporary_folder()
        super().__init__(folder / "run", folder)
        self.notify = NotifySocket(folder, watchdog, abstract)
        del self.environment["EARSHOT_RUNTIME"]
        self.cache = folder / "cache"
        self.cache.mkdir()
        self.environment.update(self.notify.environment, RUNTIME_DIRECTORY=f"{self.runtime}:{folder}/another",
                                CACHE_DIRECTORY=str(self.cache))
        self._workers = workers
        self.program = None

    def start_with(self, listener, *arguments):
        """Starts the program with a socket as descriptor 3, as a service manager does for a socket unit."""
        # The shell's process becomes the program, so LISTEN_PID is its number.
        script = f'exec 3<&{listener.fileno()}; LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=earshot.socket exec "$@"'
        self.program = Program(["bash", "-c", script, "bash", binary(), *arguments], self.environment, self.folder,
                               pass_fds=[listener.fileno()])

    @contextlib.contextmanager
    def running(self):
        self.program = self.start("serve", "--workers", self._workers)
        try:
            yield self
        except AssertionError as error:
            error.add_note(self.program.describe())
            raise
        finally:
            self.program.kill()
            self.await_no_survivors()
            self.notify.close()


def environment(pid):
    """Returns the initial environment of a process as a dictionary."""
    lines = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    return dict(line.split("=", 1) for line in lines if "=" in line)


def clock_microseconds():
    """Returns the clock of MONOTONIC_USEC."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


def name(pid):
    """Returns the name in process listings."""
    return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
