"""Nodes of a cluster: a bus with a cluster's file, and the two ends of the puller, played by pyzmq."""

import collections
import hashlib
import os
import secrets
import signal
import threading
import types

import zmq

from .client import Message
from .harness import Bus, Commands, temporary_folder
from .network import ADDRESS, RemoteClient, free_port, read_key
from .processes import eventually

SCHEME = "earshot-node"


def head(line, fields):
    """Returns the head of a message; `max_bytes=5` is the field `max-bytes: 5`. Fields without a value are left out."""
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in fields.items() if value is not None]
    return "\n".join([line, *lines, ""]).encode()


class ClusterFile:
    """File of a new cluster, whose engine is away: the tests of one node need none."""

    def __init__(self, commands, node, name="shop", path=None):
        self.path = path or commands.folder / "cluster.toml"
        program = commands.run("cluster", "new", name, "--node", node, "--server", f"{ADDRESS}:{free_port()}",
                               "--output", str(self.path))
        if program.status:
            raise AssertionError(program.describe())
        self.key = read_key(self.path)

    def change(self, old, new):
        """Replaces a text in the file."""
        self.path.write_text(self.path.read_text().replace(old, new))


class ClusterBus(Bus):
    """Bus that is the only node of a cluster, on loopback."""

    def __init__(self, port=None, **options):
        self.port = port or free_port()
        self.endpoint = f"tcp://{ADDRESS}:{self.port}"
        arguments = list(options.pop("arguments", ()))
        super().__init__(**options)
        self.cluster = ClusterFile(self, f"{ADDRESS}:{self.port}")
        self.server_key = self.cluster.key[0]
        self._options += ["--cluster", self.cluster.path, *arguments]

    def child(self, role):
        """The process ID of a child, `puller` or `gateway`, once it runs."""
        return eventually(lambda: self._pids(role), f"the supervisor has a {role}")[0]

    def kill_child(self, role):
        """Kills a child, and waits until the supervisor has started another one."""
        killed = self.child(role)
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: self._pids(role) not in ([], [killed]), f"another {role} runs", 60)

    def await_puller(self, client):
        """Waits until the broker of a client has taken the puller. Returns its process ID."""
        def ready():
            workers = client.query("workers")["workers"]
            return [w["pid"] for w in workers if w["schemes"] == [SCHEME] and w["phase"] == "ready"]
        return eventually(ready, "the puller is ready")[0]

    def peer(self, kind=None, key=None, **options):
        """Returns a client over tcp at the node gateway, by default with the key of the cluster."""
        options.setdefault("bodies", "pull")
        client = (kind or RemoteClient)(self, key or self.cluster.key, **options)
        self._clients.append(client)
        return client


class NodePeer(RemoteClient):
    """Client at the node gateway of any bus."""

    def __init__(self, bus, port, key):
        address = types.SimpleNamespace(endpoint=f"tcp://{ADDRESS}:{port}", runtime=bus.runtime, server_key=key[0])
        super().__init__(address, key, bodies="pull")


class Body:
    """Response of a node. `is_pulled`: read by READ. `announced`: SHA-256 of the RESULT, by default the right one."""

    def __init__(self, content, is_pulled=False, status=200, headers=(), announced=None):
        self.content = content
        self.is_pulled = is_pulled
        self.status = status
        self.headers = headers
        self.digest = announced or hashlib.sha256(content).hexdigest()
        self.available = len(content)


class Session:
    """Session of the puller at a node."""

    def __init__(self):
        self.token = secrets.token_hex(16)
        self.sequence = 0
        self.received = 0
        self.terminals = {}
        self.bodies = {}


