"""Every subcommand with standard streams that are closed, full or without a reader: nothing hangs, no message goes to another
descriptor, and unwritten output is an error."""

import json
import os
import signal
import subprocess

from support.harness import Bus, TestCase, binary
from support.origin import Origin, body
from support.processes import eventually

#: Seconds within which each command ends; a debug build on a busy machine starts slowly.
TIMEOUT = 60
ALL = (0, 1, 2)


class Ended:
    """Completed command: its status, and its output to the streams that it had."""

    def __init__(self, status, stdout, stderr):
        self.status, self.stdout, self.stderr = status, stdout, stderr

    def __str__(self):
        return f"status {self.status}, stdout {self.stdout[-300:]}, stderr {self.stderr[-2000:].decode(errors='replace')}"


def redirected(closed, arguments):
    """Returns a shell command that closes descriptors and executes the program."""
    closings = " ".join(f"{number}>&-" for number in closed)
    return ["/bin/sh", "-c", f'exec "$0" "$@" {closings}', binary(), *map(str, arguments)]


class StreamCase(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.origin = cls.enterClassContext(Origin())
        cls.bus = cls.enterClassContext(Bus(workers=1))
        cls.url = f"{cls.origin.url}/bytes/100?seed=streams"
        # A response for `cache list`.
        cls.bus.run("get", f"{cls.origin.url}/kept/streams?cc=max-age%3D1000&bytes=10")
        cls.number = 0

    def run_with(self, arguments, closed=(), stdout=subprocess.PIPE, environment=None):
        process = subprocess.Popen(
            redirected(closed, arguments), stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE,
            env=environment or self.bus.environment, cwd=self.bus.folder)
        try:
            out, err = process.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            self.fail(f"{arguments} with {closed} closed did not end: {out!r} {err!r}")
        return Ended(process.returncode, out or b"", err or b"")

    def durable_result(self, handler):
        """Creates a durable result without a body that waits for a subscriber."""
        client = self.bus.client()
        client.fetch(handler, 1, self.url, method="HEAD", durable="yes", subscribe="no")
        client.expect("ACCEPTED", handler, "1")
        eventually(lambda: client.query(f"why {handler} 1")["state"] == "held", "it has ended")
        client.close()

    def commands(self):
        """Returns each subcommand that ends by itself: its arguments, and whether it prints to standard output."""
        type(self).number += 1
        name = f"streams/{self.number}"
        self.durable_result(name)
        self.run_with(["submit", "--durable", "--handler", f"{name}/cancel", "--id", "1", self.url])
        runtime = str(self.bus.runtime)
        return {
            "--help": (["--help"], True),
            "--version": (["--version"], True),
            "help get": (["help", "get"], True),
            "get": (["get", self.url], True),
            "get --json": (["get", "--json", self.url], True),
            "get -o": (["get", "-o", self.bus.folder / f"got-{self.number}", self.url], False),
            "get, large": (["get", f"{self.origin.url}/bytes/300000"], True),
            "submit": (["submit", "--handler", f"{name}/submit", self.url], True),
            "submit --durable": (["submit", "--durable", "--handler", f"{name}/kept", self.url], True),
            "watch": (["watch", name, "--count", "1"], True),
            "cancel": (["cancel", f"{name}/cancel", "1"], False),
            "drop": (["drop", f"{name}/submit"], True),
            "status": (["status"], True),
            "status --json": (["status", "--json"], True),
            "why": (["why", name, "1"], True),
            "set": (["set"], True),
            "set NAME VALUE": (["set", "cool-down", "600"], True),
            "config": (["config"], True),
            "config --running": (["config", "--running"], True),
            "cache stat": (["cache", "stat", "--runtime", runtime], True),
            "cache list": (["cache", "list", "--runtime", runtime], True),
            "cache verify": (["cache", "verify", "--runtime", runtime], False),
            "cache clear": (["cache", "clear", "--cache-folder", self.bus.folder / f"empty-{self.number}"], False),
        }

    def check_the_bus(self):
        """No client sent malformed messages to the broker, and nothing is left over."""
        self.assertEqual([line for line in self.bus.program.stderr.splitlines() if "warning" in line], [])
        self.balance(self.bus.client())

    def assertNotAcknowledged(self):
        """The durable result of this round is available for the next subscriber."""
        watched = self.run_with(["watch", f"streams/{self.number}", "--count", "1"])
        self.assertEqual(watched.status, 0, watched)
        self.assertIn(f"streams/{self.number} 1 200".encode(), watched.stdout)


class ClosedStreamTests(StreamCase):
    def check(self, *closed):
        for name, (arguments, prints) in self.commands().items():
            with self.subTest(name, closed=closed):
                ended = self.run_with(arguments, closed)
                fails = prints and 1 in closed
                self.assertEqual(ended.status, 23 if fails else 0, ended)
                if 1 in closed:
                    self.assertEqual(ended.stdout, b"", "nothing is written to a closed stream")
                elif prints:
                    self.assertNotIn(b"earshot: ", ended.stdout, "messages are not output")
                    self.assertTrue(ended.stdout, ended)
                if 2 in closed:
                    self.assertEqual(ended.stderr, b"")
                elif fails:
                    self.assertIn(b"cannot write", ended.stderr)
        if 1 in closed:
            self.assertNotAcknowledged()
        self.check_the_bus()

    def test_without_standard_output_a_command_that_prints_fails_with_23(self):
        self.check(1)

    def test_without_standard_input_nothing_changes(self):
        self.check(0)
        for arguments in (["get", "-i", "-", "-d", "out"], ["get", "--data", "@-", "--alone", self.url]):
            ended = self.run_with(arguments, [0])
            self.assertEqual(ended.status, 66, ended)
            self.assertIn(b"cannot read standard input", ended.stderr)

    def test_without_standard_error_messages_go_nowhere(self):
        self.check(2)
        ended = self.run_with(["get", f"{self.origin.url}/status/404"], [2])
        self.assertEqual((ended.status, ended.stdout), (22, b""), ended)

    def test_without_any_of_them_messages_go_nowhere(self):
        self.check(*ALL)
        ended = self.run_with(["get", f"{self.origin.url}/status/404"], ALL)
        self.assertEqual(ended.status, 22, ended)

    def test_a_private_bus_works_without_them(self):
        environment = {**self.bus.environment, "EARSHOT_RUNTIME": str(self.bus.folder / "nowhere"),
                       "XDG_CACHE_HOME": str(self.bus.folder / "own-cache")}
        file = self.bus.folder / "private"
        for closed in ((0,), (1,), (2,), ALL):
            with self.subTest(closed=closed):
                ended = self.run_with(["get", "-o", file, self.url], closed, environment=environment)
                self.assertEqual(ended.status, 0, ended)
                self.assertEqual(file.read_bytes(), body(100, "streams"))
                file.unlink()
                ended = self.run_with(["get", self.url], closed, environment=environment)
                self.assertEqual(ended.status, 23 if 1 in closed else 0, ended)
                self.assertEqual(ended.stdout, b"" if 1 in closed else body(100, "streams"))

    def serve(self, arguments, closed, is_ready):
        """Runs a serving process until it is ready, and ends it."""
        process = subprocess.Popen(
            redirected(closed, arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=self.bus.environment, cwd=self.bus.folder)
        try:
            eventually(lambda: is_ready() or process.poll() is not None, f"{arguments} is ready", TIMEOUT)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=TIMEOUT)
        except (AssertionError, subprocess.TimeoutExpired):
            process.kill()
            process.communicate()
            raise
        self.assertEqual((process.returncode, out), (0, b""), err)
        if 2 in closed:
            self.assertEqual(err, b"")

    def answers(self, runtime):
        return self.run_with(["status", "--runtime", runtime]).status == 0

    def workers(self, runtime):
        return len(json.loads(self.run_with(["status", "--json", "--runtime", runtime]).stdout)["workers"])

    def test_processes_that_serve_do_so_without_them(self):
        client = self.bus.client()
        own = self.bus.folder / "own"
        common = ["--spool", own / "spool", "--no-cache", "--no-durable"]
        for closed in ((0,), (1,), (2,), ALL):
            for arguments in (["serve", "--workers", "1", *common], ["broker", *common]):
                with self.subTest(arguments[0], closed=closed):
                    self.serve([*arguments, "--runtime", own], closed, lambda: self.answers(own))
            with self.subTest("worker", closed=closed):
                # The bus accepts no workers but its own children.
                broker = self.bus.start("broker", "--runtime", own, *common)
                eventually(lambda: self.answers(own), "the broker is there", TIMEOUT)
                self.serve(["worker", "--runtime", own], closed, lambda: self.workers(own) == 1)
                broker.signal(signal.SIGTERM)
                self.assertEqual(broker.wait(), 0, broker.describe())
            with self.subTest("work", closed=closed):
                self.serve(["work", "--scheme", "say", "--", "echo"], closed,
                           lambda: any("say" in worker["schemes"] for worker in client.query("workers")["workers"]))
                eventually(lambda: len(client.query("workers")["workers"]) == 1, "it has left")
        self.check_the_bus()


class FullStreamTests(StreamCase):
    def check(self, stdout, message):
        for name, (arguments, prints) in self.commands().items():
            with self.subTest(name):
                ended = self.run_with(arguments, stdout=stdout())
                self.assertEqual(ended.status, 23 if prints else 0, ended)
                if prints and message:
                    self.assertIn(message, ended.stderr)
        self.assertNotAcknowledged()
        self.check_the_bus()

    def test_a_full_device_is_an_error_with_a_message(self):
        self.check(lambda: self.enterContext(open("/dev/full", "wb")), b"No space left on device")

    def test_a_pipe_without_a_reader_ends_a_command_by_its_exit_code(self):
        def pipe():
            reader, writer = os.pipe()
            os.close(reader)
            self.addCleanup(os.close, writer)
            return writer
        self.check(pipe, None)

    def test_submit_says_where_requests_are_whose_ids_were_not_printed(self):
        ended = self.run_with(["submit", "--handler", "streams/lost", self.url, self.url],
                              stdout=self.enterContext(open("/dev/full", "wb")))
        self.assertEqual(ended.status, 23, ended)
        self.assertIn(b"2 requests were submitted under streams/lost", ended.stderr)


class WatchExitTests(StreamCase):
    def watch(self, *paths):
        """Returns the status of a watch that receives as many results."""
        type(self).number += 1
        handler = f"exits/{self.number}"
        client = self.bus.client()
        for number, path in enumerate(paths):
            client.fetch(handler, number, f"{self.origin.url}{path}", subscribe="no", retries=0)
        ended = self.run_with(["watch", handler, "--count", len(paths)])
        self.assertEqual(len(ended.stdout.splitlines()), len(paths), ended)
        return ended.status

    def test_a_failure_among_the_results_is_the_exit_code_of_watch(self):
        self.assertEqual(self.watch("/bytes/1", "/bytes/2"), 0)
        self.assertEqual(self.watch("/bytes/1", "/status/404", "/bytes/2"), 2)
        self.assertEqual(self.watch("/status/404", "/status/410"), 22)
        self.assertEqual(self.watch("/status/404", "/reset"), 2)

    def test_submit_ends_with_the_one_cause_of_all_refusals(self):
        urls = [f"{self.origin.url}/bytes/{number}" for number in (1, 2)]
        post = self.run_with(["submit", "--durable", "--alone", "-X", "POST", "--data", "a", *urls])
        self.assertEqual((post.status, post.stdout), (43, b""), post)
        some = self.run_with(["submit", "--handler", "exits/some", urls[0], "not a URL"])
        self.assertEqual((some.status, len(some.stdout.splitlines())), (2, 1), some)
