"""Relay between clients on tcp with CURVE and a broker on ipc. It is made with pyzmq, so it shares no code with the gateway.

`with Relay(runtime, folder) as relay:` runs it as a process. Each client gets a connection to the broker of its own. If one of
the two ends, the relay ends the other.
"""

import contextlib
import os
import pathlib
import socket
import sys

import zmq
from zmq.utils import z85
from zmq.utils.monitor import parse_monitor_message

from .processes import Program

_SUPPORT = pathlib.Path(__file__).resolve().parent
_HEARTBEAT = {zmq.HEARTBEAT_IVL: 5_000, zmq.HEARTBEAT_TIMEOUT: 15_000, zmq.HEARTBEAT_TTL: 20_000}
#: Messages that a client may have waiting in each direction. A body has four parts of 256 KiB under way.
_WAITING = 1_000


class Keys:
    """Key pairs of a server and a client in files of `folder`, in the form of `earshot key`."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.server_public, self.server_secret = self._pair()
        self.server_file = self.folder / "server.pub"
        self.server_file.write_text(f'public-key = "{self.server_public}"\n')
        self.client_file = self.new("client")

    @staticmethod
    def _pair():
        return [key.decode() for key in zmq.curve_keypair()]

    def new(self, name):
        """Writes the key file of another client. Returns its path."""
        public, secret = self._pair()
        path = self.folder / f"{name}.key"
        path.write_text(f'name = "{name}"\npublic-key = "{public}"\nsecret-key = "{secret}"\n')
        path.chmod(0o600)
        return path

    @staticmethod
    def public(path):
        """Returns the public key in a file."""
        lines = path.read_text().splitlines()
        return next(line.split('"')[1] for line in lines if line.startswith("public-key"))


class Relay:
    """Running relay. `port`: 0 for a free one. `keys`: those of the server and of the only client that it admits."""

    def __init__(self, runtime, folder, port=0, host="127.0.0.1", keys=None, prefix=()):
        self.keys = keys or Keys(pathlib.Path(folder) / "keys")
        self._runtime, self._host, self._port, self._prefix = runtime, host, port, list(prefix)
        self.program = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.kill()

    def start(self):
        """Starts the process, with the port of the last one."""
        environment = dict(os.environ, RELAY_SECRET=self.keys.server_secret)
        self.program = Program(
            [*self._prefix, sys.executable, "-B", _SUPPORT, "relay", self._runtime, self._host, self._port,
             self.keys.public(self.keys.client_file)], environment)
        self._port = int(self.program.await_line("port ", "stdout").split()[1])

    def kill(self):
        if self.program.running:
            self.program.kill()

    @property
    def address(self):
        return f"tcp://{self._host}:{self._port}"

    def options(self):
        """Options of a command that uses it."""
        return ["--bus", self.address, "--bus-key", self.keys.client_file, "--server-key", self.keys.server_file]

    def variables(self):
        """Variables of a program that uses it."""
        return {"EARSHOT_BUS": self.address, "EARSHOT_BUS_KEY": str(self.keys.client_file),
                "EARSHOT_SERVER_KEY": self.keys.server_public}


class _Server:
    """The process: one thread, one poller. A client that does not read stops its own connection only."""

    def __init__(self, runtime, host, port, admitted):
        self._broker, self._admitted = f"{runtime}/bus", admitted.encode()
        self._context = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, 4_096)
        self._poller = zmq.Poller()
        self._door = self._context.socket(zmq.REP)
        self._door.bind("inproc://zeromq.zap.01")
        self._front = self._context.socket(zmq.ROUTER)
        for option, value in {**_HEARTBEAT, zmq.CURVE_SERVER: 1, zmq.ROUTER_MANDATORY: 1, zmq.LINGER: 0,
                              zmq.SNDHWM: _WAITING, zmq.RCVHWM: _WAITING}.items():
            self._front.setsockopt(option, value)
        self._front.curve_secretkey = os.environ["RELAY_SECRET"].encode()
        self._monitor = self._front.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._front.bind(f"tcp://{host}:{port or '*'}")
        print("port", self._front.last_endpoint.decode().rpartition(":")[2], flush=True)
        for socket in (self._door, self._front, self._monitor):
            self._poller.register(socket, zmq.POLLIN)
        self._peers = {}
        """Connections by the routing ID of the client."""
        self._peer_of = {}
        """Clients by the sockets of their connections, and by the monitors of these."""
        self._unsent = {}
        """Messages for clients whose queue is full, by their routing ID."""

    def run(self):
        while True:
            ready = dict(self._poller.poll(5 if self._unsent else None))
            while self._receives(self._door):
                self._admit()
            while self._receives(self._front):
                self._from_client()
            while self._receives(self._monitor):
                gone = parse_monitor_message(self._monitor.recv_multipart())["value"]
                for peer in [peer for peer, connection in self._peers.items() if connection.descriptor == gone]:
                    self._end(peer)
            for peer, message in list(self._unsent.items()):
                self._to_client(peer, message)
            for found in ready:
                self._from_broker(found)

    @staticmethod
    def _receives(socket):
        return socket.getsockopt(zmq.EVENTS) & zmq.POLLIN

    def _admit(self):
        version, request, _, _, _, mechanism, *keys = self._door.recv_multipart()
        is_known = mechanism == b"CURVE" and z85.encode(keys[0]) == self._admitted
        self._door.send_multipart([version, request, b"200" if is_known else b"400", b"", b"client", b""])

    def _from_client(self):
        frames = self._front.recv_multipart(copy=False)
        peer = frames[0].bytes
        # Of the second frame: libzmq 4.3.4 can lose the metadata of the first.
        connection = self._peers.get(peer) or self._connect(peer, frames[1].get(zmq.SRCFD))
        if connection:
            connection.socket.send_multipart(frames[1:], copy=False)

    def _connect(self, peer, descriptor):
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(self._broker)
        except OSError:
            return _hang_up(descriptor)
        connection = self._peers[peer] = _Connection(self._context, self._broker, descriptor)
        for each in (connection.socket, connection.monitor):
            self._peer_of[each] = peer
            self._poller.register(each, zmq.POLLIN)
        return connection

    def _from_broker(self, found):
        peer = self._peer_of.get(found)
        connection = self._peers.get(peer)
        if connection is None or peer in self._unsent:
            return
        while peer in self._peers and peer not in self._unsent and self._receives(connection.socket):
            self._to_client(peer, connection.socket.recv_multipart(copy=False))
        if found is connection.monitor and peer in self._peers:
            # The broker has ended. The client connects again, and learns of the next broker.
            _hang_up(connection.descriptor)
            self._end(peer)

    def _to_client(self, peer, message):
        self._unsent.pop(peer, None)
        try:
            self._front.send_multipart([peer, *message], zmq.DONTWAIT, copy=False)
        except zmq.Again:
            self._unsent[peer] = message
        except zmq.ZMQError:
            self._end(peer)
        if connection := self._peers.get(peer):
            self._poller.register(connection.socket, 0 if peer in self._unsent else zmq.POLLIN)

    def _end(self, peer):
        connection = self._peers.pop(peer, None)
        self._unsent.pop(peer, None)
        if connection is None:
            return
        for each in (connection.socket, connection.monitor):
            del self._peer_of[each]
            with contextlib.suppress(KeyError):
                self._poller.unregister(each)
        connection.close()


class _Connection:
    """Connection of one client to the broker. `descriptor`: that of the client's connection."""

    def __init__(self, context, path, descriptor):
        self.descriptor = descriptor
        self.socket = context.socket(zmq.DEALER)
        for option, value in {zmq.LINGER: 100, zmq.SNDHWM: 0, zmq.RCVHWM: 8, zmq.RECONNECT_IVL: 3_600_000}.items():
            self.socket.setsockopt(option, value)
        self.monitor = self.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self.socket.connect(f"ipc://{path}")

    def close(self):
        self.socket.disable_monitor()
        self.socket.close()


def _hang_up(descriptor):
    """Ends a connection of libzmq, which has no call for it."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
        connection.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    _Server(*sys.argv[1:3], int(sys.argv[3]), sys.argv[4]).run()
