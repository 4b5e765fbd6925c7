"""Client library under test, behind its adapter: a program that executes the lines of its input and prints the events
of its library. protocols/scenarios/README.md describes the lines."""

import os
import shutil
import subprocess
import time

import zmq

from matching import Received
from support.harness import temporary_folder

FILES = {"result": 4, "failed": 5}
"""Number of words before the path of the body, by the line's first word."""


class Library:
    """A running adapter. Its bodies are files in a temporary folder. The player serves the socket of `stand_in`, the
    stand-in broker of the scenario, while it waits for the adapter."""

    def __init__(self, command, options, folder, environment, stand_in=None):
        self._bodies = temporary_folder()
        self._stand_in = stand_in
        self._log = open(self._bodies / "stderr", "w+b")
        self._process = subprocess.Popen([*command, str(self._bodies), *options], cwd=folder, env=environment,
                                         bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log)
        self._received = b""
        self._greeted = False
        self._is_waiting = True

    def send_command(self, line):
        """Writes a line to the adapter."""
        try:
            self._process.stdin.write((line + "\n").encode())
        except BrokenPipeError:
            pass  # It has ended; its last line states the reason.

    def read(self, timeout):
        """Returns the next event, or None on timeout. The first line, the greeting, needs no request."""
        if self._greeted:
            self.send_command("receive")
        self._greeted = True
        line = self._line(timeout)
        self._is_waiting = line is None
        if line is None:
            return None
        words = line.split(" ")
        count = FILES.get(words[0], len(words))
        return Received(" ".join(words[:count]), {"file": " ".join(words[count:])} if words[count:] else {})

    def _line(self, timeout):
        output = self._process.stdout.fileno()
        poller = zmq.Poller()
        poller.register(output, zmq.POLLIN)
        if self._stand_in is not None:
            poller.register(self._stand_in.socket, zmq.POLLIN)
        deadline = time.monotonic() + timeout
        while b"\n" not in self._received:
            ready = dict(poller.poll(max(0, deadline - time.monotonic()) * 1000))
            if not ready:
                return None
            if self._stand_in is not None and self._stand_in.socket in ready:
                self._stand_in.take()
            if output in ready:
                data = os.read(output, 1 << 16)
                if not data:
                    return None
                self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line.decode("latin-1")

    def describe(self):
        """Returns the end of the adapter's standard error."""
        self._log.flush()
        return (self._bodies / "stderr").read_text(errors="replace")[-2000:]

    def close(self):
        """Closes the adapter's input, on which it ends. Kills it if it waits for an event or does not end in time."""
        if self._is_waiting:
            self._process.kill()
        try:
            self._process.communicate(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        except BrokenPipeError:
            self._process.wait()
        self._log.close()
        shutil.rmtree(self._bodies, ignore_errors=True)
