"""Many files from a list, as a shell script fetches them: files per second over the whole life of the program.

Configuration for speed:

- `earshot get`: as many transfers to one origin as curl may have; the default, 6, protects servers. The cache is off,
  since no peer has one.
- `curl -Z`: curl.1, --parallel (as many at once as --parallel-max, 50) and --config for many URLs in one process, which
  reuse connections. -q, which ignores ~/.curlrc, must be the first argument.
- `wget2`: its manual, --max-threads. Twenty were fastest here of 5, the default, 20 and 50. It writes no HSTS and OCSP
  files.
- `aria2c`: aria2c.1, -j (--max-concurrent-downloads); --file-allocation=none, as files are small; no summary.
- `xargs -P`: xargs.1, -P, with two hundred URLs for each curl, which fetches them over one connection (curl.1: "curl
  attempts to re-use connections for multiple file transfers"); and once with one URL each, as is common.
"""

import collections
import json
import os

from bench import cpu, folders
from bench.data import Files, empty_folder
from bench.frame import Contender, Failed, Sample, Target
from bench.programs import environment, run
from bench.servers import Bus, Nginx

NAME = "batch"
TITLE = "Many files from a list"

PARALLEL = 50
CURL = ["curl", "-q", "-s", "-Z", "--parallel-max", str(PARALLEL), "--config"]
WGET2 = ["wget2", "-q", "--no-hsts", "--no-ocsp", "--progress=none", "--max-threads=20"]
ARIA2 = ["aria2c", "-q", "--no-conf", "--file-allocation=none", "--async-dns=false", "--summary-interval=0",
         "-j", str(PARALLEL)]
XARGS = ["xargs", "-P", str(2 * (os.cpu_count() or 1))]

# Maximum number of files for slow contenders: the figure is files per second.
MOST_FOR_ARIA2, MOST_FOR_SINGLE_CURLS = 1_000, 500


def rows(context, quick):
    sizes = [(1_000, 1_024), (200, 65_536)] if quick else [(10_000, 1_024), (2_000, 65_536)]
    with Nginx() as origin, Bus(origin_limit=PARALLEL) as bus:
        for count, size in sizes:
            batch = Batch(count, size, origin, bus)
            title = f"{count:,} files of {size // 1024} KiB"
            yield context.measure(f"{title}, into a folder", "files/s", batch.into_a_folder(), targets(size))
            yield context.measure(f"{title}, to nowhere", "files/s", batch.to_nowhere(), targets(size, False))


def targets(size, has_all=True):
    """Targets for all contenders, or for those that can discard outputs."""
    ours = "get, running"
    found = [Target(ours, "curl -Z", at_least=1.0)]
    if size == 1_024:
        found += [Target(ours, "wget2", at_least=1.8)]
    if size == 1_024 and has_all:
        found += [Target(ours, "aria2c", at_least=10), Target(ours, "xargs curl", at_least=4),
                  Target(ours, "xargs curl, 1 each", at_least=4)]
    return found


