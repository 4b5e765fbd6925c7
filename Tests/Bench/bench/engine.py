"""Load on the engine of a cluster: the calls of several nodes, without their fetches.

A node without work of its own shows how many fetches one Redis coordinates. Each turn of a node is one batch, as a busy broker
sends it: it ends the attempts of the turn before, wants new flights, and takes as many as it has slots.
"""

import itertools
import socket

from bench import folders
from bench.frame import Failed

SCRIPTS = folders.ROOT / "Sources/EarshotCluster/Scripts"
PARTS = ("common", "want", "unwant", "take", "done", "cool", "pass")
"""Files of the script `pass`, in the order of `EngineScript.text`."""
PREFIX, VERSION = "{bench}:2:", "{bench}:version"
MOST_FLIGHTS = 64
"""Maximum number of flights in one call: `EngineLimits.batch`."""

RECORD = "1 GET 60000 0 follow default http://127.0.0.1:8080/1024/000000.bin?%d"
RESULT = ("1 r 200 1024 be04687b50495fcb2c5e3e92292b7c2e742ed16095b1079cbcd051f84d98556e 127.0.0.1:43603/%s/%s\n"
          "Server: nginx/1.22.1\nDate: Tue, 24 Nov 2026 15:04:42 GMT\nContent-Type: application/octet-stream\n"
          "Content-Length: 1024\nLast-Modified: Tue, 24 Nov 2026 13:36:16 GMT\nConnection: keep-alive\n"
          "ETag: \"6b0592d0-400\"\nAccept-Ranges: bytes")


class Connection:
    """Connection to a server of Redis."""

    def __init__(self, port):
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._replies = self._socket.makefile("rb", 1 << 20)

    def send(self, words):
        parts = [b"*%d\r\n" % len(words)]
        for word in words:
            bytes_ = word.encode()
            parts.append(b"$%d\r\n%s\r\n" % (len(bytes_), bytes_))
        self._socket.sendall(b"".join(parts))

    def reply(self):
        line = self._replies.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        if kind == b"$":
            return self._replies.read(int(rest) + 2)[:-2].decode()
        if kind == b"-":
            raise Failed(rest.decode())
        return int(rest) if kind == b":" else rest.decode()

    def execute(self, *words):
        self.send(words)
        return self.reply()

    def close(self):
        self._replies.close()
        self._socket.close()


class Caller:
    """Calls of one node. `slots`: flights that it takes in a turn. `origins`: number of origins of its flights."""

    def __init__(self, port, number, slots, origins):
        self._id, self._slots = f"{number + 1:016x}", slots
        self._connection = Connection(port)
        self._origins = [f"{origin + 1:032x} 1000000 0" for origin in range(origins)]
        self._flights = itertools.count()
        self._keys = itertools.count((number + 1) << 64)
        self._open, self._taken = 0, []
        self._script = self._connection.execute("SCRIPT", "LOAD", _text(*PARTS))
        renew = self._connection.execute("SCRIPT", "LOAD", _text("common", "renew"))
        self._connection.execute("EVALSHA", renew, "2", PREFIX, VERSION, self._id, "600000", "1", "bench", "bench", "120000",
                                 "10000", "50000")

    def send(self):
        words = ["EVALSHA", self._script, "2", PREFIX, VERSION, self._id]
        if self._taken:
            words += ["done", str(2 * len(self._taken))]
            for key, token in self._taken:
                words += [f"{key} {token} r 1", RESULT % (key, token)]
        # Claims for four times its slots, as a broker has.
        wants = min(4 * self._slots - self._open, MOST_FLIGHTS)
        if wants > 0:
            words += ["want", str(1 + len(self._origins) + 2 * wants), str(len(self._origins)), *self._origins]
            for _ in range(wants):
                flight = next(self._flights)
                words += [f"{next(self._keys):032x} {flight % len(self._origins) + 1} s 2 1 0", RECORD % flight]
            self._open += wants
        words += ["take", "2", str(self._slots), "0"]
        self._connection.send(words)

    def receive(self):
        """Returns the number of flights that were taken."""
        grants = self._connection.reply()[-1]
        self._taken = [tuple(grant.split()[:2]) for grant in grants[1::2]]
        self._open -= len(self._taken)
        return len(self._taken)

    def close(self):
        self._connection.close()


def coordinate(port, nodes, slots, origins, count):
    """Coordinates that many fetches of some nodes, one turn of each after the other."""
    callers = [Caller(port, number, slots, origins) for number in range(nodes)]
    done = 0
    while done < count:
        for caller in callers:
            caller.send()
        turn = sum(caller.receive() for caller in callers)
        if not turn:
            raise Failed(f"the engine starts nothing after {done} fetches")
        done += turn
    for caller in callers:
        caller.close()
    return done


def _text(*names):
    return "".join((SCRIPTS / f"{name}.lua").read_text() for name in names)
