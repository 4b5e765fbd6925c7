"""The command over tcp with CURVE: `--bus`, its keys, and bodies that are read over the connection."""

import hashlib
import json
import os
import pathlib
import shutil
import signal
import time
import unittest

import test_pull_command
from support.figures import report
from support.harness import Bus, Commands, TestCase, temporary_folder
from support.network import Forwarder, NetworkBus
from support.origin import Origin, body
from support.processes import children, eventually, reset_peak, resident, resident_peak
from support.relay import Keys
from support.script import ScriptedOrigin

IS_LONG = bool(os.environ.get("EARSHOT_LONG"))
MIB = 1 << 20
#: Bodies up to 64 KiB come in the message, larger ones by READ.
SIZES = [0, 10, 65_536, 65_537, 1_500_000]


def changed(options, name, value):
    """Options with another value of one."""
    index = options.index(name) + 1
    return [*options[:index], value, *options[index + 1:]]


class RemoteBodyTests(test_pull_command.PullCommandTests):
    """All promises of pulled bodies hold over a network."""

    def pulling_bus(self):
        bus = self.enterContext(NetworkBus(workers=1))
        bus.environment.update(bus.variables())
        return bus


class RemoteTestCase(TestCase):
    """The tests of a class share a bus."""

    @classmethod
    def setUpClass(cls):
        cls.bus = cls.enterClassContext(NetworkBus(workers=1))

    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.user = self.client_machine()

    def client_machine(self):
        """Returns the commands of a user without a bus of the machine."""
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder)
        user = Commands(folder / "run", folder)
        del user.environment["EARSHOT_RUNTIME"]
        user.environment["XDG_RUNTIME_DIR"] = user.environment["HOME"] = str(folder)
        return user

    def done(self, *arguments, status=0, **options):
        """Runs a command with the options of the bus. Returns its standard output."""
        program = self.user.run(*arguments, *self.bus.options(), **options)
        self.assertEqual(program.status, status, program.describe())
        return program.stdout.decode()


class RemoteCommandTests(RemoteTestCase):
    def test_every_command_of_clients_works(self):
        slow, url = f"{self.origin.url}/gate/slow", f"{self.origin.url}/bytes/300000"
        self.done("submit", "--handler", "far/a", "--id", "1", slow)
        self.assertIn("far/a", self.done("list", "far/"))
        self.assertEqual(json.loads(self.done("why", "far/a", "1", "--json"))["state"], "running")
        self.assertIn("pending 1", self.done("status"))
        self.assertEqual(json.loads(self.done("status", "--json"))["ready"], True)
        self.assertIn("pending=1", self.done("top", "--count", "1"))
        for words in (["config", "--running"], ["set"], ["set", "origin-limit", "5"]):
            self.done(*words, status=77)
        self.done("cancel", "far/a", "1")
        self.origin.await_aborts("/gate/slow")
        self.done("submit", "--handler", "far/b", slow)
        self.assertIn("removed 1 request", self.done("drop", "far/"))
        self.done("submit", "--durable", "--handler", "far/c", url, f"{self.origin.url}/status/500?c")
        self.done("wait", "far/c", status=2)
        self.assertIn("failed:http-status", self.done("list", "--state", "failed", "far/"))
        self.assertIn("repeated 1", self.done("retry", "far/c"))
        self.done("wait", "far/c", status=2)
        self.done("watch", "-d", "out", "--count", "2", "far/c", status=2)
        self.assertEqual((self.user.folder / "out/300000").read_bytes(), body(300_000))

    def test_get_writes_bodies_of_all_sizes(self):
        urls = [f"{self.origin.url}/bytes/{size}" for size in SIZES]
        self.done("get", "-d", "out", *urls)
        self.assertEqual([(self.user.folder / f"out/{size}").read_bytes() for size in SIZES], [body(size) for size in SIZES])

    def test_get_reads_a_list_runs_programs_and_keeps_failures(self):
        missing = f"{self.origin.url}/status/404"
        urls = "".join(f"{self.origin.url}/bytes/{size}\n" for size in SIZES) + missing + "\n"
        self.done("get", "-i", "-", "-d", "out", "--failed", "failed", "--exec", "cp {} .", input=urls.encode(), status=2)
        self.assertEqual([(self.user.folder / str(size)).read_bytes() for size in SIZES], [body(size) for size in SIZES])
        self.assertIn(missing, (self.user.folder / "failed").read_text())

    def test_a_body_is_streamed_to_standard_output(self):
        self.origin.publish("f", 2_000_000, plan=lambda number, start: {"held": 1_000_000})
        get = self.user.start("get", "-o", "-", *self.bus.options(), f"{self.origin.url}/parts/f")
        eventually(lambda: len(get.stdout) == 1_000_000, "the first half was written")
        self.origin.open_gate("f")
        self.assertEqual(get.wait(), 0, get.describe())
        self.assertEqual(get.stdout, body(2_000_000))

    def test_bodies_of_a_submission_are_written_in_the_background(self):
        urls = [f"{self.origin.url}/bytes/{size}" for size in SIZES]
        # Relative paths of keys: the process in the background has them too.
        shutil.copy(self.bus.key_file, self.user.folder / "me.key")
        shutil.copy(self.bus.server_file, self.user.folder / "bus.pub")
        self.user.environment.update(EARSHOT_BUS_KEY="me.key", EARSHOT_SERVER_KEY="bus.pub")
        submitted = self.user.run("submit", "-d", "out", "--bus", self.bus.endpoint, *urls)
        self.assertEqual(submitted.status, 0, submitted.describe())
        files = [self.user.folder / f"out/{size}" for size in SIZES]
        eventually(lambda: all(path.exists() for path in files), "all bodies are there")
        self.assertEqual([path.read_bytes() for path in files], [body(size) for size in SIZES])
        self.user.await_no_survivors()

    def test_an_interrupt_removes_the_requests(self):
        get = self.user.start("get", *self.bus.options(), f"{self.origin.url}/gate/slow")
        self.origin.await_running(1)
        get.signal(signal.SIGINT)
        self.assertEqual(get.wait(), 130, get.describe())
        self.origin.await_aborts("/gate/slow")

    def test_completions_ask_the_bus(self):
        client = self.bus.remote()
        client.fetch("far/away", 1, f"{self.origin.url}/gate/slow")
        self.origin.await_running(1)
        words = ["drop", *map(str, self.bus.options()), ""]
        words = ["---completion", "drop", "--", "positional@0", str(len(words)), "0", "earshot", *words]
        # A completion waits only 400 ms for the bus.
        eventually(lambda: b"far/away" in self.user.run(*words).stdout, "the handler is offered")
        client.remove("far/away")


