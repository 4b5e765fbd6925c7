"""Debian packages of the libraries that programs load at run time: libraries.py PRIORITY PROGRAM…

Prints a comma and a name for each package, as additions to a field of a control file. The programs name the libraries and their
priorities (required, recommended, suggested) in notes: https://systemd.io/ELF_DLOPEN_METADATA
"""

import json
import pathlib
import struct
import subprocess
import sys
import tempfile

SECTION = ".note.dlopen"
OWNER, TYPE = b"FDO\0", 0x407c0c0a


def notes(program):
    """Returns the libraries that a program names, each as an object with `soname`, `priority`, `feature` and `description`."""
    with tempfile.NamedTemporaryFile() as dump:
        # Without an output, objcopy would replace the program.
        subprocess.run(["objcopy", "--dump-section", f"{SECTION}={dump.name}", str(program), "/dev/null"], check=True)
        section = pathlib.Path(dump.name).read_bytes()
    libraries = []
    while section:
        owner_size, text_size, kind = struct.unpack_from("<III", section)
        owner_end = 12 + -(-owner_size // 4) * 4
        if section[12:12 + owner_size] != OWNER or kind != TYPE:
            raise ValueError(f"{program}: a foreign note in {SECTION}")
        libraries += json.loads(section[owner_end:owner_end + text_size].rstrip(b"\0"))
        section = section[owner_end + -(-text_size // 4) * 4:]
    return libraries


def package(soname, architecture):
    """Returns the package that installed a library on this machine."""
    found = subprocess.run(["dpkg-query", "--search", f"*/lib/{architecture}/{soname}"], text=True, capture_output=True, check=False)
    names = {line.split(":")[0] for line in found.stdout.splitlines()}
    if len(names) != 1:
        raise SystemExit(f"earshot: {len(names)} packages installed {soname}; install one, then repeat the command")
    return names.pop()


def main(priority, *programs):
    architecture = subprocess.run(["dpkg-architecture", "-qDEB_HOST_MULTIARCH"], text=True, capture_output=True, check=True).stdout.strip()
    sonames = {library["soname"][0] for program in programs for library in notes(program) if library["priority"] == priority}
    print("".join(f", {name}" for name in sorted({package(soname, architecture) for soname in sonames})))


if __name__ == "__main__":
    main(*sys.argv[1:])
