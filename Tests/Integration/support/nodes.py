"""Several buses that form a cluster: `with Cluster(engine, nodes=3) as cluster:`."""

import collections
import contextlib
import os
import shutil
import signal

from .harness import Bus, Commands, TestCase, temporary_folder
from .network import ADDRESS, NetworkBus, free_port
from .processes import Program, children, command, eventually, kill, marked, watch_all
from .relay import Keys

IS_LONG = bool(os.environ.get("EARSHOT_LONG"))
JOINED = "joined the cluster"
PORT = 5766


class SharedFile:
    """File of a cluster, which each node gets with its own address. `options`: those of `earshot cluster new` for the engine."""

    def __init__(self, options, name="shop", input=None):
        self.folder = temporary_folder()
        path = self.folder / "cluster.toml"
        done = Commands(self.folder / "run", self.folder).run(
            "cluster", "new", name, "--node", "127.0.0.1:1", *options, "--output", path, input=input)
        if done.status:
            raise AssertionError(f"no file of a cluster\n{done.describe()}")
        self.text = path.read_text()

    def write(self, path, node, /, **changes):
        """Writes the file of the node at an address. `changes`: other values by key, such as `secret="…"`. A key without a line gets one."""
        known = {line.partition(" = ")[0].replace("-", "_") for line in self.text.splitlines()}
        lines = [f'{key} = "{value}"' for key, value in changes.items() if key not in known]
        for line in self.text.splitlines():
            key = line.partition(" = ")[0].replace("-", "_")
            value = {"node": node, **changes}.get(key)
            lines.append(line if value is None else f'{key.replace("_", "-")} = "{value}"')
        path.write_text("\n".join(lines) + "\n")
        path.chmod(0o600)
        return path

    def value(self, key):
        """Returns the value of a key."""
        return next(line.split('"')[1] for line in self.text.splitlines() if line.startswith(f"{key} = "))

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)


class Node(Bus):
    """Bus of a cluster. `machine`: its network namespace; none for loopback."""

    def __init__(self, file, machine=None, changes=None, arguments=(), cache=False, **options):
        self.machine = machine
        self.address = f"{machine.address}:{PORT}" if machine else f"{ADDRESS}:{free_port()}"
        folder = options.pop("folder", None)
        self._is_kept = folder is not None
        self._former = []
        folder = folder or temporary_folder()
        self.file = file.write(folder / "cluster.toml", self.address, **changes or {})
        arguments = [*arguments, "--cluster", self.file, *([] if cache else ["--no-cache"])]
        super().__init__(folder=folder, arguments=arguments, prefix=machine.prefix if machine else (), **options)

    def __exit__(self, *details):
        try:
            super().__exit__(*details)
        finally:
            if not self._is_kept:
                shutil.rmtree(self.folder, ignore_errors=True)

    def await_member(self, timeout=60):
        """Waits until it has joined the cluster."""
        self.program.await_line(JOINED, timeout=timeout)
        return self

    def is_dead(self):
        return not self.program.running

    def observer(self):
        """Returns a client for the node's state, the same one at each call."""
        if not hasattr(self, "_observer") or self._observer.socket.closed:
            self._observer = self.client()
        return self._observer

    def cluster(self):
        """Returns the member `cluster` of the node's status."""
        return self.observer().query("status")["cluster"]

    def await_mode(self, *modes):
        """Waits until the node is a `member`, is `waiting` for the engine, or works `alone`, as one of the modes says."""
        eventually(lambda: self.cluster()["mode"] in modes, lambda: f"mode {' or '.join(modes)}: {self.cluster()}")

    def await_members(self, count, timeout=60):
        eventually(lambda: self.cluster().get("members-count") == count and self.cluster()["mode"] == "member",
                   lambda: f"{count} members: {self.cluster()}", timeout)

    def await_pending(self, count, timeout=60):
        """Waits until it has that many open requests."""
        last = {}

        def reached():
            last.update(self.observer().query("ledger")["requests"])
            return last["pending"] == count
        eventually(reached, lambda: f"{count} pending requests: {last}", timeout)

    def pids_of(self, role):
        """Process IDs of a role, such as `broker`, `puller` or `node-gateway`."""
        wanted, is_of_cluster = ("gateway", True) if role == "node-gateway" else (role, role == "puller")
        return [pid for pid in marked(self.mark) if (words := command(pid))[1:2] == [wanted]
                and (role == "broker" or ("--cluster" in words) == is_of_cluster)]

    def pid_of(self, role):
        return eventually(lambda: self.pids_of(role), f"it has a {role}")[0]

    def kill_role(self, role):
        """Kills its process of a role, which the supervisor starts again."""
        kill(self.pid_of(role))

    def kill_all(self):
        """Kills all processes of the test at this node at once with SIGKILL, as a loss of power does."""
        self._kill(marked(self.mark))

    def kill_bus(self):
        """Kills the supervisor and all its processes at once with SIGKILL; the test's programs continue."""
        self._kill([self.supervisor, *children(self.supervisor)])

    def start_again(self):
        """Starts the bus again after its end, and waits until it is ready."""
        self._former.extend(self.program.crash_lines)
        self.program = Program(self.program.arguments, self.environment, self.folder)
        self.program.await_line("ready, bus ")

    def crashes(self):
        """Lines of crashes since the first start."""
        return [*self._former, *self.program.crash_lines]

    def renew_observer(self):
        """Makes `observer` connect again, for example to another broker."""
        if hasattr(self, "_observer"):
            self._observer.socket.close(0)

    def _kill(self, pids):
        watched = watch_all(pids)
        try:
            for process in watched:
                with contextlib.suppress(ProcessLookupError):
                    process.signal(signal.SIGKILL)
            for process in watched:
                if not process.await_death():
                    raise AssertionError(f"{process.pid} lives after kill -9")
        finally:
            for process in watched:
                process.close()
        self.program.wait()
        for client in self._clients:
            client.socket.close(0)
        self._clients.clear()

    def _stop(self):
        if self.program.running:
            super()._stop()


