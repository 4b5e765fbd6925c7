"""Interactive shell on a pseudoterminal."""

import os
import pty
import select
import signal
import subprocess
import time

PROMPT = "prompt>"


class Terminal:
    """Shell that shows PROMPT: `with Terminal(["bash", …], environment, folder) as terminal:`."""

    def __init__(self, command, environment, folder):
        self._master, slave = pty.openpty()
        # setsid makes the terminal the controlling terminal, which job control of the shell requires.
        self._process = subprocess.Popen(["setsid", "--ctty", *map(str, command)], stdin=slave, stdout=slave, stderr=slave,
                                         env={**environment, "TERM": "dumb", "COLUMNS": "500"}, cwd=folder)
        os.close(slave)
        self._shown = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.send_signal(signal.SIGHUP)
        os.close(self._master)
        self._process.wait(10)

    def type(self, text):
        os.write(self._master, text.encode())

    def await_text(self, text, timeout=30):
        """Returns the output up to `text`, which the next call does not see again."""
        deadline = time.monotonic() + timeout
        while text.encode() not in self._shown:
            if not select.select([self._master], [], [], max(0, deadline - time.monotonic()))[0]:
                raise AssertionError(f"no '{text}' within {timeout} s; the terminal shows {self._shown.decode(errors='replace')}")
            self._shown += os.read(self._master, 1 << 16)
        before, _, self._shown = self._shown.partition(text.encode())
        return before.decode(errors="replace")
