"""nginx from Debian with its own configuration: one process, one folder served, one log line per request."""

import collections
import os
import pathlib
import signal
import socket

from .processes import Program, eventually

CONFIGURATION = """
{user}
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr error;
events {{ worker_connections 4096; }}
http {{
    log_format target "$request_uri";
    access_log {folder}/access.log target;
    sendfile on;
    keepalive_requests 1000000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{ listen {address}:{port} backlog=4096; root {root}; }}
}}
"""


class Nginx:
    """`with Nginx(folder, root) as nginx:` serves `root`; its own files go to `folder`."""

    def __init__(self, folder, root, address="127.0.0.1"):
        self._address = address
        self._folder = pathlib.Path(folder)
        self._root = root
        self._program = None
        self.port = None

    def __enter__(self):
        self._folder.mkdir(parents=True, exist_ok=True)
        # Another program can take the port before nginx does.
        for _ in range(5):
            if self._begins():
                return self
        raise AssertionError(f"nginx does not listen\n{self._program.describe()}")

    def _begins(self):
        """Returns whether it listens at a port that was free."""
        with socket.create_server((self._address, 0)) as free:
            self.port = free.getsockname()[1]
        configuration = self._folder / "nginx.conf"
        configuration.write_text(CONFIGURATION.format(
            folder=self._folder, root=self._root, port=self.port, address=self._address, user="user root;" if os.geteuid() == 0 else ""))
        self._program = Program(["nginx", "-e", "stderr", "-p", self._folder, "-c", configuration],
                                environment=dict(os.environ, PATH="/usr/sbin:" + os.environ.get("PATH", "")))
        try:
            # It writes its process ID once it listens.
            written = self._folder / "nginx.pid"
            eventually(lambda: written.exists() or not self._program.running,
                       lambda: f"nginx listens\n{self._program.describe()}", 30)
        except AssertionError:
            self._program.kill()
            raise
        return self._program.running

    def __exit__(self, *_):
        self._program.signal(signal.SIGQUIT)  # Completes and logs its current requests.
        self._program.wait()

    @property
    def url(self):
        return f"http://{self._address}:{self.port}"

    def requests(self):
        """Returns the number of requests per target. Valid after the `with`, because a request is logged after its response."""
        return collections.Counter((self._folder / "access.log").read_text().splitlines())
