"""One small file from each of many origins: the cost of an origin must not grow with their number.

The origins are names below `localhost`, which are loopback addresses without any name server (RFC 6761). A crawler has
the same pattern: a name, a connection and a request, once each. With EARSHOT_LONG=1 there are up to 1,000,000. The
memory is the peak of the broker and of a worker.
"""

import os

from bench import cpu, places
from bench.data import Files
from bench.frame import Contender, Failed, Sample, Target
from bench.programs import run
from bench.servers import Bus, Nginx

NAME = "origins"
TITLE = "Many origins"

FILE = Files(1, 1_024)


def rows(context, quick):
    counts = [500, 2_000] if quick else [5_000, 60_000]
    if os.environ.get("EARSHOT_LONG"):
        counts.append(1_000_000)
    with Nginx() as origin:
        contenders = [_fetching(count, origin) for count in counts]
        few = contenders[0].name
        # Linear: each of many origins costs at most a third more than each of few.
        targets = [Target(other.name, few, at_least=0.75) for other in contenders[1:]]
        yield context.measure("1 KiB from each origin", "requests/s", contenders, targets)


def _fetching(count, origin):
    """`earshot get` for a list of this many origins, over a new bus."""
    words = [places.earshot(), "get", "--json", "-i", _list(count, origin)]

    def go(_):
        with Bus() as bus:
            with cpu.Meter(bus.pids) as meter:
                finished = run(words, env=bus.env, timeout=30 + count / 100)
            worker = max(cpu.most_resident(worker) for worker in bus.workers)
            broker = cpu.most_resident(bus.broker)
        told = finished.stdout.count(b'"status":200,"length":1024,')
        if told != count:
            raise Failed(f"{told} of {count} answers are whole")
        used = finished.cpu_seconds + meter.seconds
        return Sample(count / finished.seconds, {"cpu_us": used / count * 1e6, "broker_mib": broker / 2**20,
                                                 "worker_mib": worker / 2**20})
    return Contender(f"{count:,} origins", "earshot get --json -i LIST  # beside earshot serve --no-cache", go, is_ours=True)


def _list(count, origin):
    path = places.outputs() / f"origins-{count}"
    with path.open("w") as lines:
        for number in range(count):
            lines.write(f"http://h{number}.localhost:{origin.port}/{FILE.paths()[0]}\n")
    return path
