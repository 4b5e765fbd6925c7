"""Latency that the bus adds to one request: compared with a loop of libcurl's easy interface with one handle, which keeps
its connection (libcurl-tutorial(3), "Persistence is the way to happiness"), and with `curl URL` while no broker runs.

The time of a request covers the whole round trip: the request, the check of the response, the acknowledgement.
"""

import statistics

from bench import cpu, folders
from bench.data import Files
from bench.frame import Contender, Failed, Sample, Target
from bench.programs import environment, run
from bench.servers import Bus, Nginx

NAME = "latency"
TITLE = "The latency of one request"

# The first requests of a run find no connection, and cold tables.
WARM_UP = 100


def rows(context, quick):
    file = Files(1, 1_024)
    with Nginx() as origin:
        url = f"{origin.url}/{file.paths()[0]}"
        with Bus() as bus:
            count = 1_000 if quick else 5_000
            yield context.measure(
                f"Warm: {count:,} files of 1 KiB, one at a time", "p50, µs",
                [_loop("bus", "latency bus", url, file, count, bus), _loop("libcurl", "latency curl", url, file, count)],
                [Target("bus", "libcurl", at_most=250, by="difference"),
                 Target("bus", "libcurl", at_most=1_000, of="p99_us", by="difference")], is_rate=False)
        times = 5 if quick else 20
        yield context.measure(
            f"Cold: nothing runs, the median of {times}", "ms",
            [cold("earshot get", [folders.earshot(), "get"], url, file, times, is_ours=True),
             cold("curl", ["curl", "-q", "-s"], url, file, times)],
            [Target("earshot get", "curl", at_most=5)], is_rate=False)


def percentile(ordered, part):
    """Returns the quantile: the smallest value that this share of all values does not exceed."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def _loop(name, words, url, file, count, bus=None):
    def go(_):
        program, how = words.split()
        with cpu.Meter(bus.pids if bus else []) as meter:
            done = run([folders.PROGRAMS / program, how, url, count + WARM_UP, file.folder / file.names[0]],
                       env=bus.env if bus else None)
        times = sorted(float(line) for line in done.stdout.split()[WARM_UP:])
        if len(times) != count:
            raise Failed(f"{len(times)} times instead of {count}")
        return Sample(percentile(times, 0.5), {
            "p99_us": percentile(times, 0.99), "p999_us": percentile(times, 0.999),
            "cpu_us": (done.cpu_seconds + meter.seconds) / (count + WARM_UP) * 1e6})
    beside = f"  # beside {bus.command}" if bus else ""
    return Contender(name, f"{words} URL{beside}", go, is_ours=bool(bus))


def cold(name, words, url, file, times, is_ours=False):
    expected = file.expected(file.names[0])

    def go(number):
        env = environment(EARSHOT_RUNTIME=folders.outputs() / "nobody")
        seconds, used = [], []
        for turn in range(times):
            # A new URL each time, since a private broker caches responses.
            done = run([*words, f"{url}?{number}-{turn}"], env=env)
            if done.stdout != expected:
                raise Failed("other bytes")
            seconds.append(done.seconds)
            used.append(done.cpu_seconds)
        return Sample(statistics.median(seconds) * 1e3, {"cpu_us": statistics.median(used) * 1e6})
    return Contender(name, " ".join([words[0].rpartition("/")[2], *words[1:], "URL"]), go, is_ours)
