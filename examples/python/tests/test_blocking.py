"""Tests of the blocking form, of private buses, and of a missing bus."""

import concurrent.futures
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import unittest

import earshot_bus
import earshot_bus.blocking
from earshot_bus import _folders
from fixture import PACKAGE, BusTestCase, environment
from played import Played
from support.harness import PYTHON, binary
from support.origin import body
from support.processes import Program, Watched, children, eventually


class BlockingTests(BusTestCase):
    def open(self, **options):
        return earshot_bus.blocking.connect(self.bus.runtime, **options)

    def test_a_failed_durable_request_is_repeated(self):
        url = f"{self.url}/flaky/1?status=404&retried"
        submitted = self.bus.run("submit", "--durable", "--retries", "0", "--handler", "retried", url)
        self.assertEqual(submitted.status, 0, submitted.describe())
        request = submitted.stdout.decode().split()[1]
        self.assertEqual(self.bus.run("wait", "retried").status, 22)
        with self.open() as bus:
            for unknown in ("other", "another"):
                with self.assertRaises(earshot_bus.Refused) as caught:
                    bus.retry("retried", unknown)
                self.assertEqual(caught.exception.code, "unknown-request")
            bus.retry("retried", request)
            with bus.watch("retried") as watch:
                terminal = next(iter(watch))
        self.assertEqual((terminal.request, terminal.ok), (request, True))

    def test_fetch_fail_and_ask(self):
        with self.open() as bus, bus.handler("blocking") as handler:
            self.assertEqual(handler.fetch(f"{self.url}/bytes/100").read(), body(100))
            self.assertTrue(handler.fetch(f"{self.url}/bytes/100000").read() == body(100_000))
            with self.assertRaises(earshot_bus.FetchFailed) as caught:
                handler.fetch(f"{self.url}/status/404")
            self.assertEqual(caught.exception.status, 404)
            self.assertEqual(bus.status()["broker"], bus.broker)
            self.assertEqual(bus.set("slots", 63), "slots 63")
            self.assertEqual({row["name"]: row["value"] for row in bus.settings()}["slots"], "63")
            with self.assertRaises(ValueError):
                handler.start("")
        with self.assertRaises(earshot_bus.Closed):
            bus.ping()

    def test_transfers(self):
        with self.open() as bus, bus.handler("transfers") as handler:
            transfers = [handler.start(f"{self.url}/bytes/{n}") for n in range(50)]
            self.assertEqual([len(transfer.result().read()) for transfer in transfers], list(range(50)))
            slow = handler.start(f"{self.url}/gate/blocking?bytes=5")
            self.origin.await_count("/gate/blocking", 1)
            with self.assertRaises(TimeoutError):
                slow.result(timeout=0.05)
            self.assertEqual(slow.why()["state"], "running")
            self.origin.open_gate("blocking")
            self.assertEqual(slow.result(timeout=60).read(), body(5))
            self.assertTrue(slow.done())
            steps = []
            for step in handler.start(f"{self.url}/steps/rest?bytes=90000", progress_ms=50).progress():
                steps.append(step)
                self.origin.open_gate("rest")
            self.assertTrue(steps and all(step.total == 90_000 for step in steps))

    def test_cancel_replace_and_leave(self):
        with self.open() as bus:
            with bus.handler("blocking-cell") as cell:
                first = cell.start(f"{self.url}/stall/1")
                self.assertEqual(cell.replace(f"{self.url}/bytes/9").read(), body(9))
                with self.assertRaises(earshot_bus.FetchFailed):
                    first.result()
                second = cell.start(f"{self.url}/stall/2")
                self.origin.await_count("/stall/2", 1)
                second.cancel()
                with self.assertRaises(concurrent.futures.CancelledError):
                    second.result()
                self.origin.await_aborts("/stall/2")
                cell.start(f"{self.url}/stall/3")
                self.origin.await_count("/stall/3", 1)
            self.origin.await_aborts("/stall/3")

    def test_a_watch_and_threads(self):
        with self.open() as bus, bus.watch("threads/") as watch, bus.handler("threads/1") as handler:
            threads = [threading.Thread(target=handler.fetch, args=(f"{self.url}/bytes/{n}",)) for n in range(8)]
            for thread in threads:
                thread.start()
            self.assertEqual(sorted(terminal.length for _, terminal in zip(threads, watch)), list(range(8)))
            for thread in threads:
                thread.join()

    def test_ctrl_c_cancels_what_is_waited_for(self):
        # A shell that runs the tests in the background ignores SIGINT.
        script = ("import earshot_bus.blocking as e, signal, sys\n"
                  "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
                  "with e.connect() as bus, bus.handler() as h:\n"
                  "    try: h.fetch(sys.argv[1])\n"
                  "    except KeyboardInterrupt: print('interrupted', flush=True); sys.stdin.read()\n")
        program = Program([PYTHON, "-c", script, f"{self.url}/stall/4"], environment(EARSHOT_RUNTIME=self.bus.runtime))
        self.origin.await_count("/stall/4", 1)
        program.signal(signal.SIGINT)
        program.await_line("interrupted", "stdout")
        self.origin.await_aborts("/stall/4")
        program.write(b"")
        self.assertEqual(program.wait(), 0, program.describe())


