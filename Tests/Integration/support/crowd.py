"""Client in its own process that makes very many requests: `support crowd RUNTIME HANDLER COUNT URL [OPTION=VALUE]…`.

Requests URL COUNT times under HANDLER, with `{}` in it replaced by 0, 1, …, and `{folder}` by the thousands of that. Prints
`requested` when the broker has read all requests, and finally its results as a line of JSON. Options are the fields of its FETCHes,
and:

    window=N     of its HELLO (256)
    lag=N        number of unacknowledged terminals after which it acknowledges (32)
    stop=N       number of terminals after which it prints `stopped` and reads nothing until its input ends
"""

import json
import re
import sys
import time

from .client import Client
from .harness import PYTHON, SUPPORT
from .processes import Program

SEQUENCE = re.compile(rb"\nseq: (\d+)")


class Crowd(Program):
    """Running crowd."""

    def __init__(self, bus, handler, count, url, **options):
        words = [f"{name.replace('_', '-')}={value}" for name, value in options.items()]
        super().__init__([PYTHON, "-B", SUPPORT, "crowd", bus.runtime, handler, count, url, *words], bus.environment)

    def await_submitted(self):
        self.await_line("requested", "stdout", timeout=60)
        return self

    def await_stopped(self):
        self.await_line("stopped", "stdout", timeout=60)
        return self

    def go_on(self):
        self.write(b"")

    def outcome(self, timeout=120):
        """Returns its final results: `seconds` from the first request to the last result, number of requests `answered`, number
        of duplicates (`again`), and number of requests `failed`."""
        line = self.await_line("{", "stdout", timeout)
        if self.wait() != 0:
            raise AssertionError(self.describe())
        return json.loads(line)


def main():
    runtime, handler, count, url, *words = sys.argv[1:]
    options = dict(word.split("=", 1) for word in words)
    lag, stop = int(options.pop("lag", 32)), int(options.pop("stop", -1))
    window = options.pop("window", 256)
    fields = "".join(f"{name}: {value}\n" for name, value in options.items())
    count = int(count)
    with Client(runtime, window=window) as client:
        began = time.monotonic()
        for index in range(count):
            target = url.replace("{}", str(index)).replace("{folder}", str(index // 1000))
            client.socket.send(f"FETCH {handler} {index} {target}\n{fields}".encode())
        early = await_all_read(client.socket)
        print("requested", flush=True)
        outcome = read(client.socket, early, count, lag, stop)
    outcome["seconds"] = time.monotonic() - began
    print(json.dumps(outcome), flush=True)


def await_all_read(socket):
    """Returns the messages received before the reply."""
    early = []
    socket.send(b"QUERY ping\n")
    while not (frames := socket.recv_multipart())[0].startswith(b"ANSWER"):
        early.append(frames)
    return early


def read(socket, early, count, lag, stop):
    seen, terminals, failed, acknowledged = set(), 0, 0, 0
    early.reverse()
    while len(seen) < count:
        head = (early.pop() if early else socket.recv_multipart())[0]
        verb, _, request = head[:100].split(b"\n", 1)[0].split(b" ")[:3]
        if verb not in (b"RESULT", b"FAILED"):
            raise SystemExit(f"unexpected: {head!r}")
        terminals += 1
        seen.add(request)
        failed += verb == b"FAILED"
        sequence = int(SEQUENCE.search(head)[1])
        if sequence - acknowledged >= lag or len(seen) == count:
            socket.send(b"ACK %d\n" % sequence)
            acknowledged = sequence
        if terminals == stop:
            print("stopped", flush=True)
            sys.stdin.read()
    return {"answered": len(seen), "again": terminals - len(seen), "failed": failed}


if __name__ == "__main__":
    main()