class ClientNode(NetworkBus, Node):
    """Node with a gateway for clients. `admitted`: their `Keys`."""

    def __init__(self, admitted, **options):
        super().__init__(**options)
        added = self.run("key", "add", "client", Keys.public(admitted.client_file), "--connections", "4096")
        if added.status:
            raise AssertionError(f"the key was not added\n{added.describe()}")


class Cluster:
    """Running nodes. `machines`: their network namespaces; none for loopback. `members`: that number in the file. `each`: options of one
    node by its index, from 0."""

    def __init__(self, engine, nodes=3, machines=None, each=None, is_joined=True, members=None, **options):
        self.engine = engine
        secret = (engine.password + "\n").encode() if getattr(engine, "password", None) else None
        login = ["--password-file", "-"] if secret else []
        number = ["--members", str(members)] if members else []
        self.file = SharedFile([*engine.options, *login, *number], input=secret)
        self._machines = machines or [None] * nodes
        self._options, self._each, self._is_joined = options, each or {}, is_joined
        self._stack = contextlib.ExitStack()
        self.nodes = []

    def __enter__(self):
        try:
            for index, machine in enumerate(self._machines):
                self.nodes.append(self._stack.enter_context(self.node(machine, **self._each.get(index, {}))))
            if self._is_joined:
                for node in self.nodes:
                    node.await_member()
                # A node learns the number of members with its next heartbeat.
                for node in self.nodes:
                    node.await_members(len(self.nodes))
        except BaseException as error:
            self._leave(error)
            raise
        return self

    def node(self, machine=None, **options):
        """Returns another node, which is not started."""
        options = {**self._options, **options}
        return options.pop("kind", Node)(file=self.file, machine=machine, **options)

    def add(self, *arguments, **options):
        """Starts another node."""
        self.nodes.append(self._stack.enter_context(self.node(*arguments, **options)))
        return self.nodes[-1]

    def __exit__(self, kind, error, trace):
        self._leave(error)

    def _leave(self, error):
        try:
            self._stack.__exit__(type(error) if error else None, error, None)
        finally:
            self.file.remove()

    def __iter__(self):
        return iter(self.nodes)

    def __getitem__(self, index):
        return self.nodes[index]

    def client_options(self, keys):
        """Options of a command that uses these nodes of the kind `ClientNode`, the first one first."""
        return ["--bus", ",".join(node.endpoint for node in self.nodes), "--bus-key", keys.client_file,
                "--server-key", ",".join(node.server_key.decode() for node in self.nodes)]

    def counts(self):
        """Returns the sums of the nodes' counts."""
        total = {}
        for node in self.nodes:
            if not node.is_dead():
                for name, value in node.cluster()["counts"].items():
                    total[name] = total.get(name, 0) + value
        return total


class ClusterTestCase(TestCase):
    """Common parts of the tests of several nodes."""

    def submit(self, node, urls, handler="h", **options):
        """Requests URLs on a node. Returns the client, with request numbers from 0."""
        client = node.client(window=4096, **options)
        for number, url in enumerate(urls):
            client.fetch(handler, number, url)
        return client

    def assertAll(self, client, count, content, timeout=60):
        """Receives exactly one result with this content for each request."""
        found = collections.Counter()
        for message in client.terminals(count, timeout):
            self.assertResult(message, content)
            found[message.operands[1]] += 1
        self.assertEqual(found, {str(number): 1 for number in range(count)})
        self.assertEqual(client.rest(), [])
        self.balance(client)
