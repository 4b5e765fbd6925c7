"""One large body into a file. The origin's file and all outputs, the spool included, are in memory, since the disk is not measured."""

from bench import cpu, folders
from bench.data import LargeFile, empty_folder
from bench.frame import Contender, Failed, Sample, Target
from bench.programs import run
from bench.servers import Bus, Nginx

NAME = "large"
TITLE = "One large body"


def rows(context, quick):
    file = LargeFile((128 if quick else 1_024) << 20)
    size = f"{file.size >> 20:,} MiB"
    with Nginx() as origin, Bus() as bus:
        url = f"{origin.url}/{file.path}"
        yield context.measure(
            f"{size} into a file", "MiB/s",
            [_to_file("earshot get", [folders.earshot(), "get", "-o", "FILE", "URL"], url, file, bus),
             _to_file("curl", ["curl", "-q", "-s", "-o", "FILE", "URL"], url, file)],
            [Target("earshot get", "curl", at_least=0.95)])


def _to_file(name, words, url, file, bus=None):
    def go(number):
        output = empty_folder("large") / "body"
        named = {"FILE": output, "URL": f"{url}?{number}"}
        with cpu.Meter(bus.pids if bus else []) as meter:
            done = run([named.get(word, word) for word in words], env=bus.env if bus else None)
        if output.stat().st_size != file.size:
            raise Failed(f"{output.stat().st_size} bytes")
        if number == 0 and file.sha256(output) != file.sha256():
            raise Failed("other bytes")
        mebi = file.size / (1 << 20)
        return Sample(mebi / done.seconds, {"cpu_ms": (done.cpu_seconds + meter.seconds) * 1e3})
    beside = f"  # beside {bus.command}" if bus else ""
    return Contender(name, " ".join([words[0].rpartition("/")[2], *words[1:]]) + beside, go, is_ours=bool(bus))
