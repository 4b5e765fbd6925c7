"""The Swift clients, built when first needed: async-http-client alone takes minutes."""

import functools
import subprocess

from bench import places
from bench.frame import Failed


@functools.cache
def built(package):
    """Builds a package of `Tests/Bench/swift` and returns the folder of its program."""
    scratch = places.MADE / "swift" / package
    scratch.mkdir(parents=True, exist_ok=True)
    command = ["swift", "build", "-c", "release", "--package-path", places.SOURCES / "swift" / package,
               "--scratch-path", scratch]
    with (scratch / "build.log").open("wb") as log:
        if subprocess.run(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL).returncode != 0:
            raise Failed(f"cannot be built: see {scratch.relative_to(places.ROOT)}/build.log")
    return scratch / "release"


def program(package, name):
    """The steps of a command, as asking.Client takes them."""
    return [lambda: built(package) / name]
