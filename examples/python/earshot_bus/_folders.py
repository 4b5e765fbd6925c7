"""Runtime directory of the bus, check for a running broker, and private buses."""

from __future__ import annotations

import atexit
import fcntl
import os
import pathlib
import select
import shutil
import socket
import stat
import struct
import subprocess
import tempfile
import threading

from ._results import NoBroker

START_SECONDS = 20.0
"""Maximum time for the start of a private bus, in seconds."""
END_SECONDS = 5.0
"""Maximum time for its end, in seconds; it has no transfers to finish."""

PATH_BYTES = 107
"""Maximum length of a socket's path: `sun_path` of unix(7) without the zero byte."""

SHARED = pathlib.Path("/run/earshot")
"""Runtime directory of a bus for several users of the machine."""

_FLOCK = struct.Struct("hhqqi4x")
"""`struct flock` of fcntl(2) on 64-bit Linux: type, whence, start, length, pid."""
_CREDENTIALS = struct.Struct("iII")
"""`struct ucred` of unix(7): process, user, group."""


def runtime_folder(named: str | os.PathLike[str] | None) -> pathlib.Path:
    """Returns the named directory, else that of `EARSHOT_RUNTIME`, else the user's default.

    Without `XDG_RUNTIME_DIR` and a running bus of the user in `/tmp`, this is the directory of a bus in the user's session
    directory if one runs there, else of a bus for several users if there is one.
    """
    if named is not None:
        return pathlib.Path(named).absolute()
    if variable := os.environ.get("EARSHOT_RUNTIME"):
        return pathlib.Path(variable).absolute()
    if variable := os.environ.get("XDG_RUNTIME_DIR"):
        return pathlib.Path(variable).absolute() / "earshot"
    own = pathlib.Path("/tmp", f"earshot-{os.geteuid()}")
    if _serves(own):
        return own
    session = _session_folder()
    if session and _serves(session):
        return session
    return SHARED if (SHARED / "bus").exists() else own


def _session_folder(base: str = "/run/user") -> pathlib.Path | None:
    """Returns the runtime directory in the user's session directory, which cron and su(1) do not name."""
    folder = pathlib.Path(base, str(os.geteuid()))
    try:
        found = folder.lstat()
    except OSError:
        return None
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
    return folder / "earshot" if is_own else None


def _serves(folder: pathlib.Path) -> bool:
    try:
        return is_served(folder)
    except NoBroker:
        return False


def socket_path(folder: pathlib.Path, endpoint: str) -> str:
    """Returns the path of the broker's socket. Raises `NoBroker` if it is too long for a socket."""
    path = str(folder / endpoint)
    if len(os.fsencode(path)) > PATH_BYTES:
        raise NoBroker(f"{path} is too long for a socket (maximum {PATH_BYTES} bytes): use a shorter runtime directory")
    return path


def is_served(folder: pathlib.Path) -> bool:
    """Returns whether a broker or its supervisor runs, according to their locks, or a service manager starts one for the
    first connection.

    Raises `NoBroker` if the directory is not trusted: in `/tmp` any user can create one, and would receive the requests.
    """
    listeners = trusted_listeners(folder)
    if listeners is None:
        return False
    return any(_is_held(folder / name) for name in ("broker.lock", "serve.lock")) or _is_listening(folder / "bus", listeners)


def trusted_listeners(folder: pathlib.Path) -> set[int] | None:
    """Returns the users whose listener in this directory is trusted; None if the directory is missing.

    In a directory of this user this is the user. That of another user is trusted if no other user can change it, and root
    decided its owner. Raises `NoBroker` for any other directory.
    """
    try:
        found = os.lstat(folder)
    except OSError:
        return None
    if stat.S_ISDIR(found.st_mode):
        if found.st_uid == os.geteuid() and (not found.st_mode & 0o077 or stat.S_IMODE(found.st_mode) == 0o755):
            return {found.st_uid}
        administrators = {0, os.lstat("/").st_uid}
        if (found.st_uid != os.geteuid() and not found.st_mode & 0o022
                and _only_root_decides(folder, administrators, found.st_uid in administrators)):
            return administrators | {found.st_uid}
    raise NoBroker(f"{folder} is not a directory private to this user, and not a shared one below directories of root: "
                   "remove it, or set EARSHOT_RUNTIME")


