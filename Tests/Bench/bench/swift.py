"""Swift clients, built when first needed: async-http-client alone takes minutes."""

import functools
import shutil
import subprocess

from bench import folders
from bench.frame import Failed


@functools.cache
def built(package):
    """Builds a package of `Tests/Bench/swift`. Returns the folder of its program."""
    scratch = folders.MADE / "swift" / package
    command = ["swift", "build", "-c", "release", "--package-path", folders.SOURCES / "swift" / package,
               "--scratch-path", scratch]
    # After the removal of a source file SwiftPM needs a clean build.
    if not _succeeds(command, scratch):
        shutil.rmtree(scratch)
        if not _succeeds(command, scratch):
            raise Failed(f"cannot be built: see {scratch.relative_to(folders.ROOT)}/build.log")
    return scratch / "release"


def _succeeds(command, scratch):
    scratch.mkdir(parents=True, exist_ok=True)
    with (scratch / "build.log").open("wb") as log:
        return subprocess.run(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL).returncode == 0


def program(package, name):
    """Returns the steps of a command for load.Client."""
    return [lambda: built(package) / name]
