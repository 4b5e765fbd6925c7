"""Common part of the Python clients: a number of requests with a number outstanding, timed and checked, as in
load.c."""

import argparse
import json
import os
import resource
import sys
import time
import zlib


class LoadClient:
    """Requests of one client, numbered from 0."""

    def __init__(self, plan, index):
        self.plan = plan
        self.index = index
        self.requested = 0
        self.answered = 0
        self.bytes = 0
        self.sum = 0
        self.times = []
        self.began = self.ended = 0.0

    def ready(self):
        """Call when the client is connected. Returns when all are connected and the clock runs."""
        if self.plan.gate is not None:
            ready_reader, go = self.plan.gate
            os.write(ready_reader, b".")
            os.read(go, 1)
        self.began = time.monotonic()

    def next(self):
        """Returns a URL and the time of the request; None after the last one."""
        if self.requested == self.plan.requests:
            return None
        number = self.requested % self.plan.files
        self.requested += 1
        return f"{self.plan.prefix}{number:06}{self.plan.suffix}", time.monotonic()

    def record(self, requested, body):
        """Counts a response. Surplus responses are a fault."""
        now = time.monotonic()
        if len(body) != self.plan.size:
            raise SystemExit(f"an answer of {len(body)} bytes")
        self.times.append(now - requested)
        self.bytes += len(body)
        if self.plan.sums:
            self.sum += zlib.crc32(body)
        self.answered += 1
        self.ended = now


def main(run):
    """Runs `run(load)` in each of the clients' processes and prints one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", default="")
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--suffix", default="")
    parser.add_argument("--requests", type=int, default=10000)
    parser.add_argument("--outstanding", type=int, default=100)
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--files", type=int, default=10000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--extra", default="")
    parser.add_argument("--sums", action="store_true")
    plan = parser.parse_args()
    (ready_reader, ready_writer), (go, start) = os.pipe(), os.pipe()
    plan.gate = ready_writer, go
    results = []
    for index in range(plan.clients):
        result, write = os.pipe()
        if os.fork() == 0:
            os.close(ready_reader)
            os.close(start)
            client(run, LoadClient(plan, index), write)
        os.close(write)
        results.append(result)
    os.close(ready_writer)
    os.close(go)
    for _ in results:
        if not os.read(ready_reader, 1):
            raise SystemExit("a client did not come up")
    os.write(start, b"." * len(results))
    report(plan, [read(result) for result in results])


def client(run, load, write):
    """A client's process, which writes its result to the pipe."""
    status = 1
    try:
        run(load)
        if load.answered != load.plan.requests:
            raise SystemExit(f"{load.answered} answers of {load.plan.requests}")
        with open(write, "w") as pipe:
            json.dump([load.began, load.ended, load.bytes, load.sum, load.times], pipe)
        status = 0
    except SystemExit as end:
        print(end, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def read(result):
    with open(result) as pipe:
        text = pipe.read()
    if os.wait()[1] != 0 or not text:
        raise SystemExit(70)
    return json.loads(text)


def report(plan, results):
    times = sorted(time for *_, times in results for time in times)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps({
        "answers": len(times), "seconds": max(result[1] for result in results) - min(result[0] for result in results),
        "bytes": sum(result[2] for result in results), "sum": sum(result[3] for result in results),
        "cpu": used.ru_utime + used.ru_stime,
        **{name: times[int((len(times) - 1) * share)] * 1e6
           for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))}}))
