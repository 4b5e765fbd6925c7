"""Files of equal content: two attempts that end together name the same file, and only one of them needs it."""

import hashlib
import os
import pathlib
import shutil
import signal

from support.client import Client
from support.harness import Commands, TestCase, temporary_folder
from support.worker import HandWorker

ROUNDS = 20  # One is enough if the broker reads both ends in one pass.


class Worker(HandWorker):
    def __init__(self, runtime, slots):
        super().__init__(f"ipc://{runtime}/work", f"slots: {slots}", "schemes: http https", f"pid: {os.getpid()}", "host: here")
        self.spool = pathlib.Path(self.expect("LIMITS")[1]["spool"])

    def done(self, attempt, status, content):
        """Returns the end of an attempt with a body in a file."""
        name = f"{os.getpid()}-{attempt}.part"
        (self.spool / name).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        return f"DONE {attempt} {status}", f"length: {len(content)}", f"sha-256: {digest}", f"file: {name}"


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
                    (failing, _), _ = worker.expect("JOB", page)
                    client.fetch("result", turn, result := f"http://other.test/{turn}")
                    (ending, _), _ = worker.expect("JOB", result)
                    messages = [worker.done(failing, 500, content), worker.done(ending, 200, content)]
                    for message in messages:
                        worker.send(*message)
                    answer = client.terminal()
                    self.assertEqual(answer.id, ("result", str(turn)))
                    self.assertResult(answer, content)
                    client.cancel("page", turn)
                worker.close()
        finally:
            broker.signal(signal.SIGTERM)
            self.assertEqual(broker.wait(), 0, broker.describe())
