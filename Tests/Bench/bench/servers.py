"""Servers of measurements, each on loopback or in a private folder, each stopped at the end of its `with`."""

import os
import pathlib
import shutil
import socket
import tempfile

from bench import cpu, folders
from bench.programs import Server, environment

FRESH = 'add_header Cache-Control "max-age=86400";'
"""Configuration of an origin whose responses are fresh for a day."""


def private_folder(name):
    """Creates a folder for sockets, logs and PIDs."""
    return pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-", dir=folders.outputs()))


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def answers(port):
    """Whether a process accepts connections at the port."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    except OSError:
        return False


class Nginx(Server):
    """The origin: serves `root` with `Tests/Bench/nginx.conf`. `counted`: it logs each request, for measurements that count
    them. `more`: further configuration of its http block, such as a cache."""

    def __init__(self, root=folders.DATA, counted=False, more=""):
        self.folder = private_folder("nginx")
        self.port = free_port()
        self._access = self.folder / "access.log"
        self._values = {
            "folder": self.folder, "port": self.port, "root": root, "more": more,
            "user": "user root;" if os.geteuid() == 0 else "",
            "log": f'log_format target "$status $request_uri"; access_log {self._access} target;' if counted
                   else "access_log off;"}
        configuration = self.folder / "nginx.conf"
        super().__init__("nginx", ["nginx", "-e", "stderr", "-p", self.folder, "-c", configuration], self.folder)
        configuration.write_text((folders.SOURCES / "nginx.conf").read_text().format(**self._values))

    def await_readiness(self):
        self.await_condition(lambda: answers(self.port))

    def __exit__(self, *error):
        super().__exit__(*error)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def pids(self):
        return cpu.tree(self.pid)

    def requests(self, status=""):
        """Returns the number of requests served so far, or of those with one status, if it is `counted`."""
        with self._access.open() as lines:
            return sum(line.startswith(status) for line in lines)


class Bus(Server):
    """`earshot serve` in a private runtime folder. The cache is off unless `cache`: the suites measure fetches, and no peer
    has a cache. `origin_limit`: None for the default."""

    def __init__(self, workers=None, origin_limit=100, slots=None, cache=False, arguments=()):
        self.folder = private_folder("bus")
        self.runtime = self.folder / "run"
        self.spool = self.folder / "spool"
        options = ["--origin-limit", str(origin_limit)] if origin_limit else []
        options += ["--workers", str(workers)] if workers else []
        options += ["--slots", str(slots)] if slots else []
        options += ["--cache-folder", self.folder / "cache"] if cache else ["--no-cache"]
        options += [str(argument) for argument in arguments]
        private = {"--cache-folder", str(self.folder / "cache")}
        # Command in tables, without the folders of this run.
        self.command = " ".join(["earshot serve", *(str(option) for option in options
                                                    if str(option) not in private)])
        super().__init__(
            "bus", [folders.earshot(), "serve", "--runtime", self.runtime, "--spool", self.spool,
                    "--durable-folder", self.folder / "durable", *options], self.folder)

    def await_readiness(self):
        self.await_condition(lambda: "earshot: ready" in self.log.read_text(errors="replace"))

    def __exit__(self, *error):
        super().__exit__(*error)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def env(self):
        """Returns the environment of its clients."""
        return environment(EARSHOT_RUNTIME=self.runtime)

    @property
    def broker(self):
        return self._children("broker")[0]

    @property
    def workers(self):
        return self._children("worker")

    @property
    def pids(self):
        """Returns the processes: supervisor, broker and workers."""
        return cpu.tree(self.pid)

    def _children(self, role):
        def has_role(pid):
            return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1] == role.encode()
        return [pid for pid in cpu.tree(self.pid) if has_role(pid)]
