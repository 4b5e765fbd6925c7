"""Disturbs a cluster of three nodes for some minutes, then compares all journals: bin/chaos --cluster.

Each node has two `earshot get --json`, and all get the same URLs, so that nodes share fetches. Faults follow one after the other.
Their kinds, places and pauses depend on the seed only. Afterwards everything is repaired, and

- each command has ended with status 0 and one line for each of its URLs, with the right digest;
- all nodes are members, their ledgers balance, no process crashed, and the engine has no flight left;
- a last batch on all nodes is fetched exactly once, and never more than the limit at once.

Needs root, for network namespaces.
"""

import argparse
import collections
import contextlib
import hashlib
import json
import pathlib
import random
import signal
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "Integration"))

from support.bridge import HOME, Bridge, obstacle  # noqa: E402
from support.nodes import Cluster  # noqa: E402
from support.engine import SentinelEngine  # noqa: E402
from support.harness import check_ledgers  # noqa: E402
from support.origin import Origin, body  # noqa: E402
from support.processes import Watched, eventually  # noqa: E402

LIMIT = 12
COMMANDS = 2
"""Commands at each node."""
RATE = 25
"""URLs a second of each command."""
SIZES = [10, 1_000, 5_000, 100_000, 1_000, 400_000]
BATCH = 60


class Disagreement(Exception):
    """The journals do not agree."""


class Journal:
    """URLs of one command, and its lines."""

    def __init__(self, node):
        self.program = node.start("get", "--json", "-i", "-")
        self.address = node.address
        self.submitted = []

    def submit(self, number, url, size):
        self.submitted.append((number, size))
        self.program.write(f"{url}\n".encode(), ends=False)

    def end(self, digests):
        """Waits for the end, and compares the lines with the URLs."""
        self.program.write(b"")
        status = self.program.wait(180)
        lines = [json.loads(line) for line in self.program.stdout.splitlines()]
        counts = collections.Counter(line["index"] for line in lines)
        missing = [index for index in range(1, len(self.submitted) + 1) if counts[index] == 0]
        doubled = [index for index, count in counts.items() if count > 1]
        wrong = [line for line in lines
                 if (line.get("status"), line.get("sha256")) != (200, digests[self.submitted[line["index"] - 1]])]
        if status or missing or doubled or wrong:
            raise Disagreement(f"command at {self.address}: status {status}, {len(missing)} of {len(self.submitted)} missing "
                               f"{missing[:5]}, doubled {doubled[:5]}, wrong {wrong[:3]}\n{self.program.describe()[-3_000:]}")


class Load(threading.Thread):
    """Gives all commands the same URLs at a steady pace, `most` of them if that is given."""

    def __init__(self, journals, origin, rate=RATE, sizes=SIZES, most=None):
        super().__init__(daemon=True)
        self._journals, self._origin = journals, origin
        self._rate, self._sizes, self._most = rate, sizes, most
        self._over = threading.Event()
        self.digests = {}

    def run(self):
        number, began = 0, time.monotonic()
        while number != self._most and not self._over.wait(max(0, began + number / self._rate - time.monotonic())):
            size = self._sizes[number % len(self._sizes)]
            self.digests[number, size] = hashlib.sha256(body(size, str(number))).hexdigest()
            for journal in self._journals:
                with contextlib.suppress(BrokenPipeError):
                    journal.submit(number, f"{self._origin.url}/slow/0.05?bytes={size}&seed={number}", size)
            number += 1

    def end(self):
        self._over.set()
        self.join()


class Faults:
    """Each method is a fault with its repair."""

    def __init__(self, seed, cluster, engine, machines):
        self.random = random.Random(seed)
        self.cluster, self.engine, self.machines = cluster, engine, machines
        self._pace = threading.Event()

    KINDS = ["node_dies", "node_restarts", "broker_dies", "worker_dies", "node_gateway_dies", "puller_dies", "broker_hangs",
             "node_gateway_hangs", "primary_dies", "primary_hangs", "sentinel_dies", "node_is_cut_off", "server_is_cut_off",
             "data_is_lost", "scripts_are_lost", "connections_are_closed"]

    def strike(self):
        """Makes one fault and repairs it. Returns its description."""
        kind = self.random.choice(self.KINDS)
        began = time.monotonic()
        detail = getattr(self, kind)()
        return f"{kind.replace('_', ' ')} {'' if detail is None else detail} ({time.monotonic() - began:.1f} s)"

    def pause(self, least, most):
        seconds = self.random.uniform(least, most)
        self._pace.wait(seconds)

    def node(self):
        index = self.random.randrange(len(self.cluster.nodes))
        return index, self.cluster[index]

    def node_dies(self):
        index, node = self.node()
        node.kill_bus()
        self.pause(0.5, 6)
        node.start_again()
        return index

    def node_restarts(self):
        index, node = self.node()
        node.program.signal(signal.SIGTERM)
        node.program.wait()
        node.start_again()
        return index

    def role_dies(self, role):
        index, node = self.node()
        with Process(node.pid_of(role)) as process:
            process.signal(signal.SIGKILL)
        return index

    def broker_dies(self):
        return self.role_dies("broker")

    def worker_dies(self):
        return self.role_dies("worker")

    def node_gateway_dies(self):
        return self.role_dies("node-gateway")

    def puller_dies(self):
        return self.role_dies("puller")

    def role_hangs(self, role, least, most):
        index, node = self.node()
        with Process(node.pid_of(role)) as process:
            process.signal(signal.SIGSTOP)
            self.pause(least, most)
            process.signal(signal.SIGCONT)
        return index

    def broker_hangs(self):
        return self.role_hangs("broker", 0.5, 5)

    def node_gateway_hangs(self):
        return self.role_hangs("node-gateway", 0.5, 6)

    def primary_dies(self):
        server = self.engine.primary
        server.kill()
        self.pause(1, 6)
        server.restart()
        return server.address

    def primary_hangs(self):
        server = self.engine.primary
        server.stop()
        self.pause(0.5, 6)
        server.resume()
        return server.address

    def sentinel_dies(self):
        sentinel = self.random.choice(self.engine.sentinels)
        sentinel.kill()
        self.pause(1, 4)
        sentinel.restart()
        return sentinel.address

    def cut(self, index, least, most):
        others = [machine for number, machine in enumerate(self.machines) if number != index]
        self.machines[index].isolate(others)
        self.pause(least, most)
        self.machines[index].rejoin(others)

    def node_is_cut_off(self):
        index = self.random.randrange(3)
        self.cut(index, 1, 10)
        return index

    def server_is_cut_off(self):
        index = self.random.randrange(3, 6)
        self.cut(index, 1, 8)
        return index

    def data_is_lost(self):
        self.engine.execute("FLUSHALL")

    def scripts_are_lost(self):
        self.engine.execute("SCRIPT", "FLUSH")

    def connections_are_closed(self):
        self.engine.execute("CLIENT", "KILL", "TYPE", self.random.choice(["normal", "pubsub"]))


