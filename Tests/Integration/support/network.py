"""Clients of the gateway: tcp with CURVE, by pyzmq."""

import collections
import fcntl
import functools
import os
import random
import select
import signal
import socket
import tempfile
import threading
import time

import zmq
from zmq.utils.monitor import recv_monitor_message

from .client import Client, Message
from .harness import Bus, TestCase
from .origin import Origin, body
from .processes import eventually

ADDRESS = "127.0.0.1"
# For a thousand clients, each with a monitor.
zmq.Context.instance().set(zmq.MAX_SOCKETS, 8_192)


#: Below the ports that Linux gives to outgoing connections, which could take one before its program listens.
PORTS = range(20_000, 32_768)
_chosen = set()


@functools.cache
def _ports_file():
    """Returns the descriptor of a file in which each process of tests locks a byte for each port that it has chosen, until it ends."""
    return os.open(f"{tempfile.gettempdir()}/ports-of-tests-{os.geteuid()}", os.O_WRONLY | os.O_CREAT, 0o600)


def free_port():
    """Returns a port that no program uses at present, and each port only once; no other process of tests gets it meanwhile."""
    locks = _ports_file()
    while True:
        port = random.choice(PORTS)
        if port in _chosen:
            continue
        with socket.socket() as probe:
            try:
                fcntl.lockf(locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
                probe.bind((ADDRESS, port))
            except OSError:
                continue
        _chosen.add(port)
        return port


def read_key(path):
    """Returns (public key, secret key) of a key file."""
    pairs = dict(line.split(" = ") for line in path.read_text().splitlines() if " = " in line)
    return tuple(pairs[name].strip('"').encode() for name in ("public-key", "secret-key"))


class NetworkBus(Bus):
    """Bus with a gateway, usually on loopback, and a key of the name `test`."""

    def __init__(self, host=ADDRESS, port=None, **options):
        self.address = host, port or free_port()
        self.endpoint = f"tcp://{host}:{self.address[1]}"
        arguments = [*options.pop("arguments", ()), "--listen", self.endpoint]
        super().__init__(arguments=arguments, **options)
        self.server_key = self._key("show").strip()
        self.key = self.new_key("test", "--connections", "4096")
        self.key_file = self.folder / "test.key"
        self.server_file = self.folder / "server.pub"
        self.server_file.write_bytes(self.server_key + b"\n")

    def _key(self, *words):
        program = self.run("key", *words)
        if program.status:
            raise AssertionError(f"earshot key {words} failed\n{program.describe()}")
        return program.stdout

    def new_key(self, name, *options):
        """Authorizes a new key. Returns (public key, secret key)."""
        path = self.folder / f"{name}.key"
        self._key("new", name, "--out", str(path), *options)
        return read_key(path)

    def revoke(self, name):
        self._key("revoke", name)

    def reload(self, clients):
        """Makes the gateway read its keys again, and waits until it has that many clients."""
        self.program.signal(signal.SIGHUP)
        self.program.await_line(f"the keys were read again clients={clients}")

    @property
    def gateway(self):
        """The gateway's process ID, once it runs."""
        return eventually(lambda: self._pids("gateway"), "the supervisor has a gateway")[0]

    def kill_gateway(self):
        """Kills the gateway, and waits until the supervisor has started another one, for which it waits longer each time."""
        killed = self.gateway
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: self._pids("gateway") not in ([], [killed]), "another gateway runs", 60)

    def options(self):
        """Options of a command that uses the gateway."""
        return ["--bus", self.endpoint, "--bus-key", self.key_file, "--server-key", self.server_file]

    def variables(self):
        """Variables of a program that uses the gateway."""
        return {"EARSHOT_BUS": self.endpoint, "EARSHOT_BUS_KEY": str(self.key_file),
                "EARSHOT_SERVER_KEY": self.server_key.decode()}

    def connect(self):
        """Returns a tcp connection to the gateway."""
        return socket.create_connection(self.address, timeout=30)

    def remote(self, kind=None, key=None, **options):
        """Returns a new client over tcp, closed at the end."""
        options.setdefault("bodies", "pull")
        client = (kind or RemoteClient)(self, key or self.key, **options)
        self._clients.append(client)
        return client


