"""A URL is fetched over the bus: one, thousands, and a large one. With EARSHOT_LONG=1 ten thousand, and one of a gigabyte."""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import signal

from support.harness import Bus, Commands, TestCase, binary, temporary_folder
from support.nginx import Nginx
from support.origin import Origin, body
from support.processes import Program, children, command, eventually, kill, process_name, reset_peak, resident, resident_peak

IS_LONG = bool(os.environ.get("EARSHOT_LONG"))
MIB = 1 << 20
LARGE = (1024 if IS_LONG else 128) * MIB


class FetchTests(TestCase):
    """Small bodies, on one bus."""

    @classmethod
    def setUpClass(cls):
        cls.origin = cls.enterClassContext(Origin())
        cls.bus = cls.enterClassContext(Bus())

    def test_get_writes_the_body_to_standard_output_and_nothing_else(self):
        for size in (0, 1, 1024, 65_536, 65_537, 3_000_000):
            got = self.bus.run("get", f"{self.origin.url}/bytes/{size}?seed=out")
            self.assertEqual(got.status, 0, got.describe())
            self.assertTrue(got.stdout == body(size, "out"), f"{size} bytes: others came")
            self.assertEqual(got.messages, [], "nothing is shown in a pipe")

    def test_get_writes_several_into_a_folder_with_safe_names(self):
        out = self.bus.folder / "several"
        urls = [f"{self.origin.url}/bytes/{size}" for size in (10, 20)]
        got = self.bus.run("get", "-d", out, *urls, f"{self.origin.url}/bytes/30/..%2f..%2fescaped",
                           f"{self.origin.url}/redirect/0")
        self.assertEqual(got.status, 2, "one of them is answered 400")
        self.assertEqual((out / "10").read_bytes(), body(10))
        self.assertEqual((out / "20").read_bytes(), body(20))
        self.assertEqual(sorted(p.name for p in self.bus.folder.glob("*escaped*")), [])
        self.assertEqual(sum(1 for p in out.rglob("*") if p.is_file()), 3)

    def test_files_of_an_earlier_run_are_replaced_with_a_word(self):
        out = self.bus.folder / "replaced"
        urls = [f"{self.origin.url}/bytes/{size}?seed=again" for size in (10, 100_000)]
        self.assertNotIn("replaced", self.bus.run("get", "-d", out, *urls).stderr)
        for path in out.iterdir():
            path.write_bytes(b"before")
        got = self.bus.run("get", "-d", out, *urls)
        self.assertRegex("\n".join(got.messages), r"^earshot: 2 files, .*, 2 replaced$")
        self.assertEqual((out / "10").read_bytes(), body(10, "again"))
        self.assertTrue((out / "100000").read_bytes() == body(100_000, "again"))

    def test_nothing_is_left_of_a_get_that_is_killed_while_it_writes(self):
        out = self.bus.folder / "killed"
        out.mkdir()
        # New files get the group of the folder, so the body is written and not moved into it.
        out.chmod(0o2755)
        get = self.bus.start("get", "-o", out / "body", f"{self.origin.url}/steps/killed?bytes=400000")
        eventually(lambda: any(path.startswith(str(out)) for path in self.written(get.pid)), "it writes the file")
        get.kill()
        self.assertEqual(list(out.iterdir()), [])

    def written(self, pid):
        """Returns the targets of a process's descriptors."""
        found = []
        for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            try:
                found.append(os.readlink(entry))
            except OSError:
                continue  # It was closed meanwhile.
        return found

    def test_a_list_may_begin_with_a_byte_order_mark(self):
        (self.bus.folder / "list").write_bytes(b"\xef\xbb\xbf" + f"{self.origin.url}/bytes/8\r\n".encode())
        for source in ("list", "-"):
            got = self.bus.run("get", "-i", source, input=(self.bus.folder / "list").read_bytes())
            self.assertEqual((got.status, got.stdout), (0, body(8)), got.describe())

    def test_a_list_is_fetched_while_it_comes(self):
        """Each line once it is complete; the order of lines is reported, and a long list waits in its pipe."""
        with self.open_list("-d", "open", "--json") as (get, write):
            write(f"\ufeff{self.origin.url}/bytes/1?open\n{self.origin.url}/bytes/2?open\n{self.origin.url}/by")
            eventually(lambda: sorted(p.name for p in self.bus.folder.glob("open/*")) == ["1", "2"], "two came")
            write("tes/3?open")
        self.assertEqual(get.wait(), 0, get.describe())
        reports = [json.loads(line) for line in get.stdout.splitlines()]
        self.assertEqual({line["index"]: line["path"] for line in reports}, {1: "open/1", 2: "open/2", 3: "open/3"})

    def test_a_list_that_ends_without_a_url_is_66_and_a_failure_counts(self):
        for lines, status in (("\n#\n", 66), (f"{self.origin.url}/status/404\n", 22), ("http://a b/\n", 3)):
            got = self.bus.run("get", "--json", "-i", "-", input=lines.encode())
            self.assertEqual(got.status, status, got.describe())
        got = self.bus.run("get", "-i", "-", "-o", "one", input=f"{self.origin.url}/bytes/9\n".encode())
        self.assertEqual((got.status, (self.bus.folder / "one").read_bytes()), (0, body(9)))

    @contextlib.contextmanager
    def open_list(self, *arguments):
        """Returns `get -i -` with its list open, and the writer of the list; finally ends the list."""
        reader, writer = os.pipe()
        with open(reader, "rb") as source:
            get = Program([binary(), "get", "-i", "-", *arguments], self.bus.environment, self.bus.folder, stdin=source)
        with open(writer, "wb", buffering=0) as sink:
            yield get, lambda text: sink.write(text.encode())

    def test_two_runs_share_a_handler(self):
        first = self.bus.start("get", "--handler", "shared", f"{self.origin.url}/gate/shared")
        self.origin.await_count("/gate/shared", 1)
        second = self.bus.run("get", "--handler", "shared", f"{self.origin.url}/bytes/21")
        self.assertEqual((second.status, second.stdout), (0, body(21)), second.describe())
        self.origin.open_gate("shared")
        self.assertEqual((first.wait(), first.stdout), (0, body(100)), first.describe())


