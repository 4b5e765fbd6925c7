"""read_body.py path|pull URL OUTPUT: fetches a body into OUTPUT, by its path or by READ. Prints the seconds from RESULT to
the last byte.

Speaks ZMTP over a Unix socket itself, so that no library is measured.
"""

import os
import pathlib
import socket
import sys
import time

PIECE = 256 << 10
OPEN_READS = 4
OPENING = (b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16) + bytes(32)
           + b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER")


class Connection:
    def __init__(self):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(os.environ["EARSHOT_RUNTIME"] + "/bus")
        self.socket.sendall(OPENING)
        self.input = self.socket.makefile("rb", buffering=0)
        self.buffer = memoryview(bytearray(PIECE))
        self.exactly(64)
        self.frame()  # READY

    def exactly(self, count):
        """Returns the next bytes, valid until the next call."""
        target = self.buffer[:count]
        while target:
            taken = self.socket.recv_into(target)
            if not taken:
                raise EOFError("the broker ended the connection")
            target = target[taken:]
        return self.buffer[:count]

    def frame(self):
        """Reads the start of a frame. Returns (whether another one follows, its bytes)."""
        flags = self.exactly(1)[0]
        length = int.from_bytes(self.exactly(8 if flags & 2 else 1), "big")
        return bool(flags & 1), self.exactly(length)

    def message(self):
        """Returns the head, and the body, valid until the next call."""
        more, frame = self.frame()
        head = bytes(frame).decode("latin-1")
        return head, self.frame()[1] if more else None

    def say(self, *lines):
        head = "".join(f"{line}\n" for line in lines).encode()
        self.socket.sendall(bytes([0, len(head)]) + head)

    def await_verb(self, verb):
        while True:
            head, body = self.message()
            if head.startswith(verb + " "):
                return head, body
            if head.startswith(("ERROR ", "FAILED ", "GOODBYE")):
                raise SystemExit(head)


def field(head, name):
    return next(line.partition(": ")[2] for line in head.split("\n") if line.startswith(f"{name}: "))


def pull(bus, number, length, output):
    asked = done = 0
    while done < length:
        while asked < length and asked - done < OPEN_READS * PIECE:
            bus.say(f"READ {number} {asked} {PIECE}")
            asked += PIECE
        _, body = bus.await_verb("DATA")
        done += output.write(body)


def copy(path, output):
    buffer = memoryview(bytearray(1 << 20))
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            output.write(buffer[:count])


def main(how, url, target):
    bus = Connection()
    bus.say("HELLO EAR/1", f"bodies: {how}")
    bus.await_verb("WELCOME")
    bus.say(f"FETCH read/{os.getpid()} 1 {url}")
    head, _ = bus.await_verb("RESULT")
    with open(target, "wb", buffering=0) as output:
        start = time.perf_counter()
        if how == "pull":
            pull(bus, field(head, "seq"), int(field(head, "length")), output)
        else:
            copy(pathlib.Path(field(head, "file")), output)
        print(time.perf_counter() - start)
    bus.say("ACK 1")
    bus.say("BYE")


if __name__ == "__main__":
    main(*sys.argv[1:])