class NetworkTestCase(TestCase):
    """Tests with an origin and a bus that clients on other machines use."""

    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.bus = self.enterContext(NetworkBus(workers=1))

    def assertAnswers(self, client, handler="h", request=1, size=1000):
        client.fetch(handler, request, f"{self.origin.url}/bytes/{size}")
        self.assertResult(client.terminal(), body(size))


class RemoteClient(Client):
    """Client over tcp with CURVE. `key`: (public key, secret key)."""

    def __init__(self, bus, key, **options):
        self.bus = bus
        self.key = key
        self.server_key = options.pop("server_key", bus.server_key)
        super().__init__(bus.runtime, **options)

    def _connect(self, _):
        self.socket.curve_publickey, self.socket.curve_secretkey = self.key
        self.socket.curve_serverkey = self.server_key
        self.monitor = self.socket.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
            | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_DISCONNECTED)
        self.socket.connect(self.bus.endpoint)

    def event(self, timeout=60):
        """Returns (event, value) of the next change of the connection, or None after the timeout."""
        if not self.monitor.poll(timeout * 1000):
            return None
        event = recv_monitor_message(self.monitor)
        return event["event"], event["value"]

    def await_event(self, wanted, timeout=60):
        """Waits for a change of the connection. Returns its value."""
        while (event := self.event(timeout)) is not None:
            if event[0] == wanted:
                return event[1]
        raise AssertionError(f"no event {wanted!r} within {timeout} s")

    def close(self):
        if not self.socket.closed:
            self.socket.disable_monitor()
        super().close()

    def cut(self):
        self.socket.disable_monitor()
        super().cut()

    def come_back(self):
        while True:
            successor = RemoteClient(self.bus, self.key, window=self.window, hello=False, lease=self.lease,
                                     bodies=self.bodies)
            successor.token = self.token
            if successor.greet() == "WELCOME":
                return successor
            successor.cut()


class Recorder:
    """Passes one connection on to the gateway, and keeps all bytes. `change`: called with each part that the client sends; returns
    the part that the gateway gets."""

    def __init__(self, bus, change=lambda part: part):
        self.bus = bus
        self._change = change
        self.sent = b""
        self.received = b""

    def __enter__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._listener.close()

    def client(self, bus, key, **options):
        """Returns a client that connects through the recorder."""
        recorder = self

        class Recorded(RemoteClient):
            def _connect(self, address):
                endpoint = type("Endpoint", (), {"endpoint": f"tcp://127.0.0.1:{recorder.port}"})
                self.bus, bus_ = endpoint, self.bus
                super()._connect(address)
                self.bus = bus_
        return Recorded(bus, key, **options)

    def _serve(self):
        try:
            near, _ = self._listener.accept()
        except OSError:
            return
        far = self.bus.connect()
        while True:
            ready, _, _ = select.select([near, far], [], [])
            for source in ready:
                try:
                    part = source.recv(65536)
                except OSError:
                    part = b""
                if not part:
                    near.close()
                    far.close()
                    return
                if source is near:
                    self.sent += part
                    part, target = self._change(part), far
                else:
                    self.received += part
                    target = near
                try:
                    target.sendall(part)
                except OSError:
                    near.close()
                    far.close()
                    return


class Forwarder:
    """Passes connections on to the gateway, and ends some of them. `cuts`: bytes from the gateway after which a connection ends, by
    its number from 1."""

    def __init__(self, bus, cuts=None):
        self.bus = bus
        self.cuts = cuts or {}
        self.connections = 0
        self.live = 0

    def __enter__(self):
        self._listener = socket.create_server((ADDRESS, 0))
        self.endpoint = f"tcp://{ADDRESS}:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        # Ends accept(), which close() alone does not.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def options(self):
        """Options of a command that uses the gateway through this object."""
        return ["--bus", self.endpoint, "--bus-key", self.bus.key_file, "--server-key", self.bus.server_file]

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._connect, args=(near, self.cuts.get(self.connections)), daemon=True).start()

    def _connect(self, near, cut):
        with near, self.bus.connect() as far:
            self.live += 1
            far.settimeout(None)
            back = threading.Thread(target=self._carry, args=(far, near, cut), daemon=True)
            back.start()
            self._carry(near, far, None)
            back.join()
            self.live -= 1

    @staticmethod
    def _carry(source, target, rest):
        while True:
            try:
                part = source.recv(65536 if rest is None else min(65536, rest))
                target.sendall(part)
            except OSError:
                part = b""
            rest = None if rest is None else rest - len(part)
            if not part or rest == 0:
                for end in (source, target):
                    try:
                        end.shutdown(socket.SHUT_RDWR)
                    except OSError:
                        pass
                return


