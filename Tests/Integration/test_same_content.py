"""Files of equal content: two attempts that end together name the same file, and only one of them needs it."""

import hashlib
import os
import pathlib
import shutil
import signal

import zmq

from support.client import Client
from support.harness import Commands, TestCase, temporary_folder

ROUNDS = 20  # One is enough if the broker reads both ends in one pass.


class Worker:
    """Worker controlled by a test."""

    def __init__(self, runtime, slots):
        self.socket = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.rcvtimeo = 10_000
        self.socket.connect(f"ipc://{runtime}/work")
        ready = f"READY EARW/1\nslots: {slots}\nschemes: http https\npid: {os.getpid()}\nhost: here\n"
        self.socket.send(ready.encode())
        self.spool = pathlib.Path(self.hear("LIMITS")[1]["spool"])

    def hear(self, verb, url=None):
        """Returns operands and fields of the next message of this verb, a JOB for `url` if given."""
        while True:
            first, *lines = self.socket.recv_multipart()[0].decode().partition("\n\n")[0].splitlines()
            found, *operands = first.split(" ")
            if found == verb and (url is None or url in operands):
                return operands, dict(line.split(": ", 1) for line in lines)

    def done(self, attempt, status, content):
        """Ends an attempt with a body in a file."""
        name = f"{os.getpid()}-{attempt}.part"
        (self.spool / name).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        return f"DONE {attempt} {status}\nlength: {len(content)}\nsha-256: {digest}\nfile: {name}\n".encode()


class SameContentTests(TestCase):
    def test_an_error_page_that_is_dropped_takes_no_result_of_the_same_content_along(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        commands = Commands(folder / "run", folder)
        broker = commands.start("broker", "--runtime", commands.runtime, "--spool", folder / "spool")
        try:
            with Client(commands.runtime) as client:
                worker = Worker(commands.runtime, slots=2 * ROUNDS)
                for turn in range(ROUNDS):
                    content = os.urandom(100_000)
                    # A retry of an earlier page may arrive after all its requests have ended.
                    client.fetch("page", turn, page := f"http://one.test/{turn}", retries=20)
                    (failing, _), _ = worker.hear("JOB", page)
                    client.fetch("result", turn, result := f"http://other.test/{turn}")
                    (ending, _), _ = worker.hear("JOB", result)
                    said = [worker.done(failing, 500, content), worker.done(ending, 200, content)]
                    for message in said:
                        worker.socket.send(message)
                    answer = client.terminal()
                    self.assertEqual(answer.id, ("result", str(turn)))
                    self.assertResult(answer, content)
                    client.cancel("page", turn)
                worker.socket.close()
        finally:
            broker.signal(signal.SIGTERM)
            self.assertEqual(broker.wait(), 0, broker.describe())
