"""ZMTP 3.0 by hand over a Unix socket: for peers that libzmq would not be, silent ones and ones without a process."""

import socket
import struct

GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)


def connect(path):
    """A socket with a finished handshake, as a DEALER's."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(10)
    connection.connect(str(path))
    connection.sendall(GREETING)
    _exactly(connection, 64)
    ready = b"\x05READY" + b"\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
    connection.sendall(b"\x04" + bytes([len(ready)]) + ready)
    _, length = _exactly(connection, 2)
    _exactly(connection, length)
    return connection


def send(connection, head):
    """A message of one short frame."""
    connection.sendall(b"\0" + bytes([len(head)]) + head)


def await_end(connection, timeout):
    """Whether the other side closed it in time; what comes before that is dropped."""
    connection.settimeout(timeout)
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


def _exactly(connection, count):
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionError("closed in the handshake")
        data += part
    return data
