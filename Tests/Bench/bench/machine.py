"""Machine and versions of a measurement."""

import datetime
import json
import os
import pathlib
import platform
import subprocess

from bench import folders

PACKAGES = ["curl", "libcurl4", "libssl3", "libzmq5", "wget2", "aria2", "zurl", "gearman-job-server", "libgearman8", "nginx-light",
            "squid", "varnish"]


def describe():
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": _cpu(), "cores": len(os.sched_getaffinity(0)), "memory_gib": _memory(),
        "kernel": platform.release(), "system": _system(),
        "load": [round(load, 2) for load in os.getloadavg()],
        "versions": {"earshot": _output(folders.earshot(), "--version").splitlines()[0].split()[-1], "commit": _commit(),
                     "python": platform.python_version(), **_packages(), **_python_packages(),
                     "async-http-client": _async_http_client()},
    }


def lines(machine):
    """Returns the description as text."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items() if version)
    return [f"{machine['date']}, {machine['cores']} cores of {machine['cpu']}, {machine['memory_gib']} GiB, "
            f"{machine['system']}, Linux {machine['kernel']}, load at the start {machine['load'][0]}", versions]


def _output(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _commit():
    return _output("git", "-C", str(folders.ROOT), "describe", "--always", "--dirty")


def _async_http_client():
    """Returns the version of the last build of the Swift client."""
    resolved = folders.SOURCES / "swift/http/Package.resolved"
    if not resolved.exists():
        return ""
    pins = json.loads(resolved.read_text())["pins"]
    return next((pin["state"]["version"] for pin in pins if pin["identity"] == "async-http-client"), "")


def _field(path, name, separator):
    try:
        for line in pathlib.Path(path).read_text().splitlines():
            key, _, value = line.partition(separator)
            if key.strip() == name:
                return value.strip().strip('"')
    except OSError:
        pass
    return ""


def _cpu():
    return _field("/proc/cpuinfo", "model name", ":") or platform.machine()


def _memory():
    return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30)


def _system():
    return _field("/etc/os-release", "PRETTY_NAME", "=")


def _packages():
    found = _output("dpkg-query", "-W", "-f=${Package} ${Version}\\n", *PACKAGES)
    return dict(line.split(" ", 1) for line in found.splitlines() if " " in line.strip())


def _python_packages():
    """Returns the versions in the virtual environment, if a suite has created it."""
    found = _output(str(folders.VENV / "bin/python"), "-m", "pip", "list", "--format=freeze")
    return {name: version for name, _, version in (line.partition("==") for line in found.splitlines())
            if name.lower() in ("aiohttp", "pycurl", "uvloop", "pyzmq")}
