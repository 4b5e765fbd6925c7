"""What the README shows is run as it stands there."""

import hashlib
import os
import pathlib
import re
import signal

from support.harness import PYTHON, ROOT, Bus, TestCase, binary
from support.origin import Origin, body
from support.processes import Program


def blocks(language):
    """The code blocks of README.md in this language."""
    readme = pathlib.Path(ROOT / "README.md")
    if not readme.exists():
        raise AssertionError("there is no README.md")
    return re.findall(rf"^```{language}\n(.*?)^```$", readme.read_text(), re.MULTILINE | re.DOTALL)


class ReadmeTests(TestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.bus = self.enterContext(Bus())

    def test_the_python_client_works(self):
        """It is run as `client.py URL` with EARSHOT_RUNTIME set, and writes the body to standard output."""
        found = blocks("python")
        self.assertEqual(len(found), 1, "README.md holds one block of Python: the client")
        self.assertLessEqual(len([line for line in found[0].splitlines() if line]), 15, "fifteen lines of code")
        script = self.bus.folder / "client.py"
        script.write_text(found[0])
        for size in (1000, 200_000):
            program = Program([PYTHON, script, f"{self.origin.url}/bytes/{size}"], self.bus.environment)
            self.assertEqual(program.wait(20), 0, program.describe())
            self.assertTrue(program.stdout == body(size), program.describe())

    def test_two_lines_of_shell_submit_and_watch(self):
        script = ("earshot submit --handler shell/1 $URL/bytes/31 $URL/status/404\n"
                  "earshot watch shell/1 --count 2 --json\n")
        path = f"{os.path.dirname(binary())}:{self.bus.environment['PATH']}"
        program = Program(["sh", "-ec", script], dict(self.bus.environment, PATH=path, URL=self.origin.url))
        self.assertEqual(program.wait(20), 2, program.describe())
        told = program.stdout.decode()
        self.assertIn("/bytes/31", told)
        self.assertIn("http-status", told)
        self.assertEqual(self.origin.total, 2)

    def test_the_worker_of_shell_serves_its_scheme(self):
        [block] = [block for block in blocks("sh") if "earshot work" in block]
        serve, get = block.replace("https://example.org/", f"{self.origin.url}/bytes/1000").splitlines()
        path = f"{os.path.dirname(binary())}:{self.bus.environment['PATH']}"
        environment = dict(self.bus.environment, PATH=path)
        worker = Program(["sh", "-ec", "exec " + serve.removesuffix(" &")], environment)
        worker.await_line("serving sum:")
        got = Program(["sh", "-ec", get], environment)
        self.assertEqual(got.wait(20), 0, got.describe())
        self.assertEqual(got.stdout.decode().split()[0], hashlib.sha256(body(1000)).hexdigest())
        failed = Program(["sh", "-ec", get.replace("/bytes/1000", "/status/404")], environment)
        self.assertEqual((failed.wait(20), failed.stdout), (5, b""), failed.describe())
        self.assertIn("the origin answered 404 (http-status) (worker-failed)", failed.stderr)
        worker.signal(signal.SIGTERM)
        self.assertEqual(worker.wait(10), 0, worker.describe())

    def test_one_who_subscribed_before_hears_it(self):
        client = self.bus.client()
        client.say("SUBSCRIBE shell/")
        client.query("ping")
        submitted = self.bus.run("submit", "--handler", "shell/2", "--id", "mine", f"{self.origin.url}/bytes/32")
        self.assertEqual(submitted.status, 0, submitted.describe())
        answer = client.terminal()
        self.assertEqual(answer.id, ("shell/2", "mine"))
        self.assertResult(answer, body(32))

    def test_nobody_who_watches_ends_it_after_the_grace(self):
        client = self.bus.client()
        client.fetch("nobody", 1, f"{self.origin.url}/bytes/33", subscribe="no")
        self.origin.await_count("/bytes/33", 1)
        self.await_requests(client, timeout=30, pending=0)
        self.assertEqual(client.rest(), [])
        self.assertEqual(self.balance(client)["requests"]["orphaned"], 1)
