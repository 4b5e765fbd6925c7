"""Peers that are servers, each configured for speed as its documentation recommends, and those of PyPI."""

import functools
import os
import pathlib
import shutil
import subprocess

from bench import cpu, folders, servers
from bench.frame import Failed
from bench.programs import Server, environment

PYPI = ["aiohttp[speedups]", "pycurl", "uvloop"]
"""aiohttp with the speedups of "Library Installation" in its documentation; uvloop is the faster loop for it."""


@functools.cache
def python():
    """Returns the interpreter of a virtual environment with PYPI and Debian's pyzmq. Created once."""
    interpreter = folders.VENV / "bin/python"
    done = folders.VENV / "installed"
    if not done.exists() or done.read_text() != " ".join(PYPI):
        folders.MADE.mkdir(parents=True, exist_ok=True)
        with (folders.MADE / "venv.log").open("wb") as log:
            for step in (["/usr/bin/python3", "-m", "venv", "--system-site-packages", folders.VENV],
                         [interpreter, "-m", "pip", "install", "--quiet", *PYPI]):
                if subprocess.run(step, stdout=log, stderr=log, stdin=subprocess.DEVNULL).returncode != 0:
                    raise Failed(f"cannot make {folders.VENV}: see venv.log beside it")
        done.write_text(" ".join(PYPI))
    return interpreter


class OwnServer(Server):
    """A server with the private folder `folder`, which is removed at its end, and perhaps with further processes."""

    def __exit__(self, *error):
        super().__exit__(*error)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def pids(self):
        return cpu.tree(self.pid)


class Zurl(OwnServer):
    """zurl with Debian's configuration, except for private sockets, loopback allowed, and no messages dropped."""

    def __init__(self):
        self.folder = servers.private_folder("zurl")
        self.endpoint = f"ipc://{self.folder}/req"
        self._configuration = self.folder / "zurl.conf"
        super().__init__("zurl", ["zurl", f"--config={self._configuration}"], self.folder)
        sockets = {"in_spec": "in", "in_stream_spec": "stream", "out_spec": "out", "in_req_spec": "req"}
        options = {**{name: f"ipc://{self.folder}/{file}" for name, file in sockets.items()}, "instance_id": "bench",
                   "ipc_file_mode": 600, "defpolicy": "allow", "allow": "", "deny": "", "max_open_requests": 2000,
                   "buffer_size": 200000, "timeout": 600, "in_hwm": 100000, "out_hwm": 100000}
        self._configuration.write_text(
            "\n".join(["[General]", *(f"{name}={value}" for name, value in options.items())]) + "\n")

    def await_readiness(self):
        self.await_condition(lambda: (self.folder / "req").exists())


class Gearmand(OwnServer):
    """gearmand that wakes one worker for a job instead of all (`--worker-wakeup`, gearmand(8)), and has one I/O thread.
    With four, on two cores, some rounds had a hundredth of the rate of others."""

    COMMAND = "gearmand --threads=1 --worker-wakeup=1"

    def __init__(self):
        self.folder = servers.private_folder("gearmand")
        self.port = servers.free_port()
        super().__init__("gearmand", [
            *self.COMMAND.split(), "--listen=127.0.0.1", f"--port={self.port}", "--log-file=stderr",
            f"--pid-file={self.folder}/pid", "--config-file=/dev/null"], self.folder)

    def await_readiness(self):
        self.await_condition(lambda: servers.answers(self.port))


class Program(OwnServer):
    """A C program of the benchmark that serves, ready when `is_ready` is true, or at once."""

    def __init__(self, name, *arguments, is_ready=lambda: True):
        self.folder = servers.private_folder(name)
        self._is_ready = is_ready
        super().__init__(name, [folders.PROGRAMS / name, *arguments], self.folder)

    def await_readiness(self):
        self.await_condition(lambda: self._is_ready())


class GearmanWorkers(Program):
    """Process pool: each process has one easy handle with a kept connection."""

    def __init__(self, gearmand, count):
        super().__init__("gearman-worker", gearmand.port, count)


def scripts_environment():
    """Returns the environment of the Python clients."""
    return environment(PYTHONPATH=os.pathsep.join(str(path) for path in (folders.ROOT / "examples/python",)),
                       PYTHONDONTWRITEBYTECODE="1")


def script(name):
    return pathlib.Path(folders.SOURCES / "python" / name)
