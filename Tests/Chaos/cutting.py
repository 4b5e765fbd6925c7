"""Cuts a connection of another process: duplicates its descriptor (pidfd_getfd(2)) and shuts the socket down."""

import ctypes
import os
import pathlib
import socket

PIDFD_GETFD = 438
_syscall = ctypes.CDLL(None, use_errno=True).syscall


class NotPermitted(Exception):
    """The machine does not permit it."""


def cut(pid, name):
    """Shuts down the connections of `pid` to the socket file `name`. Returns their number. Raises `NotPermitted`."""
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return 0
    try:
        return sum(_cut(process, number, name) for number in _sockets(pid))
    finally:
        os.close(process)


def _sockets(pid):
    """Returns the descriptors of a process that are sockets."""
    found = []
    try:
        for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            try:
                if os.readlink(entry).startswith("socket:"):
                    found.append(int(entry.name))
            except OSError:
                continue  # Closed meanwhile.
    except OSError:
        pass  # The process has ended.
    return found


def _cut(process, number, name):
    copy = _syscall(PIDFD_GETFD, process, number, 0)
    if copy < 0:
        error = ctypes.get_errno()
        if error in (1, 38):  # EPERM, ENOSYS
            raise NotPermitted(os.strerror(error))
        return 0
    try:
        connection = socket.socket(fileno=copy)
    except OSError:  # The process has reused the number since.
        os.close(copy)
        return 0
    with connection:
        if connection.family != socket.AF_UNIX:
            return 0
        try:
            if pathlib.Path(connection.getpeername() or "-").name != name:
                return 0
            connection.shutdown(socket.SHUT_RDWR)
        except (OSError, TypeError):
            return 0  # Not connected, or the peer has no name.
        return 1
