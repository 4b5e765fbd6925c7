"""The command top: its screen, its keys, and the terminal after each way out."""

import json
import os
import re
import signal
import unittest

from support.harness import Bus, TestCase, binary
from support.origin import Origin
from support.processes import eventually
from support.terminal import PROMPT, Terminal
from support.tools import tool

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
HOME = "\x1b[H"


class TopTests(TestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.bus = self.enterContext(Bus(workers=1))
        self.client = self.bus.client()
        for handler, count in (("top/few", 1), ("top/many", 3)):
            for number in range(count):
                self.client.fetch(handler, number, f"{self.origin.url}/gate/never?{number}")
        self.origin.await_running(3)

    def tearDown(self):
        if self.bus.program.running:
            self.client.remove("top/")

    def terminal(self, *arguments, size=(80, 24), environment=(), **options):
        return Terminal([binary(), "top", "--interval", "0.1", *arguments], {**self.bus.environment, **dict(environment)},
                        self.bus.folder, kind="xterm", size=size, **options)

    @staticmethod
    def screen(terminal, part="", rows=24):
        """Awaits a screen with `part` and so many rows, and returns its lines. The last line has an attribute."""
        while True:
            terminal.await_text(HOME)
            screen = terminal.await_text("\x1b[0m\x1b[0m")
            lines = screen.split("\r\n")
            if part in screen and len(lines) == rows:
                return lines

    def test_keys_select_sort_filter_and_drop(self):
        with self.terminal() as terminal:
            terminal.await_text(ENTER)
            lines = self.screen(terminal, "> top/many")
            self.assertTrue(terminal.is_raw)
            text = [re.sub(r"\x1b\[[0-9]*[mK]|\r", "", line) for line in lines]
            self.assertTrue(all(len(line) <= 80 for line in text), text)
            self.assertIn("pending 4", text[1])
            self.assertIn(self.origin.url, "\n".join(text))
            terminal.type("s")
            self.screen(terminal, "sort: answered")
            terminal.type("/few\r")
            self.screen(terminal, "filter: few")
            terminal.type("d")
            self.screen(terminal, "drop top/few and its 1 pending requests? y or n")
            terminal.type("y")
            self.screen(terminal, "dropped top/few with 1 pending requests")
            self.await_requests(self.client, removed=1, pending=3)
            terminal.resize(40, 12)
            self.screen(terminal, rows=12)
            terminal.type("q")
            status, rest = terminal.await_end()
            self.assertEqual(status, 0)
            self.assertTrue(rest.endswith(LEAVE), rest)
            self.assertFalse(terminal.is_raw)

    def test_each_signal_restores_the_terminal(self):
        for end, status in (("\x03", 130), (signal.SIGTERM, 130), (signal.SIGHUP, 130), (signal.SIGQUIT, 130)):
            with self.subTest(end=end), self.terminal() as terminal:
                terminal.await_text("top/many")
                if isinstance(end, str):
                    terminal.type(end)
                else:
                    os.kill(terminal.pid, end)
                ended, rest = terminal.await_end()
                self.assertEqual(ended, status)
                self.assertIn(LEAVE, rest)
                self.assertFalse(terminal.is_raw)

    def test_a_stopped_top_leaves_the_terminal_to_the_shell(self):
        rc = self.bus.folder / "bashrc"
        rc.write_text(f"PS1='{PROMPT}'\n")
        with Terminal([tool("bash", "bash"), "--rcfile", rc, "-i"], self.bus.environment, self.bus.folder, kind="xterm",
                      size=(80, 24)) as terminal:
            terminal.await_text(PROMPT)
            terminal.type(f"{binary()} top --interval 0.1\r")
            terminal.await_text("top/many")
            terminal.type("\x1a")
            terminal.await_text(LEAVE)
            terminal.await_text(PROMPT)
            terminal.type("stty -a | tr ' ;' '\\n' | grep -xc -e icanon -e echo\r")
            terminal.await_text("2\r\n")
            terminal.await_text(PROMPT)
            terminal.type("fg\r")
            terminal.await_text(ENTER)
            terminal.await_text("top/many")
            self.assertTrue(terminal.is_raw)
            terminal.type("q")
            terminal.await_text(LEAVE)
            terminal.await_text(PROMPT)

    def test_without_colours_nothing_is_highlighted(self):
        with self.terminal(environment={"NO_COLOR": "1"}) as terminal:
            terminal.await_text("> top/many")
            terminal.await_text(HOME)
            self.assertNotRegex(terminal.await_text(HOME), r"\x1b\[[1-9][0-9]*m")
            terminal.type("q")
            self.assertEqual(terminal.await_end()[0], 0)

    def test_a_pipe_gets_a_line_for_each_sample(self):
        lines = self.bus.run("top", "--interval", "0.1", "--count", "2").stdout.decode().splitlines()
        first, second = (dict(field.split("=") for field in line.split(" ")) for line in lines)
        self.assertEqual((first["pending"], first["submitted/s"], second["submitted/s"]), ("4", "-", "0.0"))
        lines = self.bus.run("top", "--interval", "0.1", "--count", "2", "--json").stdout.splitlines()
        self.assertEqual([json.loads(line)["running"] for line in lines], [3, 3])
        self.assertEqual(self.bus.run("top", "--interval", "0").status, 64)

    def test_the_end_of_the_bus_ends_it(self):
        with self.terminal() as terminal:
            terminal.await_text("top/many")
            self.assertEqual(self.bus.run("stop", "--now").status, 0)
            eventually(lambda: not self.bus.program.running, "the bus has ended")
            terminal.type("q")
            self.assertEqual(terminal.await_end()[0], 0)
            self.assertFalse(terminal.is_raw)


if __name__ == "__main__":
    unittest.main()
