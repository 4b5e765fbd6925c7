"""`earshot get` shows its progress on a terminal, and one line of summary at the end."""

import os
import re
import signal

from support.harness import Bus, TestCase, binary
from support.origin import Origin, body
from support.terminal import Terminal


class ProgressTests(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.origin = cls.enterClassContext(Origin())
        cls.bus = cls.enterClassContext(Bus(origin_limit=2))

    def terminal(self, *arguments, size=(80, 24), kind="xterm", **variables):
        """Returns `earshot get` on a terminal."""
        return Terminal([binary(), "get", *arguments], {**self.bus.environment, **variables}, self.bus.folder, size, kind)

    def bytes(self, size, seed):
        return f"{self.origin.url}/bytes/{size}?seed={seed}"

    def steps(self, name, size=2 << 20):
        return f"{self.origin.url}/steps/{name}?bytes={size}&name=/{name}"

    def test_one_file_has_percent_sizes_and_a_summary(self):
        with self.terminal("-o", "one", self.steps("one")) as terminal:
            shown = terminal.await_text("50%") + terminal.await_text(" of 2.0 MiB")
            self.assertIn("one", shown)
            self.origin.open_gate("one")
            status, rest = terminal.await_end()
        self.assertEqual(status, 0, rest)
        self.assertRegex(rest, r"\x1b\[Jearshot: 1 file, 2\.0 MiB in \d+\.\d s \(.*/s\)\r\n$")

    def test_many_files_have_counts_and_the_transfers_that_run(self):
        urls = [self.steps("many", 1 << 20), self.bytes(1000, "m"), f"{self.origin.url}/status/404?m"]
        with self.terminal("-d", "many", *urls, size=(200, 24)) as terminal:
            terminal.await_text("HTTP status 404")
            terminal.await_text("2/3 files")
            terminal.await_text("  many")
            terminal.await_text("50%  512 KiB of 1.0 MiB")
            self.origin.open_gate("many")
            status, rest = terminal.await_end()
        self.assertEqual(status, 2, rest)
        self.assertRegex(rest, r"earshot: 2 files, 1 failed, 1\.0 MiB in .*\r\n$")

    def test_a_wait_has_the_reason_of_the_broker(self):
        busy = [self.bus.start("get", f"{self.origin.url}/gate/busy?{number}") for number in range(2)]
        self.origin.await_running(2)
        with self.terminal(self.bytes(10, "waits"), NO_COLOR="1") as terminal:
            terminal.await_text(f"waiting: 2 of 2 transfers from {self.origin.url} run")
            self.origin.open_gate("busy")
            self.assertEqual([one.wait() for one in busy], [0, 0])
            terminal.await_end()

    def test_lines_fit_a_narrow_terminal(self):
        urls = [self.steps("narrow", 1 << 20), self.bytes(1000, "n")]
        with self.terminal("-d", "narrow", *urls, size=(12, 24), NO_COLOR="1") as terminal:
            shown = terminal.await_text("1/2 f") + terminal.await_text("  nar") + terminal.await_text("1/2 f")
            for line in re.split(r"[\r\n]|\x1b\[\d*[AJ]", shown):
                self.assertLess(len(line), 12, line)
            self.origin.open_gate("narrow")
            self.assertEqual(terminal.await_end()[0], 0)

    def test_no_color_and_quiet(self):
        with self.terminal("-d", "plain", self.bytes(1, "c"), f"{self.origin.url}/gate/plain", NO_COLOR="1") as terminal:
            self.assertNotIn("\x1b[3", terminal.await_text("1/2 files"))
            self.origin.open_gate("plain")
            terminal.await_end()
        with self.terminal("-q", "-d", "quiet", self.bytes(1, "c"), f"{self.origin.url}/status/404") as terminal:
            status, shown = terminal.await_end()
        self.assertEqual((status, len(shown.splitlines())), (2, 1), shown)
        self.assertIn("HTTP status 404", shown)

    def test_an_interrupted_run_has_a_summary(self):
        get = self.bus.start("get", "-d", "cut", self.bytes(7, "cut"), f"{self.origin.url}/gate/cut")
        self.origin.await_count("/gate/cut", 1)
        os.kill(get.pid, signal.SIGINT)
        self.assertEqual(get.wait(), 130, get.describe())
        self.assertRegex("\n".join(get.messages), r"(?m)^earshot: interrupted: [01] of 2 files, ")

    def test_a_log_has_whole_lines(self):
        get = self.bus.start("get", "-d", "log", self.bytes(7, "log"), f"{self.origin.url}/gate/log")
        self.addCleanup(self.origin.open_gate, "log")
        self.assertRegex(get.await_line("1/2 files"), r"^earshot: 1/2 files, 7 B, ")
        self.origin.open_gate("log")
        self.assertEqual(get.wait(), 0)
        self.assertNotIn("\x1b", get.stderr)

    def test_a_binary_body_goes_to_a_terminal_only_on_request(self):
        for size in (100, 3_000_000):
            with self.subTest(size=size):
                with self.terminal(self.bytes(size, "binary")) as terminal:
                    status, shown = terminal.await_end()
                self.assertEqual(status, 23, shown)
                self.assertIn("the body is binary", shown)
                self.assertNotIn("\x1b[3", shown)
        with self.terminal("-o", "-", f"{self.origin.url}/bytes/100") as terminal:
            status, shown = terminal.await_end()
        self.assertEqual(status, 0)
        self.assertIn(body(100)[:8].decode(errors="replace"), shown)
        with self.terminal(f"{self.origin.url}/status/200") as terminal:
            self.assertEqual(terminal.await_end(), (0, "the origin answers 200\r\n"))