class Node:
    """The broker and the node gateway of another node, as the puller sees them. Its thread answers until `close`."""

    def __init__(self, key):
        self._key = key
        self._commands = collections.deque()
        self._done = threading.Condition()
        self.bodies = {}
        #: URLs whose requests get no answer.
        self.silent = set()
        self.fetched = []
        self.cancelled = []
        self.reads = []
        self.sessions = 0
        self.resumptions = 0
        self.farewells = 0
        self._sessions = {}
        self._routes, self._readers = {}, {}
        self._held = []
        self._bind("tcp://127.0.0.1:*")
        self.endpoint = self._socket.getsockopt(zmq.LAST_ENDPOINT).decode().rstrip("\0")
        self.address = self.endpoint.removeprefix("tcp://")
        self._begin()

    def _begin(self):
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def restart(self):
        """Starts the closed node again, without its sessions."""
        self._sessions, self._routes, self._readers, self._held = {}, {}, {}, []
        self._bind(self.endpoint)
        self._begin()

    def url(self, name):
        return f"{SCHEME}://{self.address}/{name}/1"

    def add(self, name, *arguments, **options):
        """Adds a response. Returns its URL."""
        self.bodies[self.url(name)] = Body(*arguments, **options)
        return self.url(name)

    # For the thread.

    def release(self, url, available):
        """Makes more bytes of a body available to READ."""
        def work():
            self.bodies[url].available = available
            held, self._held = self._held, []
            for route, operands in held:
                self._read(route, operands)
        self._call(work)

    def cut(self):
        """Breaks all connections, and listens again. The sessions stay."""
        def work():
            self._socket.close(0)
            self._routes, self._readers = {}, {}
            self._held = []
            self._bind(self.endpoint)
        self._call(work)

    def close(self):
        if self._thread.is_alive():
            self._call(lambda: None, ends=True)
            self._thread.join()
            self._socket.close(0)

    def _call(self, work, ends=False):
        with self._done:
            self._commands.append((work, ends))
            if not self._done.wait_for(lambda: not self._commands, 60):
                raise AssertionError("the node does not react")

    # In the thread.

    def _bind(self, endpoint):
        self._socket = zmq.Context.instance().socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.curve_server = True
        self._socket.curve_publickey, self._socket.curve_secretkey = self._key
        while True:
            try:
                return self._socket.bind(endpoint)
            except zmq.ZMQError as error:
                # The closed socket listens until libzmq's thread has ended it.
                if error.errno != zmq.EADDRINUSE:
                    raise

    def _serve(self):
        while True:
            with self._done:
                if self._commands:
                    work, ends = self._commands[0]
                    work()
                    self._commands.popleft()
                    self._done.notify_all()
                    if ends:
                        return
            if self._socket.poll(5):
                route, *frames = self._socket.recv_multipart()
                self._take(route, Message(frames))

    def _send(self, route, line, body=None, **fields):
        frames = [head(line, fields)]
        self._socket.send_multipart([route, *frames] if body is None else [route, *frames, body])

    def _take(self, route, message):
        if message.verb == "HELLO":
            return self._greet(route, message.fields)
        session = self._routes.get(route)
        if session and message.verb != "HELLO":
            session.received += 1
        match message.verb:
            case "FETCH": self._fetch(route, session, message.operands)
            case "READ": self._read(route, message.operands)
            case "ACK":
                for number in [n for n in session.terminals if n <= int(message.operands[0])]:
                    del session.terminals[number]
            case "REMOVE":
                self.cancelled.append(message.operands[1])
                self._send(route, f"REMOVED {' '.join(message.operands)} 1")
            case "QUERY": self._send(route, f"ANSWER {message.operands[0]}", body=b"{}")
            case "BYE": self.farewells += 1

    def _greet(self, route, fields):
        common = {"broker": "0123456789abcdef", "window": fields["window"], "bodies": "pull"}
        if "bodies-of" in fields:
            self._readers[route] = self._sessions[fields["bodies-of"]]
            return self._send(route, "WELCOME EAR/1", **common, bodies_of="yes")
        known = self._sessions.get(fields.get("token"))
        session = known or Session()
        self._sessions[session.token] = session
        self._routes[route] = self._readers[route] = session
        self.sessions += known is None
        self.resumptions += known is not None
        self._send(route, "WELCOME EAR/1", **common, lease=fields["lease"], token=session.token,
                   resumed=session.received if known else None)
        for terminal in session.terminals.values():
            self._socket.send_multipart([route, *terminal])

    def _fetch(self, route, session, operands):
        handler, request, url = operands
        self.fetched.append(url)
        if url in self.silent:
            return
        session.sequence += 1
        body = self.bodies.get(url)
        if body is None:
            frames = [head(f"FAILED {handler} {request} not-cached", {"seq": session.sequence})]
        else:
            fields = {"seq": session.sequence, "url": url, "source": "shared", "length": len(body.content),
                      "sha-256": body.digest, "pull": "yes" if body.is_pulled else None}
            frames = [head(f"RESULT {handler} {request} {body.status}", fields)
                      + "".join(["\n", *(f"{name}: {value}\n" for name, value in body.headers)]).encode()]
            if not body.is_pulled:
                frames.append(body.content)
            else:
                session.terminals[session.sequence] = frames
            session.bodies[session.sequence] = body
        self._socket.send_multipart([route, *frames])

    def _read(self, route, operands):
        sequence, offset, length = (int(operand) for operand in operands)
        body = self._readers[route].bodies[sequence]
        if offset + length > body.available:
            return self._held.append((route, operands))
        self.reads.append(offset)
        self._send(route, f"DATA {sequence} {offset}", body=body.content[offset:offset + length])