class Process(Watched):
    """`with Process(pid) as process:`, whose signals may come too late."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            super().signal(number)


def check_end(cluster, engine, origin):
    """Checks the state of the repaired cluster, and a last batch."""
    for node in cluster:
        eventually(lambda: (state := node.cluster())["mode"] == "member" and state["members-count"] == 3,
                   lambda: f"three members: {node.cluster()}", 60)
        eventually(lambda: node.observer().query("ledger")["requests"]["pending"] == 0, "no request is pending", 60)
        check_ledgers(node.observer().query("ledger"))
    eventually(lambda: engine.flights() == 0, lambda: f"the engine has no flight: {engine.records()}", 30)
    clients = []
    for node in cluster:
        client = node.client(window=1024)
        for number in range(BATCH):
            client.fetch("last", number, f"{origin.url}/gate/last?bytes=1000&n={number}")
        clients.append(client)
    for node in cluster:
        node.await_pending(BATCH)
    origin.await_running(LIMIT, 30)
    origin.open_gate("last")
    for client in clients:
        answers = client.terminals(BATCH, 60)
        if any(answer.verb != "RESULT" or answer.content() != body(1_000) for answer in answers) or client.rest():
            raise Disagreement(f"the last batch: {answers[:5]}")
    fetches = collections.Counter(request.target for request in origin.log("/gate/last"))
    if len(fetches) != BATCH or max(fetches.values()) > 1:
        raise Disagreement(f"the last batch was fetched as {fetches.most_common(5)}")
    crashes = [line for node in cluster for line in node.crashes()]
    if crashes:
        raise Disagreement(f"a process crashed: {crashes[:10]}")


def disturb(options, write_line):
    reason = obstacle()
    if reason:
        sys.exit(f"chaos: no network namespaces: {reason}")
    with contextlib.ExitStack() as stack:
        bridge = stack.enter_context(Bridge())
        machines = [bridge.machine() for _ in range(6)]
        origin = stack.enter_context(Origin(host=HOME))
        engine = stack.enter_context(SentinelEngine(machines[3:]))
        cluster = stack.enter_context(Cluster(engine, machines=machines[:3], origin_limit=LIMIT, crashes=True))
        faults = Faults(options.seed, cluster, engine, machines)
        journals = [Journal(node) for node in cluster for _ in range(COMMANDS)]
        load = Load(journals, origin)
        load.start()
        began = time.monotonic()
        count = options.faults or max(1, round(options.minutes * 2.5))
        for number in range(count):
            # Faults are spread over the minutes, but one begins only after the repair of the former.
            due = began + options.minutes * 60 * (number + 0.5) / count
            eventually(lambda: time.monotonic() >= due, "the next fault is due", options.minutes * 60 + 60)
            write_line(f"{time.monotonic() - began:6.1f} s: {faults.strike()}; {origin.total} fetches, {origin.running} running")
        eventually(lambda: time.monotonic() >= began + options.minutes * 60, "the time is over", options.minutes * 60 + 60)
        load.end()
        if options.canary == "lost-line":
            journals[0].submitted.append((0, SIZES[0]))
        for journal in journals:
            journal.end(load.digests)
        for node in cluster:
            node.renew_observer()
        fetches = collections.Counter(request.target for request in origin.log())
        write_line(f"{sum(len(journal.submitted) for journal in journals)} requests, {len(load.digests)} URLs, "
                   f"{origin.total} fetches, at most {max(fetches.values())} of one URL and {origin.most_at_once} at once; "
                   f"{cluster.counts()}")
        check_end(cluster, engine, origin)


def main():
    parser = argparse.ArgumentParser(prog="bin/chaos --cluster", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--faults", type=int, help="number of faults; 5 in two minutes by default")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--canary", choices=["lost-line"], help="falsifies a journal, which must be detected")
    options = parser.parse_args()
    try:
        disturb(options, lambda text: print(text, flush=True))
    except (Disagreement, AssertionError) as error:
        print(f"chaos: seed {options.seed}: {error}", file=sys.stderr)
        for note in getattr(error, "__notes__", []):
            print(note, file=sys.stderr)
        sys.exit(1)
    print(f"seed {options.seed}: all journals agree")


if __name__ == "__main__":
    main()
