"""Permanent obstacles end the program with a code and a sentence before it reports readiness; temporary ones are reported."""

import json
import os
import signal

from support.harness import Commands, TestCase, temporary_folder
from support.origin import Origin
from support.processes import children, eventually, kill, process_name


class FaultyEnvironmentTests(TestCase):
    def setUp(self):
        self.folder = temporary_folder()
        self.commands = Commands(self.folder / "run", self.folder)
        self.commands.environment["HOME"] = str(self.folder)
        for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
            self.commands.environment.pop(name, None)
        self.addCleanup(self.commands.await_no_survivors)

    def refused(self, status, *arguments):
        serve = self.commands.run("serve", "--workers", "1", *arguments)
        self.assertEqual(serve.status, status, serve.describe())
        self.assertNotIn("ready", serve.stderr)
        return serve.stderr

    def test_a_spool_that_cannot_be_written_ends_serve(self):
        (self.folder / "file").touch()
        message = self.refused(73, "--spool", self.folder / "file" / "spool")
        self.assertRegex(message, r"earshot: cannot use the folder .*/file/spool: .*: Not a directory\n")
        # The kernel permits nobody to write here, not even root.
        message = self.refused(73, "--spool", "/proc/earshot/spool")
        self.assertIn("earshot: cannot use the folder /proc/earshot", message)

    def test_a_home_that_is_read_only_ends_serve(self):
        self.commands.environment["HOME"] = "/proc/self"
        self.assertIn("earshot: cannot use the folder /proc/self/", self.refused(73))

    def test_options_are_checked_before_anything_starts(self):
        (self.folder / "folder").mkdir()
        for option, value, message in (
                ("--dns-server", "foo", "--dns-server foo: give a numeric address"),
                ("--dns-server", "127.0.0.1:0", "--dns-server 127.0.0.1:0: "),
                ("--dns-server", "127.0.0.1:99999", "--dns-server 127.0.0.1:99999: "),
                ("--dns-server", "::1]:53", "--dns-server ::1]:53: "),
                ("--ca-file", "nothing.pem", "--ca-file: cannot read nothing.pem: No such file or directory"),
                ("--ca-file", "folder", "--ca-file: folder is a directory")):
            with self.subTest(option=option, value=value):
                self.assertIn(message, self.refused(78, option, value))
                self.assertFalse((self.folder / "run").exists())
        got = self.commands.run("get", "--ca-file", "nothing.pem", "http://127.0.0.1/")
        self.assertEqual(got.status, 64, got.describe())

    def test_a_library_that_cannot_be_loaded_ends_serve(self):
        (self.folder / "libraries").mkdir()
        self.commands.environment["LD_LIBRARY_PATH"] = str(self.folder / "libraries")
        (self.folder / "libraries" / "libcurl.so.4").write_bytes(b"no library")
        message = self.refused(73)
        self.assertRegex(message, "earshot: cannot start a worker: .*libcurl.so.4.*; install libcurl 7.88 or later")

    def test_a_certificate_file_that_is_removed_is_told_of_and_found_again(self):
        file = self.folder / "ca.pem"
        file.touch()
        serve = self.commands.start("serve", "--workers", "1", "--ca-file", file)
        serve.await_line("earshot: ready")
        file.rename(self.folder / "gone")
        kill(next(p for p in children(serve.pid) if process_name(p) == "earshot-worker"))
        serve.await_line(f"cannot start a worker: cannot read {file}: No such file or directory")
        serve.await_line("in a row")
        status = eventually(self.unready, "it is told")
        self.assertEqual([failure["last-end"] for failure in status["failing"]],
                         [f"cannot read {file}: No such file or directory"])
        get = self.commands.start("submit", "--handler", "h", "--id", "1", "http://127.0.0.1:9/")
        self.assertEqual(get.wait(), 0, get.describe())
        reason = self.commands.run("why", "h", "1").stdout.decode()
        self.assertRegex(reason, rf"no worker is connected; \d+ workers ended in a row, the last one with cannot read {file}")
        (self.folder / "gone").rename(file)
        eventually(lambda: json.loads(self.commands.await_status("--json"))["ready"], "a worker runs")
        serve.signal(signal.SIGTERM)
        serve.wait()

    def unready(self):
        status = json.loads(self.commands.await_status("--json"))
        return status if not status["ready"] and status["failing"] else None

    def test_ready_means_that_a_worker_is_there(self):
        serve = self.commands.start("serve", "--workers", "2", "--dns-server", "[::1]:53", "--dns-server", "::1")
        serve.await_line("earshot: ready")
        status = self.commands.run("status", "--json")
        self.assertIn(b'"ready"', status.stdout)
        serve.signal(signal.SIGTERM)
        serve.wait()

    def test_who_waits_says_so(self):
        serve = self.commands.start("serve", "--workers", "1")
        serve.await_line("earshot: ready")
        broker = self.broker(serve)
        os.kill(broker, signal.SIGSTOP)
        with Origin() as origin:
            get = self.commands.start("get", f"{origin.url}/bytes/5")
            get.await_line(f"earshot: waiting for the broker in {self.folder}/run")
            os.kill(broker, signal.SIGCONT)
            self.assertEqual(get.wait(), 0, get.describe())
        self.assertEqual((get.stderr.count("waiting for the broker"), get.messages), (1, []), get.stderr)
        serve.signal(signal.SIGTERM)
        serve.wait()

    def broker(self, serve):
        return eventually(lambda: next((p for p in children(serve.pid) if process_name(p) == "earshot-broker"), None),
                          "there is a broker")
