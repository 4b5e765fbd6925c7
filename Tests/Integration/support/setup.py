"""The documented set-up of a cluster: each machine is a folder in place of `/`, at an address of loopback of its own.

Programs of the system that install, copy and start are replaced by small scripts. Redis, its sentinels and the buses are started with
the installed files.
"""

import os
import pathlib
import random
import re
import shutil
import subprocess
import sys

from .engine import Server
from .harness import Bus, binary, temporary_folder
from .processes import eventually

DOCUMENT = pathlib.Path(__file__).parents[3] / "docs" / "cluster.md"
#: Addresses of the machines in the document.
DOCUMENTED = "10.0.0."
REDIS_PORT, SENTINEL_PORT = 6379, 26379

#: Scripts that replace programs of the system. ROOT: folder of the machine. FIRST: home folder of the first machine.
_PROGRAMS = {
    "apt": "#!/bin/sh\nexit 0\n",
    "scp": '#!/bin/sh\nexec cp -r "$FIRST/${2#*:}" "$3"\n',
    "systemctl": '#!/bin/sh\necho "$*" >>"$ROOT/systemctl"\n',
    "runuser": '#!/bin/sh\nshift 3\nEARSHOT_CONFIG=$ROOT/etc/earshot/shared.toml exec "$@"\n',
    "install": f"""#!{sys.executable}
import os, sys
words, taken = sys.argv[1:], []
while words:
    word = words.pop(0)
    if word in ("-o", "-g"):
        words.pop(0)
    elif not word.startswith("--backup"):
        taken.append(os.environ["ROOT"] + word if word.startswith("/etc/") else word)
os.execv("{shutil.which("install")}", ["install", *taken])
""",
}


def documented_commands():
    """Returns the three blocks of commands: for the first machine, for another one, and for each machine at last."""
    text = DOCUMENT.read_text()
    section = text[text.index("## Three machines"):text.index("### A Redis that exists")]
    return re.findall(r"```sh\n(.*?)```", section, re.DOTALL)


class Installation:
    """One machine. `files`: folder in place of `/`."""

    def __init__(self, address, folder, programs, first=None):
        self.address = address
        self.home, self.files = folder / "home", folder / "root"
        self.home.mkdir(parents=True)
        (self.files / "etc" / "redis").mkdir(parents=True)
        self._environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "ROOT": str(self.files),
                             "FIRST": str(first.home if first else self.home), "XDG_CONFIG_HOME": str(folder)}

    def run(self, commands):
        """Runs commands of the shell."""
        return subprocess.run(["sh", "-eu", "-c", commands], cwd=self.home, env=self._environment, capture_output=True, text=True,
                              timeout=60)

    @property
    def cluster_file(self):
        return self.files / "etc" / "earshot" / "cluster.toml"

    @property
    def admin_password(self):
        readme = next(self.home.rglob(f"{self.address}/README.txt")).read_text()
        return re.search(r"^ *admin (\S+)$", readme, re.MULTILINE)[1]

    def start_redis(self):
        """Starts the server and the sentinel, with the options of their units and folders of the test."""
        redis = self.files / "etc" / "redis"
        options = ["--dir", self.files, "--logfile", "", "--supervised", "no", "--daemonize", "no"]
        login = {"password": self.admin_password, "user": "admin"}
        self.server = Server(self.address, REDIS_PORT,
                             [redis / "redis.conf", "--aclfile", redis / "users.acl", "--pidfile", redis / "server.pid", *options],
                             **login)
        self.sentinel = Server(self.address, SENTINEL_PORT, [redis / "sentinel.conf", "--pidfile", redis / "sentinel.pid", *options],
                               program="redis-sentinel", **login)

    def bus(self):
        return Bus(workers=1, arguments=["--config", self.files / "etc" / "earshot" / "shared.toml"])


class SetUp:
    """`with SetUp() as machines:` runs the documented commands for three machines, and starts Redis and the sentinels."""

    def __enter__(self):
        self.folder = temporary_folder()
        programs = self.folder / "bin"
        programs.mkdir()
        for name, text in _PROGRAMS.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        (programs / "earshot").symlink_to(pathlib.Path(binary()).resolve())
        network = f"127.{random.randint(2, 250)}.{random.randint(0, 250)}."
        blocks = [block.replace(DOCUMENTED, network) for block in documented_commands()]
        self.machines = []
        for number in (1, 2, 3):
            first = self.machines[0] if self.machines else None
            machine = Installation(f"{network}{number}", self.folder / str(number), programs, first)
            commands = blocks[1].replace(f"{network}2", machine.address) if first else blocks[0]
            done = machine.run(commands)
            if done.returncode:
                raise AssertionError(f"{commands}\n{done.stdout}{done.stderr}")
            self.machines.append(machine)
        self.last = blocks[2]
        for machine in self.machines:
            machine.start_redis()
        try:
            eventually(self._is_complete, "servers and sentinels know each other", 60)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _is_complete(self):
        try:
            replication = self.machines[0].server.info("replication")
            watched = [machine.sentinel.execute("SENTINEL", "master", "shop") for machine in self.machines]
        except OSError:
            return False
        states = [dict(zip(flat[::2], flat[1::2])) for flat in watched]
        return replication.get("min_slaves_good_slaves") == "2" and all(
            state["num-other-sentinels"] == "2" and state["num-slaves"] == "2" for state in states)

    def __exit__(self, *_):
        for machine in self.machines:
            for server in (machine.sentinel, machine.server):
                server.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