class RemoteSourceTests(RemoteTestCase):
    """Options, variables and the configuration file select the bus."""

    def setUp(self):
        super().setUp()
        self.observer = self.bus.client()

    def submitted(self):
        return self.observer.query("ledger")["requests"]["submitted"]

    def assertUsesBus(self, *arguments):
        before = self.submitted()
        got = self.user.run("get", "-o", "-", *arguments, f"{self.origin.url}/bytes/70000")
        self.assertEqual((got.status, got.stdout == body(70_000)), (0, True), got.describe())
        self.assertEqual(self.submitted(), before + 1, "the bus on the network fetched it")

    def assertRefused(self, status, *parts, arguments=("status",)):
        got = self.user.run(*arguments)
        self.assertEqual(got.status, status, got.describe())
        for part in parts:
            self.assertIn(part, got.stderr)

    def configure(self, **values):
        """Writes the configuration file of the user. Returns its folder."""
        folder = self.user.folder / "config/earshot"
        folder.mkdir(parents=True, exist_ok=True)
        lines = [f"{name.replace('_', '-')} = {json.dumps(value)}\n" for name, value in values.items()]
        (folder / "config.toml").write_text("".join(lines))
        return folder

    def test_options_variables_and_files_select_the_bus(self):
        self.assertUsesBus(*self.bus.options())
        self.assertUsesBus("--bus", self.bus.endpoint, "--bus-key", self.bus.key_file, "--server-key", self.bus.server_key.decode())
        self.user.environment.update(self.bus.variables())
        self.assertUsesBus()
        for name in self.bus.variables():
            del self.user.environment[name]
        folder = self.configure(slots=3, bus=[self.bus.endpoint], bus_key="me.key", server_key="bus.pub")
        shutil.copy(self.bus.key_file, folder / "me.key")
        shutil.copy(self.bus.server_file, folder / "bus.pub")
        self.assertUsesBus()
        shown = self.user.run("config").stdout.decode()
        for part in ("bus ", self.bus.endpoint, "bus-key", "me.key", "server-key", str(folder / "config.toml")):
            self.assertIn(part, shown)
        # A running bus of the machine, named by its folder, comes first.
        self.user.environment["EARSHOT_RUNTIME"] = str(self.user.folder / "none")
        self.assertRefused(69, "no broker runs in")
        self.user.environment["EARSHOT_BUS"] = self.bus.endpoint
        self.assertUsesBus()
        self.assertRefused(69, "no broker runs in", arguments=("status", "--runtime", self.user.folder / "none"))

    def test_the_second_bus_serves_while_the_first_cannot_be_reached(self):
        _, _, _, key, _, server = self.bus.options()
        first = "tcp://127.0.0.1:1"
        for buses in (["--bus", f"{first},{self.bus.endpoint}"], ["--bus", first, "--bus", self.bus.endpoint]):
            self.assertUsesBus(*buses, "--bus-key", key, "--server-key", server)

    def test_mistakes_are_told_with_a_next_step(self):
        keys = Keys(self.bus.folder / "others")
        good = self.bus.options()
        self.assertRefused(78, "needs the key of this client", "earshot key new", arguments=("status", *good[:2]))
        self.assertRefused(78, "server keys", "earshot key show", arguments=("status", *good[:4]))
        open_key = keys.new("open")
        open_key.chmod(0o644)
        self.assertRefused(78, "chmod 600", str(open_key), arguments=("status", *good, "--bus-key", open_key))
        self.assertRefused(78, "No such file", arguments=("status", *good, "--bus-key", "/none"))
        self.assertRefused(78, "neither a key", arguments=("status", *changed(good, "--server-key", "short")))
        for address in ("tcp://127.0.0.1", "127.0.0.1:5765", "tcp://127.0.0.1:0", "ipc:///run/earshot/bus", "tcp://a$b:5765"):
            self.assertRefused(64, "use tcp://HOST:PORT", arguments=("status", *changed(good, "--bus", address)))
        self.assertRefused(64, "exclude each other", arguments=("status", *good, "--runtime", "/run"))
        self.assertRefused(64, "the value is empty", arguments=("status", "--bus", ""))
        self.assertRefused(69, "has not authorized the key", arguments=("get", *good, "--bus-key", keys.new("other"), "a:b"))
        self.assertRefused(69, "has another server key",
                           arguments=("get", *changed(good, "--server-key", keys.server_public), "a:b"))
        with Keyless() as port:
            # It depends on the first end to notice.
            self.assertRefused(69, f"tcp://127.0.0.1:{port} ",
                               arguments=("get", *changed(good, "--bus", f"tcp://127.0.0.1:{port}"), "a:b"))
        self.configure(bus=[self.bus.endpoint, 3])
        self.assertRefused(78, "config.toml: bus must be a string or a list of strings")

    def test_a_web_server_is_said_to_be_no_bus(self):
        """As nginx, it answers the first bytes, which are no request."""
        def serve(connection):
            if connection.stream.recv(65_536):
                connection.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

        with ScriptedOrigin(serve) as server:
            endpoint = server.url.replace("http", "tcp")
            arguments = ["get", *changed(self.bus.options(), "--bus", endpoint), f"{self.origin.url}/bytes/1"]
            self.assertRefused(69, f"the handshake with {endpoint} failed: it is no bus, or has another server key", arguments=arguments)

    def test_an_unreachable_bus_is_told_and_no_private_one_is_started(self):
        get = self.user.start("get", *changed(self.bus.options(), "--bus", "tcp://127.0.0.1:1"), f"{self.origin.url}/bytes/1")
        get.await_line("waiting for the broker at tcp://127.0.0.1:1, at most")
        get.await_line("no bus answers at tcp://127.0.0.1:1; check address and network")
        self.assertEqual(children(get.pid), [])
        get.signal(signal.SIGINT)
        self.assertEqual(get.wait(), 130, get.describe())
        self.assertEqual(self.origin.total, 0)

    def test_commands_for_the_machine_of_the_bus_say_so(self):
        self.user.environment.update(self.bus.variables())
        for arguments in (["stop"], ["drain"], ["cache", "list"], ["cache", "clear"]):
            self.assertRefused(64, "works on the machine of its bus only", "--runtime", arguments=arguments)
            at = 2 if arguments[0] == "cache" else 1
            self.assertRefused(64, "works on the machine of its bus only",
                               arguments=[*arguments[:at], "--bus", "tcp://a:1", *arguments[at:]])
        self.assertRefused(69, "no broker runs", arguments=("stop", "--runtime", self.user.folder / "none"))
        self.assertUsesBus()

    def test_a_program_that_serves_a_scheme_uses_its_own_bus(self):
        self.user.environment.update(self.bus.variables())
        work = self.user.start("work", "--runtime", self.bus.runtime, "--scheme", "x", "--",
                               "sh", "-c", 'echo "[$EARSHOT_BUS] $EARSHOT_RUNTIME"')
        work.await_line("serving x:")
        got = self.user.run("get", "x:y")
        self.assertEqual((got.status, got.stdout.decode()), (0, f"[] {self.bus.runtime}\n"), got.describe())
        work.signal(signal.SIGTERM)
        self.assertEqual(work.wait(), 0, work.describe())

    def test_libzmq_is_loaded_only_for_a_network_and_its_absence_is_told(self):
        url = f"{self.origin.url}/bytes/1"
        self.user.environment["LD_DEBUG"] = "files"
        loaded = self.user.run("get", *self.bus.options(), "-o", "out", url)
        self.assertIn("libzmq", loaded.stderr, "the linker reports libraries")
        with Bus(workers=1) as own:
            got = self.user.run("get", "--runtime", own.runtime, "-o", "out", url)
            self.assertEqual((got.status, "libzmq" in got.stderr), (0, False))
        alone = self.user.run("get", "-o", "out", url)
        self.assertEqual((alone.status, "libzmq" in alone.stderr), (0, False), "a private bus needs none")
        del self.user.environment["LD_DEBUG"]
        (self.user.folder / "libzmq.so.5").write_bytes(b"no library")
        self.user.environment["LD_LIBRARY_PATH"] = str(self.user.folder)
        self.assertRefused(73, "cannot load libzmq", "install the package libzmq5", arguments=("status", *self.bus.options()))


