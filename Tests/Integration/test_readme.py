"""The commands and programs of the README and of docs/ run as written there."""

import hashlib
import os
import pathlib
import re
import signal

from support.harness import PYTHON, ROOT, Bus, TestCase, binary
from support.network import free_port
from support.origin import Origin, body
from support.processes import Program


def blocks(language, document="README.md"):
    """Code blocks of a document in this language."""
    text = pathlib.Path(ROOT / document).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


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
            self.assertEqual(program.wait(), 0, program.describe())
            self.assertTrue(program.stdout == body(size), program.describe())

    def test_the_tour_works(self):
        """Terminal 1 is the bus of this test. The web server listens on a free port, and is awaited."""
        serve, fetch, watch, submit = [block for block in blocks("sh") if "bin/test" not in block and "--http" not in block]
        self.assertEqual(serve, "earshot serve\n")
        server = next(line for line in fetch.splitlines() if "http.server" in line)
        port = str(free_port())
        await_server = 'until (: </dev/tcp/127.0.0.1/8080) 2>/dev/null; do :; done'
        script = "\n".join([fetch.replace(server, f"{server}\n{await_server}"), submit, "read -r _; kill %1"])
        environment = dict(self.bus.environment, PATH=f"{os.path.dirname(binary())}:{self.bus.environment['PATH']}")
        watcher = Program(["bash", "-c", f"exec {watch.strip()} --count 5"], environment)
        watcher.await_line("listening")
        tour = Program(["bash", "-c", script.replace("8080", port)], environment)
        self.assertEqual(watcher.wait(60), 2, f"{watcher.describe()}\n{tour.describe()}")
        tour.write(b"\n")
        self.assertEqual(tour.wait(), 0, tour.describe())
        ended = watcher.stdout.decode()
        for handler, file in (("1", 3), ("3", 6)):
            self.assertRegex(ended, rf"(?m)^gallery/{handler} \S+ 200 http://127.0.0.1:{port}/{file}.txt$")
        self.assertRegex(ended, r"(?m)^gallery/2 last removed -$")
        output = tour.stdout.decode()
        self.assertTrue(output.startswith("picture 1\n"), output)
        self.assertRegex(output, r"(?m)^waits-for +spacing$")
        self.assertRegex(output, r'(?m)"GET /3.txt HTTP/1.1" 200')

    def test_two_lines_of_shell_submit_and_watch(self):
        # A result waits ten seconds for a subscriber. The second request waits for the first one.
        self.assertEqual(self.bus.run("set", "origin-limit", "1").status, 0)
        script = ("earshot submit --handler shell/1 $URL/gate/shell?bytes=31 $URL/status/404\n"
                  "earshot watch shell/1 --count 2 --json\n")
        path = f"{os.path.dirname(binary())}:{self.bus.environment['PATH']}"
        program = Program(["sh", "-ec", script], dict(self.bus.environment, PATH=path, URL=self.origin.url))
        program.await_line("listening")
        self.origin.open_gate("shell")
        self.assertEqual(program.wait(), 2, program.describe())
        output = program.stdout.decode()
        self.assertIn("/gate/shell", output)
        self.assertIn("http-status", output)
        self.assertEqual(self.origin.total, 2)

    def test_the_worker_of_shell_serves_its_scheme(self):
        [block] = [block for block in blocks("sh", "docs/workers.md") if "earshot work" in block and "--bus" not in block]
        serve, get = block.replace("https://example.org/", f"{self.origin.url}/bytes/1000").splitlines()
        path = f"{os.path.dirname(binary())}:{self.bus.environment['PATH']}"
        environment = dict(self.bus.environment, PATH=path)
        worker = Program(["sh", "-ec", "exec " + serve.removesuffix(" &")], environment)
        worker.await_line("serving sum:")
        got = Program(["sh", "-ec", get], environment)
        self.assertEqual(got.wait(), 0, got.describe())
        self.assertEqual(got.stdout.decode().split()[0], hashlib.sha256(body(1000)).hexdigest())
        failed = Program(["sh", "-ec", get.replace("/bytes/1000", "/status/404")], environment)
        self.assertEqual((failed.wait(), failed.stdout), (5, b""), failed.describe())
        self.assertIn("HTTP status 404 (http-status) (worker-failed)", failed.stderr)
        worker.signal(signal.SIGTERM)
        self.assertEqual(worker.wait(), 0, worker.describe())

    def test_the_table_of_settings_has_each_name_and_default(self):
        unit = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
        text = (ROOT / "docs/configuration.md").read_text()
        rows = dict(re.findall(r"^\| `([\w-]+)` \| [^|]+ \| `?([^|`]+)`? \|", text, re.MULTILINE))
        config = self.bus.run("config")
        program = {line.split()[0]: line.split()[1] for line in config.stdout.decode().splitlines()}
        self.assertEqual(set(rows) - {"origin", "address"}, set(program), config.describe())
        for name, default in rows.items():
            number, *words = default.split()
            if name not in ("workers", "origin", "address"):
                self.assertEqual(str(int(number) * unit[words[0]]) if words else number, program[name], name)

    def test_one_who_subscribed_before_hears_it(self):
        client = self.bus.client()
        client.send("SUBSCRIBE shell/")
        client.query("ping")
        submitted = self.bus.run("submit", "--handler", "shell/2", "--id", "mine", f"{self.origin.url}/bytes/32")
        self.assertEqual(submitted.status, 0, submitted.describe())
        answer = client.terminal()
        self.assertEqual(answer.id, ("shell/2", "mine"))
        self.assertResult(answer, body(32))