class ManyFilesTests(TestCase):
    COUNT = 10_000 if IS_LONG else 1_000

    def test_many_files_come_right_none_lost_and_none_twice(self):
        with Bus(workers=2, slots=64, origin_limit=64) as bus:
            root, out = bus.folder / "files", bus.folder / "out"
            root.mkdir()
            wanted = {}
            for index in range(self.COUNT):
                content = body(1024, index)
                (root / f"f{index}").write_bytes(content)
                wanted[f"f{index}"] = hashlib.sha256(content).digest()
            with Nginx(bus.folder / "nginx", root) as nginx:
                (bus.folder / "list").write_text("".join(f"{nginx.url}/{name}\n" for name in wanted))
                got = bus.run("get", "-i", bus.folder / "list", "-d", out, "--json", timeout=120)
            requests = nginx.requests()
            self.assertEqual(got.status, 0, got.describe())
            found = {p.name: hashlib.sha256(p.read_bytes()).digest() for p in out.iterdir()}
            self.assertEqual(len(found), self.COUNT)
            self.assertTrue(found == wanted, "checksums differ")
            self.assertEqual(len(got.stdout.splitlines()), self.COUNT, "one line of JSON for each")
            self.assertEqual(requests, {f"/{name}": 1 for name in wanted}, "each was fetched once")
            with bus.client() as client:
                ledger = self.balance(client)
            self.assertEqual(ledger["requests"]["answered"], self.COUNT)
            self.assertEqual(ledger["deliveries"]["due"], self.COUNT)
            self.assertEqual(ledger["deliveries"]["lost"], 0)


class LargeFileTests(TestCase):
    def test_a_large_file_comes_right_in_little_memory(self):
        with Bus(workers=1) as bus:
            root = bus.folder / "files"
            root.mkdir()
            digest = self.make_file(root / "large")
            broker, worker = bus.broker, bus.workers[0]
            with Nginx(bus.folder / "nginx", root) as nginx:
                (root / "small").write_bytes(b"warm")
                self.assertEqual(bus.run("get", f"{nginx.url}/small").stdout, b"warm")
                before = {pid: resident(pid) for pid in (broker, worker)}
                for pid in before:
                    reset_peak(pid)
                target = bus.folder / "got"
                got = bus.run("get", "-o", target, f"{nginx.url}/large", timeout=120)
                grown = {pid: resident_peak(pid) - before[pid] for pid in before}
            self.assertEqual(got.status, 0, got.describe())
            self.assertEqual(target.stat().st_size, LARGE)
            self.assertEqual(self.digest(target), digest)
            self.assertLess(grown[broker], 32 * MIB, "the broker's growth")
            self.assertLess(grown[worker], 64 * MIB, "the worker's growth")

    def make_file(self, path):
        """Creates a sparse file in which each 16 MiB begin differently, so that order and position are checked."""
        with path.open("wb") as file:
            for offset in range(0, LARGE, 16 * MIB):
                file.seek(offset)
                file.write(body(4096, offset))
            file.truncate(LARGE)
        return self.digest(path)

    def digest(self, path):
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


