"""ZMTP 3.0 with the mechanism NULL over raw sockets, for peers that libzmq cannot play: silent ones, thousands in one thread,
and connections that outlive their process."""

import socket

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)

_MORE, _LONG, _COMMAND = 1, 2, 4


def frame(data, more=False):
    """Returns a frame of a message. `more`: another frame of the message follows."""
    return _frame(_MORE if more else 0, data)


def command(name, data=b""):
    """Returns a command frame."""
    return _frame(_COMMAND, bytes([len(name)]) + name + data)


def ready(kind):
    """Returns the READY command of a socket of this type, such as `b"DEALER"`."""
    return command(b"READY", b"\x0bSocket-Type" + len(kind).to_bytes(4, "big") + kind)


def read_frame(take):
    """Returns the content of the next frame. `take(count)` returns the next `count` bytes of the connection."""
    flags, = take(1)
    return take(int.from_bytes(take(8 if flags & _LONG else 1), "big"))


def connect(path):
    """Returns a Unix socket after a DEALER's handshake, with a timeout of 60 s."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(60)
        connection.connect(str(path))
        connection.sendall(GREETING + ready(b"DEALER"))
        _exactly(connection, len(GREETING))
        read_frame(lambda count: _exactly(connection, count))
    except OSError:
        connection.close()
        raise
    return connection


def send(connection, head):
    """Sends a message of one frame."""
    connection.sendall(frame(head))


def await_end(connection, timeout=60):
    """Returns whether the peer closes the connection in time. Drops all data before that."""
    connection.settimeout(timeout)
    try:
        while connection.recv(4096):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


def _frame(flags, data):
    if len(data) < 256:
        return bytes([flags, len(data)]) + data
    return bytes([flags | _LONG]) + len(data).to_bytes(8, "big") + data


def _exactly(connection, count):
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionError("the peer closed the connection in the handshake")
        data += part
    return data