class Batch:
    """Returns the contenders for one number of files of one size."""

    def __init__(self, count, size, origin, bus):
        self._size = size
        self._origin = origin
        self._bus = bus
        self._all = Files(count, size)

    def into_a_folder(self):
        aria2 = Files(min(self._all.count, MOST_FOR_ARIA2), self._size)
        single = Files(min(self._all.count, MOST_FOR_SINGLE_CURLS), self._size)
        each = ["curl", "-q", "-s", "--remote-name-all"]
        return [
            *self._ours(["-d", "."], Folder(self._all)),
            self._peer("curl -Z", [*CURL, self._curl_list(lambda name: name)], Folder(self._all)),
            self._peer("wget2", [*WGET2, "-i", self._list(self._all)], Folder(self._all)),
            self._peer("aria2c", [*ARIA2, "-i", self._list(aria2)], Folder(aria2)),
            self._peer("xargs curl", [*XARGS, "-n", "200", "-a", self._list(self._all), *each], Folder(self._all)),
            self._peer("xargs curl, 1 each", [*XARGS, "-n", "1", "-a", self._list(single), *each], Folder(single)),
        ]

    def to_nowhere(self):
        """Returns the contenders that can discard outputs."""
        return [
            *self._ours(["--json"], Lines(self._all, self._origin)),
            self._peer("curl -Z", [*CURL, self._curl_list(lambda _: "/dev/null"),
                                   "-w", "%{http_code} %{size_download} %{url}\\n"], Written(self._all, self._origin)),
            self._peer("wget2", [*WGET2, "-O", "/dev/null", "-i", self._list(self._all)], Nothing(self._all)),
        ]

    def _ours(self, how, check):
        words = [folders.earshot(), "get", "-i", self._list(self._all), *how]
        limit = {"EARSHOT_ORIGIN_LIMIT": PARALLEL}
        alone = environment(EARSHOT_RUNTIME=self._bus.folder / "nobody", **limit)
        return [self._contender("get, running", words, check, self._bus.env, beside=self._bus),
                self._contender("get, private", [*words, "--no-cache"], check, alone, settings=limit)]

    def _peer(self, name, words, check):
        return self._contender(name, words, check)

    def _contender(self, name, words, check, env=None, beside=None, settings=None):
        """Returns a contender. `beside`: the bus that does the work. `settings`: variables shown with the command."""
        words = [str(word) for word in words]

        def go(number):
            folder = empty_folder("batch")
            with cpu.Meter(beside.pids if beside else []) as meter:
                finished = run(words, env=env or environment(), cwd=folder, timeout=300)
            check(folder, finished, whole=number == 0)
            used = finished.cpu_seconds + meter.seconds
            return Sample(check.files.count / finished.seconds, {"cpu_us": used / check.files.count * 1e6})
        return Contender(name, command(words, beside, settings or {}), go, is_ours=bool(beside or settings))

    def _list(self, files):
        return self._write(f"urls-{files.count}-{files.size}",
                           (f"{self._origin.url}/{path}\n" for path in files.paths()))

    def _curl_list(self, output):
        lines = (f'url = "{self._origin.url}/{path}"\noutput = "{output(name)}"\n'
                 for path, name in zip(self._all.paths(), self._all.names))
        return self._write(f"curl-{output('name').strip('/').replace('/', '-')}", lines)

    def _write(self, name, lines):
        path = folders.outputs() / name
        path.write_text("".join(lines))
        return path


def command(words, beside, settings):
    """Returns a command as typed: programs without their folders."""
    text = " ".join(word.rpartition("/")[2] if word.startswith("/") and word != "/dev/null" else word for word in words)
    text = "".join(f"{name}={value} " for name, value in settings.items()) + text
    return f"{text}  # beside {beside.command}" if beside else text


class Folder:
    """Requires all files in the folder, with their bytes or, if not `whole`, with their sizes."""

    def __init__(self, files):
        self.files = files

    def __call__(self, folder, finished, whole):
        wrong = self.files.check(folder, whole)
        if wrong:
            raise Failed(wrong)


class Lines:
    """Checks the lines of `earshot get --json`: status, length and SHA-256."""

    def __init__(self, files, origin):
        self.files = files
        self._expected = {f"{origin.url}/{path}": name for path, name in zip(files.paths(), files.names)}

    def __call__(self, folder, finished, whole):
        results = [json.loads(line) for line in finished.stdout.splitlines()]
        if {line["url"] for line in results} != self._expected.keys() or len(results) != self.files.count:
            raise Failed(f"reported {len(results)} files instead of {self.files.count}")
        for line in results:
            name = self._expected[line["url"]]
            if (line["status"], line["length"]) != (200, self.files.size):
                raise Failed(f"{name}: {line}")
            if whole and line["sha256"] != self.files.sha256(name):
                raise Failed(f"{name} has other bytes")


class Written:
    """Checks the lines of `curl -w`: status, bytes and URL."""

    def __init__(self, files, origin):
        self.files = files
        self._expected = collections.Counter(f"200 {files.size} {origin.url}/{path}" for path in files.paths())

    def __call__(self, folder, finished, whole):
        if collections.Counter(finished.stdout.decode().splitlines()) != self._expected:
            raise Failed("not each file came once and whole")


class Nothing:
    """Checks a program by its exit status alone."""

    def __init__(self, files):
        self.files = files

    def __call__(self, folder, finished, whole):
        pass