def _only_root_decides(folder: pathlib.Path, administrators: set[int], allows_sticky: bool) -> bool:
    """Returns whether only root, or this user, can create and replace the directory. A path with links is not accepted."""
    for above in folder.parents:
        found = os.lstat(above)
        is_safe = not found.st_mode & 0o022 or (allows_sticky and found.st_mode & stat.S_ISVTX)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in administrators | {os.geteuid()} or not is_safe:
            return False
    return True


def _is_listening(path: pathlib.Path, listeners: set[int]) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except OSError:
            return False
        return listener(probe) in listeners


def listener(connection: socket.socket) -> int:
    """Returns the user at the other end of a connection."""
    return int(_CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[1])


def no_broker(folder: pathlib.Path, why: str = "no broker runs") -> NoBroker:
    """Returns the error for a missing broker, with advice."""
    return NoBroker(f"{why} in {folder}: start one with `earshot serve`, set EARSHOT_RUNTIME to its directory, "
                    "or use earshot_bus.connect(private=True)")


def _is_held(lock: pathlib.Path) -> bool:
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _FLOCK.pack(fcntl.F_WRLCK, 0, 0, 0, 0))
        return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
    finally:
        os.close(descriptor)


class PrivateBus:
    """Bus for this process alone, which ends with the process, even if that is killed."""

    def __init__(self) -> None:
        self._program = os.environ.get("EARSHOT_BINARY") or shutil.which("earshot")
        if not self._program:
            raise NoBroker("no program `earshot` for a private bus: add it to the PATH, or set EARSHOT_BINARY")
        self._owner = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self._error: OSError | None = None
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="earshot-"))
        self._started = threading.Event()
        # The kernel ends the bus together with the thread that started it, so that thread stays alive.
        self._supervisor = threading.Thread(target=self._supervise, name="earshot-private", daemon=True)
        self._reader, self._writer = os.pipe()
        self._supervisor.start()

    def await_ready(self) -> None:
        """Waits until clients can connect. Raises `NoBroker` if the bus does not start."""
        self._started.wait()
        os.close(self._writer)
        os.set_blocking(self._reader, False)
        with open(self._reader, "rb", buffering=0) as reader:
            ready = select.select([reader], [], [], START_SECONDS)[0] and reader.read(1)
        if not ready:
            reason = f": {self._error.strerror}" if self._error else ""
            self.end()
            raise NoBroker(f"a private bus did not start ({self._program} serve){reason}")

    @property
    def is_alive(self) -> bool:
        """Whether the bus belongs to this process and runs."""
        return self._owner == os.getpid() and self._supervisor.is_alive()

    def end(self) -> None:
        """Ends the bus and removes its directory. Does nothing in a forked child, which does not own the bus."""
        if self._owner != os.getpid():
            return
        if self._process is not None:
            self._process.terminate()
            self._supervisor.join(END_SECONDS)
            if self._supervisor.is_alive():
                self._process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _supervise(self) -> None:
        try:
            self._process = subprocess.Popen(
                [str(self._program), "serve", "--runtime", str(self.folder), "--log-level", "error", "--ready-fd",
                 str(self._writer), "--private-to", str(self._owner)],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[self._writer])
        except OSError as error:
            self._error = error
            return
        finally:
            self._started.set()
        self._process.wait()


_lock = threading.Lock()
_private: PrivateBus | None = None


def _forked() -> None:
    global _lock
    _lock = threading.Lock()  # The thread that held the lock does not exist in the child.


os.register_at_fork(after_in_child=_forked)


def private_folder() -> pathlib.Path:
    """Returns the runtime directory of this process's private bus. Starts the bus if necessary, and waits for it."""
    global _private
    with _lock:
        if _private is None or not _private.is_alive:
            bus = PrivateBus()
            bus.await_ready()
            atexit.register(bus.end)
            _private = bus
        return _private.folder