class PlayedBroker(Commands):
    """A program that connects to the socket `work`, and its broker, which the test plays: `job` gives it work, `receive` returns
    messages. `arguments` returns those of the program, without the runtime folder. `limits`: further fields of LIMITS."""

    def __init__(self, arguments, **limits):
        folder = temporary_folder()
        super().__init__(folder / "run", folder)
        self.runtime.mkdir(0o700)
        self.spool = folder / "spool"
        self.spool.mkdir(0o700)
        self._attempts = 0
        self._socket = None
        self._limits = limits
        self.listen()
        command, *others = arguments(self)
        self.program = self.start(command, "--runtime", self.runtime, *others)
        self.ready = self.welcome()

    def close(self):
        self._socket.close(0)
        if self.program.running:
            self.program.kill()
        self.await_no_survivors()

    def listen(self):
        """Starts a broker, in place of an earlier one."""
        if self._socket:
            self._socket.close(0)
        self.instance = secrets.token_hex(8)
        self._socket = zmq.Context.instance().socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.bind(f"ipc://{self.runtime}/work")

    def welcome(self):
        """Answers the READY of the program, and returns it."""
        ready = self.receive()
        if ready.verb != "READY":
            raise AssertionError(f"no READY but {ready}")
        self.send("LIMITS", broker=self.instance, inline_bytes=65_536, spool=self.spool, sandbox="yes", **self._limits)
        return ready

    def send(self, line, **fields):
        self._socket.send_multipart([self._route, head(line, fields)])

    def receive(self, timeout=60):
        """Returns the next message of the program."""
        if not self._socket.poll(timeout * 1_000):
            raise AssertionError(f"no message within {timeout} s\n{self.program.describe()}")
        self._route, *frames = self._socket.recv_multipart()
        return Message(frames)

    def expect(self, verb, timeout=60):
        """Returns the next message, which has this verb, but for PROGRESS and SANDBOX."""
        while (message := self.receive(timeout)).verb in {"PROGRESS", "SANDBOX"}:
            pass
        if message.verb != verb:
            raise AssertionError(f"{message} is no {verb}")
        return message

    def end(self, attempt, timeout=60):
        """Returns the DONE or FAILED of an attempt, with its body; skips its PROGRESS."""
        while (message := self.receive(timeout)).verb == "PROGRESS":
            pass
        if message.operands[0] != attempt:
            raise AssertionError(f"{message} is not about {attempt}")
        if "file" in message.fields:
            message.body = (self.spool / message.fields["file"]).read_bytes()
        return message

    def job(self, url, **fields):
        """Gives the program a job. Returns its attempt."""
        self._attempts += 1
        attempt = f"{self.instance}.{self._attempts}.1"
        self.send(f"JOB {attempt} {url}", **{"timeout": 60, "connect_timeout": 10, **fields})
        return attempt

    def files(self):
        return sorted(path.name for path in self.spool.iterdir())


class Puller(PlayedBroker):
    """`earshot puller` and its broker."""

    def __init__(self, name="shop"):
        super().__init__(lambda _: ["puller", "--cluster", self.new_file(name)])

    def new_file(self, name):
        self.file = ClusterFile(self, f"{ADDRESS}:{free_port()}", name)
        return self.file.path


def unreachable_address():
    """Returns an address at which no program listens."""
    return f"{ADDRESS}:{free_port()}"
