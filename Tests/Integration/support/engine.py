"""Engine of a cluster: redis-server alone, or three of them with three sentinels."""

import shutil
import signal
import socket

from .harness import temporary_folder
from .network import ADDRESS, free_port
from .processes import Program, eventually

PRIMARY = "shop"
"""Name under which the sentinels watch the primary."""
PORT, SENTINEL_PORT = 6379, 26379


class Server:
    """Running redis-server or redis-sentinel. `words`: its arguments. `prefix`: command that starts it."""

    def __init__(self, host, port, words, prefix=(), program="redis-server", password=None, user=None):
        self.host, self.port, self.password, self.user = host, port, password, user
        self._arguments = [*prefix, program, *words]
        self.start()

    def start(self):
        self.program = Program(self._arguments)

    @property
    def address(self):
        return f"{self.host}:{self.port}"

    def await_start(self):
        eventually(self._answers, lambda: f"{self.address} answers PING: {self.program.stdout[-2000:]}")
        return self

    def _answers(self):
        try:
            return self.execute("PING") == "PONG"
        except OSError:
            return False

    def execute(self, *words, timeout=60):
        """Returns the reply to a command: text, number, None or a list. Raises an AssertionError for an error."""
        with socket.create_connection((self.host, self.port), timeout) as connection, connection.makefile("rb") as replies:
            if self.password:
                connection.sendall(command("AUTH", *([self.user] if self.user else []), self.password))
                reply(replies)
            connection.sendall(command(*words))
            return reply(replies)

    def cpu_seconds(self):
        """Returns the processor time that the server has used."""
        return sum(float(value) for name, value in self.info("cpu").items() if name in ("used_cpu_sys", "used_cpu_user"))

    def info(self, section):
        return dict(line.split(":", 1) for line in self.execute("INFO", section).splitlines() if ":" in line)

    def stop(self):
        """Stops it with SIGSTOP, so that it hangs."""
        self.program.signal(signal.SIGSTOP)

    def resume(self):
        self.program.signal(signal.SIGCONT)

    def kill(self):
        if self.program.running:
            self.program.kill()

    def restart(self):
        self.kill()
        self.start()
        return self.await_start()


class Tables:
    """Tables of the cluster `shop` in an engine."""

    PREFIX = "{shop}:2:"

    def keys(self):
        """Returns the names of its tables without their prefix, sorted."""
        return sorted(key.removeprefix(self.PREFIX) for key in self.execute("KEYS", "{shop}*"))

    def flights(self):
        """Returns the number of flights. A table without any has an empty name, so that it exists."""
        return sum(name != "" for name in self.execute("HKEYS", f"{self.PREFIX}f"))

    def records(self):
        """Returns the texts of all flights, which contain requests."""
        flat = self.execute("HGETALL", f"{self.PREFIX}f")
        return [text for name, text in zip(flat[::2], flat[1::2]) if name]

    def flights_of(self, node):
        """Returns the number of flights that a node wants or runs."""
        return sum(name != "" for name in self.execute("SMEMBERS", f"{self.PREFIX}n:{node}"))

    def queues(self):
        """Returns the names of queues."""
        return [key for key in self.keys() if key.startswith("q:")]


class Engine(Tables):
    """One redis-server: `with Engine() as engine:`."""

    def __init__(self, host=ADDRESS, prefix=(), password=None, user=None):
        self._host, self._prefix = host, prefix
        self.password, self.user = password, user
        self.folder = temporary_folder()

    def __enter__(self):
        port = free_port() if self._host == ADDRESS else PORT
        self.server = redis(self._host, port, self.folder, self._prefix, self.password).await_start()
        return self

    def __exit__(self, *_):
        self.server.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def options(self):
        """Options of `earshot cluster new` for this engine."""
        return ["--server", self.server.address]

    @property
    def servers(self):
        return [self.server]

    def execute(self, *words):
        return self.server.execute(*words)


class SentinelEngine(Tables):
    """Three servers and three sentinels, a pair on each machine: `with SentinelEngine(machines) as engine:`. `down_after`: time after
    which a sentinel considers a server down, in milliseconds."""

    def __init__(self, machines, down_after=1_000):
        self._machines, self._down_after = machines, down_after
        self.folder = temporary_folder()
        self.servers, self.sentinels = [], []

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self):
        first = self._machines[0].address
        for machine in self._machines:
            words = [] if machine.address == first else ["--replicaof", first, PORT]
            folder = self.folder / machine.address
            folder.mkdir()
            self.servers.append(redis(machine.address, PORT, folder, machine.prefix, words=words))
        for server in self.servers:
            server.await_start()
        eventually(lambda: self._online(self.servers[0]) == len(self.servers) - 1, "the replicas are online", 30)
        for machine in self._machines:
            path = self.folder / machine.address / "sentinel.conf"
            path.write_text(
                f"port {SENTINEL_PORT}\nbind {machine.address}\nprotected-mode no\ndir {path.parent}\n"
                f"sentinel monitor {PRIMARY} {first} {PORT} 2\nsentinel down-after-milliseconds {PRIMARY} {self._down_after}\n"
                f"sentinel failover-timeout {PRIMARY} 5000\n")
            self.sentinels.append(Server(machine.address, SENTINEL_PORT, [path], machine.prefix, "redis-sentinel"))
        for sentinel in self.sentinels:
            sentinel.await_start()
        # A failover needs a sentinel that knows the others and the replicas.
        eventually(lambda: all(self._knows_all(sentinel) for sentinel in self.sentinels), "the sentinels know each other", 30)

    @staticmethod
    def _online(server):
        return sum("state=online" in value for value in server.info("replication").values())

    @staticmethod
    def _knows_all(sentinel):
        flat = sentinel.execute("SENTINEL", "master", PRIMARY)
        master = dict(zip(flat[::2], flat[1::2]))
        return master["num-other-sentinels"] == "2" and master["num-slaves"] == "2" and master["flags"] == "master"

    def __exit__(self, *_):
        for server in [*self.sentinels, *self.servers]:
            server.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def options(self):
        return [word for sentinel in self.sentinels for word in ("--sentinel", sentinel.address)] + ["--primary", PRIMARY]

    @property
    def primary(self):
        """The present primary, as its own role says."""
        def find():
            for server in self.servers:
                try:
                    if server.program.running and server.execute("ROLE", timeout=1)[0] == "master":
                        return server
                except OSError:
                    continue
            return None
        return eventually(find, "there is a primary", 30)

    def execute(self, *words):
        """Returns the reply of the present primary. One that was demoted meanwhile ends its connections."""
        def answer():
            try:
                return [self.primary.execute(*words)]
            except ConnectionResetError:
                return None
        return eventually(answer, "the primary answers", 30)[0]


def redis(host, port, folder, prefix=(), password=None, words=()):
    secret = ["--requirepass", password, "--masterauth", password] if password else []
    return Server(host, port, ["--port", str(port), "--bind", host, "--save", "", "--appendonly", "no", "--protected-mode", "no",
                               "--dir", str(folder), "--repl-diskless-sync-delay", "0", *words, *secret], prefix,
                  password=password)


def command(*words):
    """Returns a command in the form of Redis."""
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def reply(file):
    """Reads a reply."""
    line = file.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionResetError("the server closed the connection")
    kind, text = line[:1], line[1:-2]
    if kind == b"+":
        return text.decode()
    if kind == b":":
        return int(text)
    if kind == b"$":
        length = int(text)
        return None if length < 0 else file.read(length + 2)[:-2].decode(errors="replace")
    if kind == b"*":
        return [reply(file) for _ in range(int(text))]
    raise AssertionError(f"redis: {line!r}")