class RemoteSizeTests(RemoteTestCase):
    """Large bodies pass the gateway at the speed of the line, within its bounds of memory."""

    #: Bound of one client's unsent bytes in the gateway, twice because libzmq encrypts into a copy, and room for the allocator.
    MOST_GROWTH = 8 * MIB

    def test_a_large_body_arrives_whole_and_the_gateway_stays_small(self):
        size = 1024 * MIB if IS_LONG else 32 * MIB
        self.done("get", "-o", "first", f"{self.origin.url}/bytes/1000000")
        gateway = self.bus.gateway
        before = resident(gateway)
        reset_peak(gateway)
        began = time.monotonic()
        self.done("get", "-o", "out", f"{self.origin.url}/bytes/{size}", timeout=300)
        spent = time.monotonic() - began
        grown = resident_peak(gateway) - before
        report(f"{size // MIB} MiB: {spent:.2f} s, gateway grew by {grown / MIB:.1f} MiB")
        self.assertEqual((self.user.folder / "out").stat().st_size, size)
        with open(self.user.folder / "out", "rb") as file:
            self.assertEqual(hashlib.file_digest(file, "sha256").hexdigest(), hashlib.sha256(body(size)).hexdigest())
        self.assertLess(grown, self.MOST_GROWTH)

    def test_commands_at_once_share_the_gateway(self):
        count, size = 4, 8 * MIB
        urls = [f"{self.origin.url}/bytes/{size}?{number}" for number in range(count)]
        running = [self.user.start("get", "-o", f"out-{number}", *self.bus.options(), url) for number, url in enumerate(urls)]
        for number, get in enumerate(running):
            self.assertEqual(get.wait(120), 0, get.describe())
            with open(self.user.folder / f"out-{number}", "rb") as file:
                self.assertEqual(hashlib.file_digest(file, "sha256").hexdigest(), hashlib.sha256(body(size)).hexdigest())
        self.assertEqual(self.origin.total, count)

    def test_bodies_of_any_number_of_parts_come_without_a_pause(self):
        # A lost wake-up would cost seconds for each.
        sizes = [count * 262_144 + rest for count in range(1, 9) for rest in (0, 1)]
        self.done("get", "-d", "out", *(f"{self.origin.url}/bytes/{size}" for size in sizes))
        for size in sizes:
            self.assertEqual((self.user.folder / f"out/{size}").read_bytes(), body(size))


