"""Client in its own process that uses more than its share: `support flooder RUNTIME KIND COUNT`.

`unread`: COUNT connections query the list of handlers 300 times and read nothing. `frames`: COUNT connections send all but the
end of a message of 4 MiB. `heads`: one connection makes COUNT requests to a silent origin, with 31 KiB of header fields each.
`questions`: COUNT connections query the list of handlers and the status, and read. `handlers`: one connection subscribes to
COUNT handlers. The program prints `done` when the broker has accepted all of it, or nothing more for one second, and ends with
its input.
"""

import os
import select
import socket
import struct
import sys
import threading

from . import zmtp

CONNECTIONS = []
"""All connections, kept open as long as the program runs."""

QUIET = 1
"""Seconds without progress after which the broker is assumed to read nothing more."""


def connect(runtime):
    connection = zmtp.connect(f"{runtime}/bus")
    connection.sendall(zmtp.frame(b"HELLO EAR/1\nwindow: 256\n"))
    connection.recv(4096)
    connection.setblocking(False)
    CONNECTIONS.append(connection)
    return connection


def push(pieces):
    """Writes to connections the bytes given for each, until all are written or nothing more is accepted for some time."""
    waiting = {connection: memoryview(data) for connection, data in pieces.items()}
    while waiting:
        _, writable, _ = select.select([], list(waiting), [], QUIET)
        if not writable:
            return
        for connection in writable:
            try:
                sent = connection.send(waiting[connection][:1 << 20])
            except BlockingIOError:
                continue
            except OSError:
                del waiting[connection]
                continue
            waiting[connection] = waiting[connection][sent:]
            if not waiting[connection]:
                del waiting[connection]


def read_all(connections):
    """Reads and drops input, and repeats the queries after each 64 KiB of replies."""
    questions = zmtp.frame(b"QUERY handlers\n") + zmtp.frame(b"QUERY status\n")
    poller = select.poll()
    for connection in connections.values():
        connection.sendall(questions * 16)
        poller.register(connection, select.POLLIN)
    while True:
        for descriptor, _ in poller.poll():
            data = connections[descriptor].recv(1 << 20)
            if not data:
                return
            try:
                connections[descriptor].send(questions)
            except BlockingIOError:
                pass


def subscribe(connection, count):
    for start in range(0, count, 1000):
        connection.sendall(b"".join(zmtp.frame(f"SUBSCRIBE q/{index}\n".encode()) for index in range(start, start + 1000)))
    connection.sendall(zmtp.frame(b"QUERY ping\n"))
    connection.recv(4096)


def main():
    runtime, kind, count, *rest = sys.argv[1:]
    count = int(count)
    if kind == "handlers":
        connection = connect(runtime)
        connection.setblocking(True)
        connection.settimeout(120)
        subscribe(connection, count)
    elif kind == "unread":
        question = zmtp.frame(b"QUERY handlers\n") * 300
        push({connect(runtime): question for _ in range(count)})
    elif kind == "frames":
        data = zmtp.frame(b"FETCH", more=True) + zmtp.frame(bytes(4 << 20))[:-1]
        push({connect(runtime): data for _ in range(count)})
    elif kind == "heads":
        fields = "\n".join(f"x-{index}: {'y' * 1000}" for index in range(31))
        heads = (f"FETCH heads {index} {rest[0]}/{index}\n\n{fields}\n".encode() for index in range(count))
        connection = connect(runtime)
        push({connection: b"".join(zmtp.frame(head) for head in heads)})
    elif kind == "questions":
        connections = [connect(runtime) for _ in range(count)]
        by_descriptor = {connection.fileno(): connection for connection in connections}
        for connection in connections:
            connection.setblocking(True)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 1000))
        threading.Thread(target=read_all, args=(by_descriptor,), daemon=True).start()
    print("done", flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
