"""libzmq between the programs under test and their brokers: a process with two sockets of pyzmq for each connection.

`with Interposer(build(folder)) as interposer:` runs it for tests with `interposer.variables()` in their environment. Their
programs connect to a broker as usual. Then `interposer.c`, which the harness preloads, replaces the connection: the program
speaks to a ROUTER of libzmq, and a DEALER of libzmq to the broker. The broker sees the program's process, and not this one. If
one of the two ends, the other one gets the messages that were on their way, and ends as well.
"""

import collections
import json
import os
import pathlib
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile

import zmq
from zmq.utils.monitor import parse_monitor_message

from .processes import Program

_SUPPORT = pathlib.Path(__file__).resolve().parent
#: Messages that may wait in each socket and direction, so that a receiver that does not read stops its sender: the default of
#: libzmq. If they wait when a peer hangs up, libzmq drops all that it has not read from it.
_WAITING = 1000
#: Messages of one direction in one turn of a connection.
_TURN = 64
#: libzmq connects again after this time, in milliseconds, and reports that it will. That report follows the last messages.
_NEVER = 3_600_000
#: Time for the last messages to a peer that does not read, in milliseconds.
_LINGER = 30_000
_PROGRAM = b"program"


def build(folder):
    """Compiles the library for LD_PRELOAD into a folder. Returns its path."""
    path = pathlib.Path(folder) / "interposer.so"
    subprocess.run([os.environ.get("CC", "clang"), "-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-shared", "-o", path,
                    _SUPPORT / "interposer.c", "-ldl"], check=True)
    return path


class Interposer:
    """Running process. `library`: result of `build`. `python`: interpreter whose pyzmq is used."""

    def __init__(self, library, python=None):
        self._library = library
        self._folder = tempfile.TemporaryDirectory(prefix="ear-")
        # Programs of other users connect, too.
        os.chmod(self._folder.name, 0o711)
        self._path = f"{self._folder.name}/door"
        environment = dict(os.environ, INTERPOSER_IS_THIS="1", LD_PRELOAD=str(library))
        self._program = Program([python or sys.executable, "-B", _SUPPORT, "interposer", self._path], environment)
        self._program.await_line("ready", "stdout")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._program.running:
            self._program.kill()
        self._folder.cleanup()

    def variables(self):
        """Variables of a test, whose programs it then serves."""
        return {"INTERPOSER": self._path, "INTERPOSER_LIBRARY": str(self._library)}

    def end(self):
        """Ends it. Returns the version of its libzmq, and its counts."""
        self._program.signal(signal.SIGTERM)
        if self._program.wait() != 0:
            raise AssertionError(f"the interposer failed\n{self._program.describe()}")
        version, counts = json.loads(self._program.stdout.splitlines()[-1])
        return version, collections.Counter(counts)


class _Server:
    """The process: one thread and the one of libzmq."""

    def __init__(self, path):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.context = zmq.Context()
        self.context.set(zmq.MAX_SOCKETS, 60_000)
        self.counts = collections.Counter()
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._door.bind(path)
        self._door.listen(1024)
        os.chmod(path, 0o666)
        self._poller = select.epoll()
        self._poller.register(self._door, select.EPOLLIN)
        self._links = {}
        """Connections by each of their descriptors."""
        print("ready", flush=True)

    def run(self):
        waiting = {}
        while True:
            found = waiting
            waiting = {}
            for descriptor, _ in self._poller.poll(0 if found else None):
                if descriptor == self._door.fileno():
                    self._admit()
                elif link := self._links.get(descriptor):
                    found[link] = None
            for link in found:
                if link.turn():
                    waiting[link] = None

    def _admit(self):
        with self._door.accept()[0] as caller:
            path, descriptors, _, _ = socket.recv_fds(caller, 4096, 2)
        broker, program = descriptors
        self.counts[path.decode().rpartition("/")[2] + " connections"] += 1
        link = _Link(self, broker, program)
        for descriptor in link.descriptors:
            self._links[descriptor] = link
            self._poller.register(descriptor, select.EPOLLIN)

    def forget(self, link):
        for descriptor in link.descriptors:
            del self._links[descriptor]
            self._poller.unregister(descriptor)


class _Link:
    """One connection, through two sockets."""

    def __init__(self, server, broker, program):
        self._server = server
        self._program = _End(server.context, zmq.ROUTER, program)
        self._broker = _End(server.context, zmq.DEALER, broker)
        self.descriptors = [*self._program.descriptors, *self._broker.descriptors]

    def turn(self):
        """Passes messages on. Returns whether some may be left for the next turn."""
        for end in (self._program, self._broker):
            end.hear(self._server.counts)
        moved = self._pass(self._program, self._broker) + self._pass(self._broker, self._program)
        # Any call for a socket clears the signal of its descriptor. So the last call for each asks for its state.
        program, broker = self._program.state(), self._broker.state()
        if moved or program.has_message and broker.has_room or broker.has_message and program.has_room:
            return True
        if program.has_ended and not program.has_message or broker.has_ended and not broker.has_message:
            self._server.forget(self)
            self._program.close()
            self._broker.close()
        return False

    def _pass(self, source, target):
        count = 0
        while count < _TURN and target.state().has_room and (frames := source.receive()) is not None:
            target.send(frames)
            count += 1
        self._server.counts["messages"] += count
        return count


_State = collections.namedtuple("_State", "has_message has_room has_ended")


class _End:
    """libzmq's socket for one peer."""

    def __init__(self, context, kind, descriptor):
        self._socket = context.socket(kind)
        self._is_router = kind == zmq.ROUTER
        for option, value in {zmq.SNDHWM: _WAITING, zmq.RCVHWM: _WAITING, zmq.RECONNECT_IVL: _NEVER, zmq.HANDSHAKE_IVL: 0,
                              zmq.LINGER: _LINGER}.items():
            self._socket.setsockopt(option, value)
        if self._is_router:
            self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
            self._socket.setsockopt(zmq.CONNECT_ROUTING_ID, _PROGRAM)
        self._monitor = self._socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_CONNECT_RETRIED)
        self._socket.connect(f"ipc:///descriptor/{descriptor}")
        self.descriptors = [self._socket.FD, self._monitor.FD]
        self.has_ended = False

    def hear(self, counts):
        """Takes the reports about the connection."""
        while self._monitor.getsockopt(zmq.EVENTS) & zmq.POLLIN:
            if parse_monitor_message(self._monitor.recv_multipart())["event"] == zmq.EVENT_CONNECT_RETRIED:
                self.has_ended = True
            else:
                counts["handshakes"] += 1

    def state(self):
        events = self._socket.getsockopt(zmq.EVENTS)
        # An end without a peer takes and drops all messages.
        return _State(bool(events & zmq.POLLIN), self.has_ended or bool(events & zmq.POLLOUT), self.has_ended)

    def receive(self):
        try:
            frames = self._socket.recv_multipart(zmq.DONTWAIT)
        except zmq.Again:
            return None
        return frames[1:] if self._is_router else frames

    def send(self, frames):
        if not self.has_ended:
            self._socket.send_multipart([_PROGRAM, *frames] if self._is_router else frames, zmq.DONTWAIT)

    def close(self):
        self._socket.disable_monitor()
        self._monitor.close()
        self._socket.close(0 if self.has_ended else None)


def _end(counts):
    print(json.dumps([f"libzmq {zmq.zmq_version()} of pyzmq {zmq.__version__}", counts]), flush=True)
    os._exit(0)


if __name__ == "__main__":
    _server = _Server(sys.argv[1])
    signal.signal(signal.SIGTERM, lambda *_: _end(_server.counts))
    _server.run()