class BodyConnectionTests(RemoteTestCase):
    """Further connections that read large bodies."""

    SIZE = 32 * MIB

    def assertFetches(self, forwarder, size=SIZE):
        before = self.origin.total
        url = f"{self.origin.url}/bytes/{size}?{forwarder.endpoint}"
        program = self.user.run("get", "-o", "out", *forwarder.options(), url, timeout=60)
        self.assertEqual(program.status, 0, program.describe())
        self.assertTrue((self.user.folder / "out").read_bytes() == body(size))
        self.assertEqual(self.origin.total, before + 1, "the URL was fetched twice")

    def test_a_large_body_opens_three_more_and_a_small_one_none(self):
        with Forwarder(self.bus) as forwarder:
            self.assertFetches(forwarder)
            self.assertEqual(forwarder.connections, 4)
        with Forwarder(self.bus) as forwarder:
            self.assertFetches(forwarder, 2 * MIB)
            self.assertEqual(forwarder.connections, 1)

    def test_others_carry_the_parts_of_a_lost_one(self):
        for cuts in ({3: 2 * MIB}, {2: 1000, 3: 3 * MIB, 4: MIB}):
            with self.subTest(cuts=cuts), Forwarder(self.bus, cuts) as forwarder:
                self.assertFetches(forwarder)
                self.assertEqual(forwarder.connections, 4, "a lost one is not replaced")

    def test_the_loss_of_the_session_connection_ends_them_and_the_body_goes_on(self):
        with Forwarder(self.bus, {1: 3 * MIB}) as forwarder:
            self.assertFetches(forwarder)
            self.assertGreaterEqual(forwarder.connections, 5)

    @unittest.skipUnless(IS_LONG, "waits for ten seconds")
    def test_they_are_closed_after_ten_seconds_without_bodies(self):
        with Forwarder(self.bus) as forwarder:
            get = self.user.start("get", "-i", "-", "-d", "out", *forwarder.options())
            for number in (1, 2):
                get.write(f"{self.origin.url}/bytes/{self.SIZE}?{number}\n".encode(), ends=False)
                eventually(lambda: forwarder.connections == 1 + 3 * number, "three more connections")
                eventually(lambda: forwarder.live == 1, "they are closed")
            get.write(b"")
            self.assertEqual(get.wait(), 0, get.describe())

    def test_a_key_that_permits_no_more_connections_reads_over_one(self):
        self.bus.new_key("narrow", "--connections", "1")
        self.bus.reload(2)
        self.addCleanup(setattr, self.bus, "key_file", self.bus.key_file)
        self.bus.key_file = self.bus.folder / "narrow.key"
        with Forwarder(self.bus) as forwarder:
            self.assertFetches(forwarder)