class NoBusTests(unittest.TestCase):
    def test_where_no_broker_runs_the_error_says_how_to_start_one(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaises(earshot_bus.NoBroker) as caught, earshot_bus.blocking.connect(folder):
                self.fail("connected to nothing")
        for part in (folder, "earshot serve", "private=True", "EARSHOT_RUNTIME"):
            self.assertIn(part, str(caught.exception))

    def test_a_folder_that_is_not_this_user_s_alone_is_not_trusted(self):
        with Played() as broker:
            broker.listen()
            self.assertTrue(_folders.is_served(broker.runtime))
            broker.runtime.chmod(0o750)
            link = broker.runtime / "link"
            link.symlink_to(broker.runtime)
            for folder in (broker.runtime, link):
                with self.assertRaisesRegex(earshot_bus.NoBroker, "not a directory private to this user"):
                    with earshot_bus.blocking.connect(folder):
                        self.fail("connected to whoever it is")

    def test_a_folder_of_a_bus_for_several_users_is_trusted_if_only_its_owner_writes_there(self):
        with Played() as broker:
            broker.listen()
            broker.runtime.chmod(0o755)
            self.assertTrue(_folders.is_served(broker.runtime))
            self.assertEqual(_folders.trusted_listeners(broker.runtime), {os.geteuid()})

    @unittest.skipUnless(os.geteuid() == 0, "folders of other users need root")
    def test_a_folder_of_another_user_is_trusted_only_where_root_decides_its_owner(self):
        above_folder = pathlib.Path(tempfile.mkdtemp(prefix="ear-", dir="/run"))
        self.addCleanup(shutil.rmtree, above_folder)
        folder = above_folder / "bus"
        folder.mkdir()
        folder.chmod(0o755)
        os.chown(folder, 7, 7)
        self.assertEqual(_folders.trusted_listeners(folder), {0, 7})
        for above, mode in ((above_folder, 0o777), (above_folder, 0o1777), (folder, 0o775)):
            above.chmod(mode)
            with self.assertRaisesRegex(earshot_bus.NoBroker, "directories of root"):
                _folders.trusted_listeners(folder)
            above.chmod(0o755)
        os.chown(above_folder, 7, 7)
        with self.assertRaises(earshot_bus.NoBroker):
            _folders.trusted_listeners(folder)

    def test_why_a_broker_that_runs_cannot_be_reached_is_told(self):
        with Played() as broker, self.assertRaisesRegex(earshot_bus.NoBroker, "within 0.1 s .No such file"):
            with earshot_bus.blocking.connect(broker.runtime, timeout=0.1):
                self.fail("connected to nothing")

    def test_a_path_that_no_socket_can_have_is_told(self):
        self.assertEqual(_folders.socket_path(pathlib.Path("/" + "x" * 102), "bus"), "/" + "x" * 102 + "/bus")
        with self.assertRaisesRegex(earshot_bus.NoBroker, "107 bytes"):
            _folders.socket_path(pathlib.Path("/" + "x" * 103), "bus")

    def test_the_runtime_folder_is_found_as_the_program_finds_it(self):
        kept = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(kept)))
        for variables, wanted in [({"EARSHOT_RUNTIME": "/a", "XDG_RUNTIME_DIR": "/b"}, "/a"),
                                  ({"EARSHOT_RUNTIME": "", "XDG_RUNTIME_DIR": "/b"}, "/b/earshot"),
                                  ({}, pathlib.Path("/tmp", f"earshot-{os.geteuid()}"))]:
            for name in ("EARSHOT_RUNTIME", "XDG_RUNTIME_DIR"):
                os.environ.pop(name, None)
            os.environ.update(variables)
            self.assertEqual(_folders.runtime_folder(None), pathlib.Path(wanted))
            self.assertEqual(_folders.runtime_folder("/c"), pathlib.Path("/c"))


class PrivateTests(unittest.TestCase):
    SCRIPT = ("import earshot_bus.blocking as e, earshot_bus._folders as p, sys\n"
              "for _ in range(2):\n"
              "    with e.connect(private=True) as bus: bus.ping()\n"
              "print(p.private_folder(), flush=True)\n"
              "sys.stdin.read()\n")

    def start(self, **variables):
        cache = self.enterContext(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        program = Program([PYTHON, "-c", self.SCRIPT],
                          environment(EARSHOT_BINARY=binary(), XDG_CACHE_HOME=cache, **variables))
        folder = pathlib.Path(program.await_line("earshot", "stdout", timeout=60))
        [supervisor] = children(program.pid)
        self.assertTrue(_folders.is_served(folder))
        return program, folder, Watched(supervisor)

    def test_it_serves_several_connections_and_ends_with_the_process(self):
        program, folder, supervisor = self.start()
        program.write(b"")
        self.assertEqual(program.wait(), 0, program.describe())
        self.assertEqual(program.stderr, "")
        self.assertTrue(supervisor.await_death())
        supervisor.close()
        self.assertFalse(folder.exists())

    def test_it_ends_with_a_process_that_is_killed(self):
        program, folder, supervisor = self.start()
        program.kill()
        self.assertTrue(supervisor.await_death())
        supervisor.close()
        eventually(lambda: not folder.exists(), "its folder is gone")

    def test_without_the_program_the_error_says_so(self):
        script = "import earshot_bus.blocking as e\nwith e.connect(private=True): pass"
        for variables, part in [({"EARSHOT_BINARY": "", "PATH": ""}, "EARSHOT_BINARY"),
                                ({"EARSHOT_BINARY": "/nothing/earshot"}, "No such file"),
                                ({"EARSHOT_BINARY": "/bin/false"}, "did not start")]:
            with self.subTest(part):
                done = subprocess.run([PYTHON, "-c", script], env=environment(**variables), capture_output=True,
                                      text=True, timeout=30)
                self.assertEqual(done.returncode, 1)
                self.assertIn("NoBroker", done.stderr)
                self.assertIn(part, done.stderr)
        self.assertTrue((PACKAGE / "earshot_bus/py.typed").exists())