class Named:
    """Terminal of which only number and length are known."""

    def __init__(self, number, length):
        self.fields = {"seq": number, "length": str(length)}


class Unreading(RemoteClient):
    """Client whose socket takes few messages until they are received."""

    def _connect(self, address):
        self.socket.rcvhwm = 2
        self.socket.rcvbuf = 65536
        super()._connect(address)


class StubbornRemote(RemoteClient):
    """Client without a lease: at each reconnection it sends HELLO and repeats its open requests."""

    def __init__(self, *arguments, **options):
        self._open = {}
        self._answers = collections.defaultdict(list)
        super().__init__(*arguments, **options)

    def fetch(self, handler, request, url, **fields):
        self._open[(handler, str(request))] = url
        super().fetch(handler, request, url, **fields)

    def collect(self, timeout=60):
        """Returns lists of terminals by (handler, request)."""
        deadline = time.monotonic() + timeout
        while self._open:
            if time.monotonic() > deadline:
                raise AssertionError(f"{len(self._open)} requests unanswered")
            event = self.event(0)
            if event and event[0] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._seen = self._acknowledged = 0
                self.send("HELLO EAR/1", window=self.window, bodies="pull")
            message = self.receive(0.1)
            if message is None:
                continue
            if message.verb == "WELCOME" and message.fields["broker"] != self.broker:
                self.broker = message.fields["broker"]
                for (handler, request), url in list(self._open.items()):
                    super().fetch(handler, request, url)
            elif message.is_terminal:
                self._answers[message.id].append(message)
                self._open.pop(message.id, None)
        return self._answers


class LeasedRemote(RemoteClient):
    """Client with a lease: after each reconnection it resumes its session, and repeats the messages that the broker lacks."""

    def __init__(self, *arguments, **options):
        self.log = []
        """Messages with numbers: the first one has the number 1."""
        self.acknowledged = 0
        super().__init__(*arguments, **options)
        self.event(10)

    def submit(self, request, url):
        head = f"FETCH h {request} {url}\nnumber: {len(self.log) + 1}\n".encode()
        self.log.append(head)
        self._send(head)

    def _send(self, head):
        if self.is_open:
            self.socket.send(head)

    is_open = True

    def answers(self):
        """Returns new terminals, and resumes the session after a loss."""
        while event := self.event(0):
            if event[0] == zmq.EVENT_DISCONNECTED:
                self._resume()
        found = []
        if not self.socket.poll(100):
            return found
        while self.socket.poll(0):
            message = Message(self.socket.recv_multipart())
            if message.is_terminal and int(message.fields["seq"]) > self.acknowledged:
                self.acknowledged = int(message.fields["seq"])
                found.append(message)
        self._send(f"ACK {self.acknowledged}\n".encode())
        return found

    def _resume(self):
        """Connects again and repeats the messages that the broker has not processed."""
        token = self.token
        while True:
            self.cut()
            self.socket = zmq.Context.instance().socket(zmq.DEALER)
            self.socket.linger = 0
            self.socket.rcvhwm = 0
            self.socket.sndhwm = 0
            self.socket.reconnect_ivl = 10
            self._connect(None)
            self.token = token
            # A FETCH has no answer but its terminal.
            self.unanswered = 1
            try:
                if self.greet() == "WELCOME":
                    break
            except AssertionError:
                pass
        for head in self.log[self.resumed_number:]:
            self.socket.send(head)
