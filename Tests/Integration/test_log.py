"""Logs of broker, workers and supervisor: format, severity at run time, attempts, terminals, and the journal."""

import json
import os
import re
import shutil
import signal
import subprocess

from support.harness import Bus, Commands, TestCase, binary, temporary_folder
from support.origin import Origin
from support.processes import eventually

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


class LogTests(TestCase):
    def lines(self, bus, message):
        """Returns the objects of the log with this message. The last line may be incomplete."""
        return [line for line in map(json.loads, bus.program.stderr.split("\n")[:-1]) if line["message"] == message]

    def await_lines(self, bus, message):
        return eventually(lambda: self.lines(bus, message), lambda: f"{message}: {bus.program.stderr}")

    def test_an_attempt_has_one_name_in_the_logs_of_broker_and_worker_once_the_level_is_debug(self):
        with Origin() as origin, Bus(workers=1, arguments=["--log-format", "json"]) as bus:
            client = bus.client()
            client.fetch("a", 1, f"{origin.url}/bytes/1?secret")
            client.terminal()
            self.assertEqual(self.lines(bus, "assigned an attempt"), [])
            client.set("log-level debug")
            client.fetch("a", 2, f"{origin.url}/bytes/2?secret")
            client.terminal()
            assigned, = self.await_lines(bus, "assigned an attempt")
            self.assertEqual((assigned["process"], assigned["handler"], assigned["request"]), ("broker", "a", "2"))
            self.assertEqual(assigned["url"], f"{origin.url}/bytes/2")
            self.assertRegex(assigned["time"], TIME)
            for message, process in (("started an attempt", "worker"), ("completed an attempt", "worker"),
                                     ("an attempt is done", "broker")):
                line, = self.await_lines(bus, message)
                self.assertEqual((line["attempt"], line["process"], line["level"]), (assigned["attempt"], process, "debug"))
            client.set("log-level notice")
            client.fetch("a", 3, f"{origin.url}/bytes/3")
            client.terminal()
            self.assertEqual(len(self.lines(bus, "assigned an attempt")), 1)
            self.assertNotIn("secret", bus.program.stderr)

    def test_a_reload_changes_the_level(self):
        with Bus(workers=1, arguments=["--log-format", "json"]) as bus:
            configuration = bus.folder / "config" / "earshot" / "config.toml"
            configuration.parent.mkdir(parents=True, exist_ok=True)
            configuration.write_text('log-level = "debug"\naccess-log = "on"\n')
            bus.program.signal(signal.SIGHUP)
            self.await_lines(bus, "the settings were read again")

    def test_the_access_log_has_a_line_for_each_terminal(self):
        with Origin() as origin, Bus(workers=1, arguments=["--log-format", "logfmt", "--access-log", "on"]) as bus:
            client = bus.client()
            client.fetch("a", 1, f"{origin.url}/bytes/9?secret")
            client.terminal()
            line = bus.program.await_line("message=result")
            for part in ("process=broker", "user=administrator", "handler=a", "request=1", "status=200", "bytes=9", "source=network",
                         f"url={origin.url}/bytes/9"):
                self.assertIn(part, line)
            client.fetch("a", 2, f"{origin.url}/status/404")
            client.terminal()
            self.assertIn("code=http-status", bus.program.await_line("request=2"))
            client.fetch("b", 3, "http://127.0.0.1:1/", retries=0)
            client.terminal()
            self.assertIn("message=failure attempts=1 code=connect-refused", bus.program.await_line("request=3"))
            client.set("access-log off")
            client.fetch("a", 4, f"{origin.url}/bytes/4")
            client.terminal()
            self.assertNotIn("request=4", bus.program.stderr)
            self.assertNotIn("secret", bus.program.stderr)

    def test_a_reader_that_stops_blocks_no_process_and_learns_how_many_lines_it_missed(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        with Origin() as origin:
            commands = Commands(folder / "run", folder)
            serve = subprocess.Popen(
                [binary(), "serve", "--workers", "1", "--spool", folder / "spool", "--no-durable", "--no-cache",
                 "--log-format", "json"], stderr=subprocess.PIPE, env=commands.environment)
            self.addCleanup(serve.kill)
            self.assertIn("ready", json.loads(serve.stderr.readline())["message"])
            self.assertEqual(commands.run("set", "log-level", "debug").status, 0)
            # Some hundred bytes for each request, of the broker and of the worker. A pipe holds 64 KiB.
            urls = folder / "urls"
            urls.write_text("".join(f"{origin.url}/bytes/1?{number}\n" for number in range(2_000)))
            get = commands.run("get", "--no-spawn", "-i", "urls", "--json")
            self.assertEqual((get.status, len(get.stdout.splitlines())), (0, 2_000), get.describe())
            serve.terminate()
            with serve.stderr:
                lines = serve.stderr.read().splitlines()
            self.assertEqual(serve.wait(), 0)
        missed = [line for line in map(self.parsed, lines) if line.get("message", "").startswith("dropped log lines")]
        self.assertTrue(missed and all(int(line["lines"]) > 0 and line["level"] == "warning" for line in missed), lines[-5:])

    def parsed(self, line):
        """Returns a line of JSON; an empty object for a line that was written in part."""
        try:
            return json.loads(line)
        except ValueError:
            return {}

    def test_text_has_a_time(self):
        with Bus(workers=1) as bus:
            self.assertRegex(bus.program.await_line("earshot: ready"), rf"^{TIME.pattern} earshot: ready, bus ")

    def test_the_journal_gets_a_priority_and_adds_the_time_itself(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        commands = Commands(folder / "run", folder)
        # A pipe in place of the journal's socket. systemd names its device and inode in the same way.
        reader, writer = os.pipe()
        status = os.fstat(writer)
        environment = {**commands.environment, "JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
        with subprocess.Popen([binary(), "serve", "--workers", "1", "--spool", folder / "spool", "--no-durable", "--no-cache"],
                              stderr=writer, env=environment) as serve:
            os.close(writer)
            with open(reader, encoding="utf-8") as lines:
                self.assertRegex(next(lines), r"^<5>earshot: ready, bus ")
                serve.terminate()
                rest = lines.read()
            self.assertEqual(serve.wait(), 0)
        self.assertRegex(rest, r"^<5>earshot broker\[\d+\]: notice: finishing running work")
