"""Interactive shell on a pseudoterminal."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

PROMPT = "prompt>"


class Terminal:
    """Shell that shows PROMPT, or another program: `with Terminal(["bash", …], environment, folder) as terminal:`.

    `size`: columns and rows. `kind`: value of TERM.
    """

    def __init__(self, command, environment, folder, size=None, kind="dumb"):
        self._master, slave = pty.openpty()
        if size:
            self.resize(*size)
        # setsid makes the terminal the controlling terminal, which job control of the shell requires.
        self._process = subprocess.Popen(["setsid", "--ctty", *map(str, command)], stdin=slave, stdout=slave, stderr=slave,
                                         env={**environment, "TERM": kind, "COLUMNS": "500"}, cwd=folder)
        os.close(slave)
        self._shown = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.send_signal(signal.SIGHUP)
        os.close(self._master)
        self._process.wait(60)

    @property
    def pid(self):
        return self._process.pid

    @property
    def is_raw(self):
        """Returns whether the terminal passes keys on without echo and line editing."""
        return not termios.tcgetattr(self._master)[3] & (termios.ECHO | termios.ICANON)

    def resize(self, columns, rows):
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text):
        os.write(self._master, text.encode())

    def await_text(self, text, timeout=60):
        """Returns the output up to `text`, which the next call does not see again."""
        deadline = time.monotonic() + timeout
        while text.encode() not in self._shown:
            if not select.select([self._master], [], [], max(0, deadline - time.monotonic()))[0]:
                raise AssertionError(f"no '{text}' within {timeout} s; the terminal shows {self._shown.decode(errors='replace')}")
            self._shown += os.read(self._master, 1 << 16)
        before, _, self._shown = self._shown.partition(text.encode())
        return before.decode(errors="replace")

    def await_end(self, timeout=60):
        """Returns the exit status of the program, and the rest of its output."""
        deadline = time.monotonic() + timeout
        try:
            while select.select([self._master], [], [], max(0, deadline - time.monotonic()))[0]:
                if not (data := os.read(self._master, 1 << 16)):
                    break
                self._shown += data
        except OSError:
            pass  # The last process has closed the terminal.
        return self._process.wait(max(0.1, deadline - time.monotonic())), self._shown.decode(errors="replace")
