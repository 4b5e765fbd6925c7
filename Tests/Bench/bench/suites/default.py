"""Programs as people start them: neither side has an option but those that name the list and the folder.

- `earshot get` starts a private bus if nothing runs, and uses that of `earshot serve` otherwise. Each run has an empty
  home, or a new bus with an empty cache. A run for the list again fills the cache first.
- Rows without a cache are no defaults. They show what the cache costs and saves.
- `curl -Z`, wget2 and aria2c have 50, 5 and 5 transfers at once. They need no empty home, since they have no cache.
- zurl, gearmand and libcurl are set up as in the suite `service`, and the cold command is measured as in `latency`.

CPU is that of all processes but the origin. That of a bus includes its work after the last response. All outputs are in
memory, since `folders.outputs` names an effect of ext4, and the suite fails if there is no room.
"""

import contextlib
import statistics

from bench import load, cpu, folders
from bench.data import Files, Pictures, empty_folder
from bench.frame import Contender, Failed, Sample, Target
from bench.programs import await_rest, environment, run
from bench.servers import FRESH, Bus, Nginx
from bench.suites import latency
from bench.suites.batch import Folder, command
from bench.suites.service import Services

NAME = "default"
TITLE = "Default settings"

ROOM = 512 << 20
STALE = 'add_header Cache-Control "no-cache";'
PICTURES = 50

OURS = ["private", "running"]
UNCACHED = {ours: f"{ours}, no cache" for ours in OURS}


def rows(context, quick):
    folders.check_room(ROOM)
    files = Files(1_000 if quick else 10_000, 1_024)
    title = f"{files.count:,} files of 1 KiB into a folder"
    with Nginx() as origin:
        work = Work(files, origin)
        yield context.measure(title, "files/s", [*work.ours(), *work.uncached(), *work.peers()], [
            *(Target(ours, "wget2", at_least=0.7) for ours in OURS),
            *(Target(ours, "curl -Z", at_least=1.0) for ours in OURS), *_cache_costs(at_most=35, by="difference")])
    with Nginx(counted=True, more=STALE) as origin:
        work = Work(files, origin)
        yield context.measure(f"{title} again: each response is validated", "files/s", [
            *work.ours(revalidated=files.count, origin_requests=files.count), *work.uncached()],
            _cache_costs(at_most=75, by="difference"))
    with Nginx(counted=True, more=FRESH) as origin:
        work = Work(files, origin)
        yield context.measure(f"{title} again: each response is fresh", "files/s", [
            *work.ours(revalidated=0, origin_requests=0), *work.uncached()], _cache_costs(at_most=0.75))
    with Nginx() as origin:
        times = 3 if quick else 10
        work = Work(Pictures(PICTURES), origin, times)
        yield context.measure(f"{PICTURES} pictures of 20 to 60 KiB into a folder, the median of {times}", "files/s",
                              [*work.ours(), *work.peers()])
        yield _cold(context, origin, 5 if quick else 20)
    with contextlib.ExitStack() as running:
        yield _lone(context, Services(running, _bus()), 500 if quick else 2_000)


def _cache_costs(**bound):
    return [Target(ours, UNCACHED[ours], of="cpu_us", **bound) for ours in OURS]


class Work:
    """These files at an origin, and the programs that fetch them. A sample is the median of that many runs."""

    def __init__(self, files, origin, times=1):
        self._files = files
        self._origin = origin
        self._times = times
        self._list = folders.outputs() / "default-list"
        self._list.write_text("".join(f"{origin.url}/{path}\n" for path in files.paths()))
        self._curl_list = folders.outputs() / "default-curl-list"
        self._curl_list.write_text("".join(f'url = "{origin.url}/{path}"\noutput = "{name}"\n'
                                           for path, name in zip(files.paths(), files.names)))

    def ours(self, **again):
        """Returns the rows of Earshot. `again`: the list is fetched twice, and the second time counts and causes that many
        requests to the origin."""
        return [self._contender("private", self._get(), Alone, again=again),
                self._contender("running", self._get(), _bus, "  # beside earshot serve", again=again)]

    def uncached(self):
        return [self._contender(UNCACHED["private"], self._get("--no-cache"), Alone),
                self._contender(UNCACHED["running"], self._get(), lambda: _bus(cache=False),
                                "  # beside earshot serve --no-cache")]

    def peers(self):
        programs = {"curl -Z": ["curl", "-Z", "--config", self._curl_list], "wget2": ["wget2", "-i", self._list],
                    "aria2c": ["aria2c", "-i", self._list]}
        return [self._contender(name, words, Alone, is_ours=False) for name, words in programs.items()]

    def _get(self, *more):
        return [folders.earshot(), "get", "-i", self._list, "-d", ".", *more]

    def _contender(self, name, words, setting, beside="", again=None, is_ours=True):
        words = [str(word) for word in words]

        def go(number):
            runs = [self._run(words, setting, again, number == 0) for _ in range(self._times)]
            rate, used = (statistics.median(figures) for figures in zip(*runs))
            return Sample(rate, {"cpu_us": used, **(again or {})})
        return Contender(name, command(words, None, {}) + beside, go, is_ours)

    def _run(self, words, setting, again, whole):
        """Returns files per second, and the CPU time of a file in microseconds."""
        with setting() as bus:
            if again:
                run(words, env=bus.env, cwd=empty_folder("default"))
            await_rest(bus.pids)
            before = self._counts(again)
            folder = empty_folder("default")
            with cpu.Meter(bus.pids) as meter:
                finished = run(words, env=bus.env, cwd=folder)
                await_rest(bus.pids)
            found = {name: count - before[name] for name, count in self._counts(again).items()}
        Folder(self._files)(folder, finished, whole)
        if again and found != again:
            raise Failed(f"the second time caused {found}")
        used = finished.cpu_seconds + meter.seconds
        return self._files.count / finished.seconds, used / self._files.count * 1e6

    def _counts(self, again):
        """Returns the answers of the origin so far."""
        return {"origin_requests": self._origin.requests(), "revalidated": self._origin.requests("304")} if again else {}


class Alone:
    """Nothing runs, and the home is empty."""

    pids = ()

    def __enter__(self):
        home = empty_folder("default-home")
        self.env = environment(HOME=home, EARSHOT_RUNTIME=home / "nobody")
        return self

    def __exit__(self, *_):
        pass


def _bus(cache=True):
    return Bus(origin_limit=None, cache=cache)


def _cold(context, origin, times):
    file = Files(1, 1_024)
    url = f"{origin.url}/{file.paths()[0]}"
    return context.measure(
        f"One command and nothing runs, the median of {times}", "ms",
        [latency.cold("earshot get", [folders.earshot(), "get"], url, file, times, is_ours=True),
         latency.cold("curl", ["curl"], url, file, times)], [Target("earshot get", "curl", at_most=2.5)], is_rate=False)


def _lone(context, services, count):
    """Requests of a client, one after the other. The bus gets new URLs in each round, since its cache has the others."""
    files = load.Files(services.origin.url, count, 1_024)

    def run_of(client):
        def go(number):
            files.suffix = f".bin?{number}"
            return client.run_round(load.Plan(files, 1, count), number)
        return Contender(client.name, client.describe, go, client.is_ours)
    return context.measure(f"One request at a time beside a running bus, {count:,} files of 1 KiB", "answers/s",
                           [run_of(client) for client in services.clients("C")],
                           [Target("earshot", peer, of="p50_us", at_most=1) for peer in ("zurl", "gearman")])