class RemoteFaultTests(RemoteTestCase):
    def test_killed_gateways_lose_and_double_nothing(self):
        urls = [f"{self.origin.url}/bytes/70000?{number}" for number in range(200)]
        get = self.user.start("get", "-i", "-", "--json", *self.bus.options())
        get.write("\n".join(urls).encode())
        for done in (40, 110):
            eventually(lambda: len(get.stdout.splitlines()) >= done, f"{done} results")
            self.bus.kill_gateway()
        self.assertEqual(get.wait(60), 0, get.describe())
        lines = [json.loads(line) for line in get.stdout.splitlines()]
        self.assertEqual(sorted(line["index"] for line in lines), list(range(1, 201)))
        digest = {line["sha256"] for line in lines}
        self.assertEqual(digest, {hashlib.sha256(body(70_000)).hexdigest()})
        self.assertEqual(self.origin.total, 200, "no URL was fetched twice")

    def test_reading_goes_on_at_its_offset(self):
        size = 8 << 20
        for turn in range(10):
            get = self.user.start("get", "-o", "out", *self.bus.options(), f"{self.origin.url}/bytes/{size}?{turn}")
            eventually(lambda: received(get, self.user.folder) > size // 4 or not get.running, "a part was read")
            # Nothing is left to read if this process was not scheduled meanwhile.
            if (before := received(get, self.user.folder)) > 0:
                break
        self.bus.kill_gateway()
        self.assertEqual(get.wait(60), 0, get.describe())
        self.assertGreater(before, 0)
        self.assertEqual((self.user.folder / "out").read_bytes(), body(size))
        self.assertEqual(self.origin.total, turn + 1)

    def test_the_end_of_a_killed_command_comes_with_its_lease(self):
        get = self.user.start("get", *self.bus.options(), f"{self.origin.url}/gate/slow")
        self.origin.await_running(1)
        get.kill()
        client = self.bus.client()
        sessions = client.query("ledger")["requests"]
        self.assertEqual(sessions["pending"], 1, "the broker keeps it for a minute")


def received(program, folder):
    """Bytes in the unnamed files that a program has open in a folder."""
    total = 0
    for entry in pathlib.Path(f"/proc/{program.pid}/fd").iterdir():
        try:
            if os.readlink(entry).startswith(f"{folder}/#"):
                total += entry.stat().st_size
        except OSError:
            pass  # It was closed meanwhile.
    return total


class Keyless:
    """ZeroMQ socket without encryption."""

    def __enter__(self):
        import zmq
        self._socket = zmq.Context.instance().socket(zmq.ROUTER)
        return self._socket.bind_to_random_port("tcp://127.0.0.1")

    def __exit__(self, *_):
        self._socket.close(0)