class PrivateBrokerTests(TestCase):
    """`get` without a running bus."""

    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.folder = temporary_folder()
        self.commands = Commands(self.folder / "run", self.folder)
        self.commands.environment["XDG_RUNTIME_DIR"] = str(self.folder)

        self.addCleanup(shutil.rmtree, self.folder)

    def check_that_nothing_is_left(self):
        self.commands.await_no_survivors()
        kept = [self.commands.user_cache / name for name in ("cache", "parts")]
        self.assertEqual([p for p in self.folder.rglob("*") if not p.is_dir() and not any(map(p.is_relative_to, kept))], [],
                         "files left behind")
        self.assertEqual(self.private_folders(), [])

    def private_folders(self):
        """Returns the folders of the spools of private buses."""
        return list(self.commands.user_cache.glob("private-*"))

    def test_get_starts_a_broker_of_its_own_and_ends_it(self):
        for size in (1000, 200_000):
            got = self.commands.run("get", f"{self.origin.url}/bytes/{size}")
            self.assertEqual((got.status, got.messages), (0, []), got.describe())
            self.assertTrue(got.stdout == body(size))
            self.check_that_nothing_is_left()

    def test_its_spool_is_in_the_users_cache_and_ends_with_it(self):
        for arguments in ([], ["--no-cache"]):
            with self.subTest(arguments=arguments):
                before = self.origin.count("/hang")
                program = self.commands.start("get", *arguments, f"{self.origin.url}/hang")
                self.origin.await_count("/hang", before + 1)
                [folder] = self.private_folders()
                [runtime] = [path.parent for path in self.folder.glob("earshot-*/bus")]
                self.assertEqual(folder.name.removeprefix("private-"), runtime.name.removeprefix("earshot-"))
                self.assertTrue((folder / "spool" / "broker.lock").is_file())
                self.assertFalse((runtime / "spool").exists())
                program.signal(signal.SIGINT)
                self.assertEqual(program.wait(), 130, program.describe())
                self.check_that_nothing_is_left()

    def test_its_spool_is_in_its_runtime_folder_if_the_users_cache_is_unusable(self):
        (self.folder / "file").touch()
        for variables in ({"XDG_CACHE_HOME": str(self.folder / "file")}, {"XDG_CACHE_HOME": "", "HOME": ""}):
            with self.subTest(**variables):
                self.commands.environment.update(variables)
                before = self.origin.count("/hang")
                program = self.commands.start("get", "--no-cache", f"{self.origin.url}/hang")
                self.origin.await_count("/hang", before + 1)
                [lock] = self.folder.glob("earshot-*/spool/broker.lock")
                program.signal(signal.SIGINT)
                self.assertEqual(program.wait(), 130, program.describe())
                self.commands.await_no_survivors()
                self.assertFalse(lock.parents[1].exists())

    def test_its_processes_die_with_a_killed_get(self):
        program = self.commands.start("get", f"{self.origin.url}/hang")
        self.origin.await_count("/hang", 1)
        program.kill()
        self.commands.await_no_survivors()
        self.origin.await_aborts("/hang")
        # The remains of such a death are not a broker for the next one.
        self.assertEqual(self.commands.run("get", f"{self.origin.url}/bytes/5").stdout, body(5))
        self.commands.await_no_survivors()

    def test_nothing_is_left_of_a_get_that_is_killed_while_it_starts(self):
        temporary = self.folder / "tmp"
        temporary.mkdir()
        self.commands.environment["TMPDIR"] = str(temporary)
        moments = {
            "at once": lambda get: True,
            "a supervisor": lambda get: children(get),
            "its folder": lambda get: list(temporary.iterdir()),
            "a worker": lambda get: [worker for supervisor in children(get) for worker in children(supervisor)],
            "a socket": lambda get: list(temporary.glob("*/bus")),
        }
        for moment, has_come in moments.items():
            with self.subTest(moment):
                program = self.commands.start("get", f"{self.origin.url}/hang")
                eventually(lambda: has_come(program.pid), moment)
                program.kill()
                self.commands.await_no_survivors()
                self.assertEqual(list(temporary.rglob("*")) + self.private_folders(), [])

    def test_its_processes_are_copies_and_after_a_death_they_are_not(self):
        program = self.commands.start("get", f"{self.origin.url}/hang")
        self.origin.await_count("/hang", 1)
        supervisor, = children(program.pid)
        named = {process_name(pid): pid for pid in children(supervisor)}
        self.assertEqual(sorted(named), ["earshot-broker", "earshot-worker"])
        broker, worker = named["earshot-broker"], named["earshot-worker"]
        for pid in (supervisor, broker, worker):
            # The other processes do not wait for it to be loaded.
            libraries = pathlib.Path(f"/proc/{pid}/maps").read_text()
            self.assertEqual("libcurl" in libraries, pid == worker)
            self.assertNotIn("libzmq", libraries, "only connections over tcp need it")
            self.assertEqual(command(pid), command(program.pid), "nothing was loaded anew")
            self.assertEqual(os.getpgid(pid), pid)
            self.assertEqual(os.readlink(f"/proc/{pid}/fd/0"), "/dev/null")
            self.assertEqual(os.readlink(f"/proc/{pid}/fd/1"), os.readlink(f"/proc/{pid}/fd/2"))
        self.assertNotIn("anon_inode:inotify", [os.readlink(f"/proc/{broker}/fd/{number}")
                                                for number in os.listdir(f"/proc/{broker}/fd")],
                         "its end would take the kernel milliseconds")
        # Files opened by the program are not inherited.
        self.assertNotIn(os.readlink(f"/proc/{program.pid}/fd/1"),
                         [os.readlink(f"/proc/{worker}/fd/{number}") for number in os.listdir(f"/proc/{worker}/fd")])
        kill(worker)
        self.origin.await_count("/hang", 2)
        worker, = set(children(supervisor)) - {broker}
        self.assertEqual(command(worker)[:2], ["earshot", "worker"])
        program.signal(signal.SIGINT)
        self.assertEqual(program.wait(), 130, program.describe())
        self.check_that_nothing_is_left()

    def start_with_a_list_that_does_not_come(self):
        """Starts a `get` that waits for its list. Returns it, the path of the list, its supervisor and its worker."""
        path = self.folder / "list"
        os.mkfifo(path)
        self.addCleanup(path.unlink)
        program = self.commands.start("get", "-i", path, "-d", self.folder / "out")
        eventually(lambda: [worker for supervisor in children(program.pid) for worker in children(supervisor)], "a worker")
        supervisor, = children(program.pid)
        worker, = children(supervisor)
        return program, path, supervisor, worker

    def test_its_worker_loads_libraries_while_the_arguments_are_read(self):
        program, path, supervisor, worker = self.start_with_a_list_that_does_not_come()
        eventually(lambda: "libcurl" in pathlib.Path(f"/proc/{worker}/maps").read_text(), "libcurl")
        path.write_text(f"{self.origin.url}/bytes/7\n{self.origin.url}/hang\n")
        self.origin.await_count("/hang", 1)
        self.assertEqual(children(program.pid), [supervisor])
        self.assertIn(worker, children(supervisor))
        self.assertEqual(process_name(worker), "earshot-worker")
        program.signal(signal.SIGINT)
        self.assertEqual(program.wait(), 130, program.describe())
        self.commands.await_no_survivors()

    def test_nothing_is_left_of_a_get_that_ends_before_its_bus_begins(self):
        temporary = self.folder / "tmp"
        temporary.mkdir()
        self.commands.environment["TMPDIR"] = str(temporary)
        for arguments, status in ((["get", "--unknown"], 64), (["get"], 64), (["get", "-i", self.folder / "none"], 66)):
            got = self.commands.run(*arguments)
            self.assertEqual(got.status, status, got.describe())
            self.check_that_nothing_is_left()
            self.assertEqual(list(temporary.iterdir()), [])

    def test_no_spawn_refuses_instead(self):
        got = self.commands.run("get", "--no-spawn", f"{self.origin.url}/bytes/10")
        self.assertEqual((got.status, got.stdout), (69, b""), got.describe())
        self.assertIn("no broker", got.stderr.lower())
        self.assertEqual(self.origin.total, 0)
        self.check_that_nothing_is_left()
