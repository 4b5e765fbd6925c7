"""Languages of `examples/`: commands that build and run the programs of each folder, and the Debian packages they need."""

import atexit
import functools
import pathlib
import shutil
import subprocess
import sys

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(EXAMPLES.parent / "Tests" / "Integration"))

from support.harness import binary, temporary_folder  # noqa: E402 (the path comes first)
from support.processes import Program  # noqa: E402

JAVA = "java -cp .:/usr/share/java/zmq.jar Earshot"
SWIFT_DISTRUST = "may enter the folder"


class Language:
    """Commands that build and run the programs of one folder, in that folder, as its README shows them."""

    def __init__(self, name, packages, fetch, watch, gallery=None, cancel=None, worker=None, adapter=None, build=None,
                 keeps_folder=False, has_dialog=True, counts_failures=False, pulls=False, secures=False,
                 distrust="is not a directory private to this user: remove it, or set EARSHOT_RUNTIME"):
        self.name = name
        self.packages = packages
        commands = {"fetch": fetch, "watch": watch, "gallery": gallery, "cancel": cancel, "worker": worker}
        self.commands = {program: command for program, command in commands.items() if command}
        # Program for the scenarios, without a line in the README.
        self.adapter = adapter
        self.build = build
        # Whether to build in the checkout, because the package refers to this repository by a relative path.
        self.keeps_folder = keeps_folder
        # Whether its worker implements the protocol itself, and ends with the broker.
        self.has_dialog = has_dialog
        # Whether the exit code of `watch` depends on failures among the results.
        self.counts_failures = counts_failures
        # Whether `fetch --pull` reads bodies over the connection, in a session with a lease.
        self.pulls = pulls
        # Whether `fetch --bus` reaches a bus on a network, with CURVE.
        self.secures = secures
        # Part of the message about a runtime directory that is open to others.
        self.distrust = distrust

    def start(self, program, *arguments, environment, output=None):
        """Starts a program with the command `earshot` in its PATH. `output`: path for its standard output."""
        path = f"{pathlib.Path(binary()).parent}:{environment['PATH']}"
        command = [*self.commands[program].split(), *arguments]
        if output:
            command = ["sh", "-c", f'exec "$@" >{output}', "sh", *command]
        return Program(command, dict(environment, PATH=path), self.built)

    @functools.cached_property
    def built(self):
        """Folder of the built programs, removed at the end of the tests unless it is the checkout."""
        missing = [package for package in self.packages if not installed(package)]
        if missing:
            raise AssertionError(f"{self.name} needs {' '.join(missing)}: run bin/setup --examples")
        programs = EXAMPLES / self.name
        if not self.keeps_folder:
            folder = temporary_folder()
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            programs = shutil.copytree(programs, folder / self.name)
        if self.build:
            done = subprocess.run(self.build, shell=True, cwd=programs, capture_output=True, text=True)
            if done.returncode or "warning" in done.stderr:
                raise AssertionError(f"{self.name}: {self.build} ended with {done.returncode}\n{done.stderr}")
        return programs


def installed(package):
    answer = subprocess.run(["dpkg-query", "-W", "-f=${db:Status-Status}", package], capture_output=True, text=True)
    return answer.stdout == "installed"


LANGUAGES = [
    Language("c", ["gcc", "make", "libzmq3-dev", "libssl-dev"], "./fetch", "./watch", "./gallery", worker="./worker",
             adapter="./adapter", build="make", pulls=True, secures=True),
    Language("node", ["nodejs"], "node fetch.mjs", "node watch.mjs", "node gallery.mjs", worker="node worker.mjs",
             adapter="node adapter.mjs", pulls=True),
    Language("shell", [], "sh fetch.sh", "sh watch.sh", "sh gallery.sh", worker="sh worker.sh", has_dialog=False,
             counts_failures=True, distrust=SWIFT_DISTRUST),
    Language("swift", [], ".build/release/fetch", ".build/release/watch", ".build/release/gallery",
             build="swift build -c release -q", keeps_folder=True, distrust=SWIFT_DISTRUST),
]

# Languages with an example worker. The Swift package is only a client.
WORKERS = [language for language in LANGUAGES if "worker" in language.commands]

# Languages with one short program in place of a library.
SHORT = [
    Language("java", ["default-jdk-headless", "libzmq-java"],
             f"{JAVA} fetch", f"{JAVA} watch", cancel=f"{JAVA} cancel",
             build="javac -Xlint:all -cp /usr/share/java/zmq.jar Earshot.java"),
    Language("perl", ["perl", "libzmq-ffi-perl"], "perl earshot.pl fetch", "perl earshot.pl watch",
             cancel="perl earshot.pl cancel"),
    Language("ruby", ["ruby", "ruby-ffi-rzmq"], "ruby earshot.rb fetch", "ruby earshot.rb watch",
             cancel="ruby earshot.rb cancel"),
]
