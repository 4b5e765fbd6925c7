"""Nodes of a cluster on one machine: work of one node that others share, throughput through one Redis, and the latency that the
engine adds.

Each node is `earshot serve` with a copy of one file of the cluster, and one redis-server without persistence is the engine.
"""

import concurrent.futures
import contextlib
import time

from bench import cpu, engine, peers, folders, servers
from bench.data import Files
from bench.frame import Contender, Failed, Sample, Target
from bench.programs import Server, eventually, run
from bench.suites import latency

NAME = "cluster"
TITLE = "Nodes of a cluster through one Redis"

DELAY_MS, SLOTS = 50, 16
"""An origin that takes 50 ms, and the slots of each node: the slots are the limit, not the machine."""


def rows(context, quick):
    count = 2_000 if quick else 10_000
    with SlowOrigin() as origin:
        nodes = [_backlog(number, count, origin) for number in (1, 3)]
        yield context.measure(
            f"Backlog of one node: {count:,} URLs, {DELAY_MS} ms each, {SLOTS} slots in each node", "s", nodes,
            [Target("3 nodes", "1 node", at_most=0.40)], is_rate=False)
    with servers.Nginx() as origin:
        count = 3_000 if quick else 12_000
        alone = Contender("no cluster", "earshot get --json -i LIST", lambda _: _throughput(0, count, origin), is_ours=True)
        members = [Contender(_name(number), "the same, a part of LIST at each node", lambda _, number=number: _throughput(
            number, count, origin), is_ours=True) for number in (1, 3, 6)]
        yield context.measure(
            f"Throughput: {count:,} different URLs of 1 KiB", "fetches/s", [alone, *members],
            note="engine_us: CPU of redis-server for each fetch. All nodes share the processors of this machine.")
        count = 20_000 if quick else 100_000
        yield context.measure(
            f"Engine alone: {count:,} fetches that its nodes only report, in full calls", "fetches/s",
            [_engine(nodes, slots, origins, count) for nodes, slots, origins in
             [(1, 64, 1), (3, 64, 1), (6, 64, 1), (3, 16, 1), (3, 8, 1), (3, 64, 64)]],
            [Target("3 nodes, 64 slots, 1 origin", of="engine_us", at_most=25, by="value")],
            note="engine_us: CPU of redis-server for each fetch. busy_percent: how much of a processor it used; the callers use another.")
        file = Files(1, 1_024)
        count = 1_000 if quick else 5_000
        url = f"{origin.url}/{file.paths()[0]}"
        with servers.Bus() as bus, nodes_of(1) as (members, _):
            yield context.measure(
                f"Latency: {count:,} files of 1 KiB, one at a time", "p50, µs",
                [latency._loop("node", "latency bus", url, file, count, members[0]),
                 latency._loop("bus", "latency bus", url, file, count, bus)],
                [Target("node", "bus", at_most=600, by="difference")], is_rate=False)


class SlowOrigin(peers.Program):
    """C program that answers after a delay, and counts its requests."""

    def __init__(self):
        self.port = servers.free_port()
        super().__init__("slow-origin", self.port, DELAY_MS, 1_024, is_ready=lambda: servers.answers(self.port))

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"


class Redis(Server):
    """The engine: one redis-server without persistence."""

    def __init__(self):
        self.folder = servers.private_folder("redis")
        self.port = servers.free_port()
        super().__init__("redis", ["redis-server", "--port", self.port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                                   "--dir", self.folder], self.folder)

    def await_readiness(self):
        self.await_condition(lambda: servers.answers(self.port))


@contextlib.contextmanager
def nodes_of(number, **options):
    """Runs that many nodes and their engine. Yields both."""
    with contextlib.ExitStack() as running:
        redis = running.enter_context(Redis())
        folder = servers.private_folder("cluster")
        shared = folder / "cluster.toml"
        run([folders.earshot(), "cluster", "new", "bench", "--node", "127.0.0.1:1", "--server", f"127.0.0.1:{redis.port}",
             "--output", shared])
        nodes = []
        for index in range(number):
            own = folder / f"{index}.toml"
            own.touch(0o600)
            own.write_text(shared.read_text().replace('"127.0.0.1:1"', f'"127.0.0.1:{servers.free_port()}"'))
            nodes.append(running.enter_context(servers.Bus(arguments=["--cluster", own], **options)))
            nodes[-1].command = nodes[-1].command.replace(str(own), "FILE")
        for node in nodes:
            eventually(lambda: "joined the cluster" in node.log.read_text(errors="replace"), lambda: "the node is a member")
        yield nodes, redis


def _name(number):
    return "1 node" if number == 1 else f"{number} nodes"


def _list(name, urls):
    path = folders.outputs() / f"{name}.list"
    path.write_text("\n".join(urls) + "\n")
    return path


def _get(node, path):
    """Fetches a list of URLs. Returns the number of whole answers and the time."""
    done = run([folders.earshot(), "get", "--json", "-i", path], env=node.env, timeout=300)
    return done.stdout.count(b'"status":200,"length":1024,'), done.seconds


def _backlog(number, count, origin):
    """All URLs are requested at the first node."""
    def go(turn):
        path = _list("backlog", (f"{origin.url}/{turn}/{number}/{each}" for each in range(count)))
        with nodes_of(number, workers=1, slots=SLOTS, origin_limit=1_000) as (nodes, redis):
            with cpu.Meter([redis.pid]) as meter:
                answers, seconds = _get(nodes[0], path)
        if answers != count:
            raise Failed(f"{answers} of {count} answers are whole")
        return Sample(seconds, {"engine_us": meter.seconds / count * 1e6})
    return Contender(_name(number), f"earshot get --json -i LIST  # at the first of {number}", go, is_ours=True)


def _engine(nodes, slots, origins, count):
    """Calls of nodes without fetches: what one engine coordinates."""
    def go(_):
        with Redis() as redis:
            with cpu.Meter([redis.pid]) as meter:
                began = time.monotonic()
                done = engine.coordinate(redis.port, nodes, slots, origins, count)
                seconds = time.monotonic() - began
        return Sample(done / seconds, {"engine_us": meter.seconds / done * 1e6, "busy_percent": meter.seconds / seconds * 100})
    name = f"{_name(nodes)}, {slots} slots, {origins} origin{'s' if origins > 1 else ''}"
    return Contender(name, "calls of nodes, see bench/engine.py", go, is_ours=True)


def _throughput(number, count, origin):
    """Each node gets a part of the URLs; without nodes, a bus alone gets all of them."""
    path = Files(1, 1_024).paths()[0]
    with contextlib.ExitStack() as running:
        if number:
            nodes, redis = running.enter_context(nodes_of(number))
        else:
            nodes, redis = [running.enter_context(servers.Bus())], None
        share = count // len(nodes)
        lists = [_list(f"part{index}", (f"{origin.url}/{path}?{index}-{each}" for each in range(share)))
                 for index in range(len(nodes))]
        with cpu.Meter([redis.pid] if redis else []) as meter, concurrent.futures.ThreadPoolExecutor(len(nodes)) as pool:
            found = list(pool.map(_get, nodes, lists))
    answers = sum(answers for answers, _ in found)
    if answers != share * len(nodes):
        raise Failed(f"{answers} of {share * len(nodes)} answers are whole")
    return Sample(answers / max(seconds for _, seconds in found), {"engine_us": meter.seconds / answers * 1e6})
