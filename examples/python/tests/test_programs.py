"""The example programs and the programs of the README, as a user runs them."""

import pathlib
import re
import signal
import sys
import tempfile
import unittest

import earshot_bus.blocking
from fixture import PROGRAMS, BusTestCase, environment
from support.harness import PYTHON
from support.origin import body
from support.processes import Program, eventually


class ProgramTests(BusTestCase):
    def start(self, name, *arguments):
        return Program([PYTHON, PROGRAMS / name, *arguments], environment(EARSHOT_RUNTIME=self.bus.runtime))

    def run_to_end(self, name, *arguments):
        program = self.start(name, *arguments)
        program.status = program.wait()
        return program

    def test_fetch_one(self):
        done = self.run_to_end("fetch_one.py", f"{self.url}/bytes/100000")
        self.assertEqual((done.status, done.stderr), (0, ""))
        self.assertTrue(done.stdout == body(100_000))
        failed = self.run_to_end("fetch_one.py", f"{self.url}/status/404")
        self.assertEqual(failed.status, 1)
        self.assertIn("http-status", failed.stderr)

    def test_fetch_many(self):
        urls = [f"{self.url}/bytes/{size}" for size in (10, 11, 12)] + [f"{self.url}/stall/{n}" for n in (20, 21)]
        done = self.run_to_end("fetch_many.py", 3, *urls)
        self.assertEqual((done.status, done.stderr), (0, ""))
        lines = done.stdout.decode().splitlines()
        self.assertEqual(sorted(lines[:3]), [f"200 {size} {self.url}/bytes/{size}" for size in (10, 11, 12)])
        self.assertEqual(lines[3:], ["2 were dropped"])

    def test_watch(self):
        watch = self.start("watch.py", "tests/watch/", 2)
        watch.await_line("listening", "stdout")
        with earshot_bus.blocking.connect(self.bus.runtime) as bus, bus.handler("tests/watch/1") as handler:
            handler.fetch(f"{self.url}/bytes/30")
            with self.assertRaises(earshot_bus.FetchFailed):
                handler.fetch(f"{self.url}/status/410")
        self.assertEqual((watch.wait(), watch.stderr), (0, ""))
        self.assertEqual(watch.stdout.decode().splitlines()[1:],
                         [f"tests/watch/1 200 30 {self.url}/bytes/30",
                          "tests/watch/1 http-status The server answered with an error status."])

    def test_replace(self):
        urls = [f"{self.url}/stall/40", f"{self.url}/stall/41", f"{self.url}/bytes/42"]
        done = self.run_to_end("replace.py", *urls)
        self.assertEqual((done.status, done.stderr), (0, ""))
        self.assertEqual(done.stdout.decode().splitlines(),
                         [f"{url} removed: it was replaced" for url in urls[:2]] + [f"{urls[2]} 200"])

    def snippet(self, opening):
        """The program of the README that contains `opening`, with URLs of the origin."""
        readme = (PROGRAMS.parent / "README.md").read_text()
        [code] = [code for code in re.findall(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL) if opening in code]
        paths = {"": "/bytes/1000", "{name}": "{paths[name]}", "a": "/bytes/10", "slow": "/hang", "b": "/bytes/11",
                 "large": "/bytes/5000000"}
        code = re.sub(r"https://example\.org/([\w{}]*)", lambda found: self.url + paths[found[1]], code)
        return 'paths = {"a": "/bytes/10", "b": "/bytes/11", "none": "/status/404"}\n' + code

    def run_snippet(self, opening):
        program = Program([PYTHON, "-c", self.snippet(opening)], environment(EARSHOT_RUNTIME=self.bus.runtime), self.folder)
        self.assertEqual((program.wait(), program.stderr), (0, ""), program.describe())
        return program.stdout.decode()

    @property
    def folder(self):
        if not hasattr(self, "_folder"):
            self._folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="ear-")))
        return self._folder

    def test_the_readme_fetches(self):
        snippet = "import earshot_bus.blocking\n\nwith earshot_bus.blocking.connect() as bus, bus.handler()"
        self.assertRegex(self.run_snippet(snippet), r"^200 \S+ 1000\n$")
        self.assertEqual(self.run_snippet('"a", "b", "none"').splitlines(),
                         [f"{self.url}/bytes/10 200 10 network", f"{self.url}/bytes/11 200 11 network",
                          f"{self.url}/status/404 http-status 404"])
        self.assertEqual((self.folder / "page").read_bytes(), body(11))

    @unittest.skipIf(sys.version_info < (3, 11), "asyncio.timeout is of Python 3.11")
    def test_the_readme_removes(self):
        output = self.run_snippet("tutorial/page").splitlines()
        self.assertEqual([output[1], *output[2:5]],
                         ["page: removed", "second: 200", "first: removed: it was replaced", "cancelled"])

    def test_the_readme_streams(self):
        *steps, path, first, second, watched = self.run_snippet("tutorial/stream").splitlines()
        for step in steps:
            self.assertRegex(step, r"^\d+ of (5000000|None)$")
        self.assertRegex(path, r"^/.+ [0-9a-f]{64}$")
        self.assertEqual({first, second}, {f"{self.url}/bytes/10", f"{self.url}/bytes/11"})
        self.assertEqual(watched, "tutorial/stream 200")

    def test_the_readme_takes_a_durable_result(self):
        submitted = self.bus.run("submit", "--durable", "--handler", "nightly/report", f"{self.url}/bytes/12")
        self.assertEqual(submitted.status, 0, submitted.describe())
        self.assertEqual(self.run_snippet("nightly/"), "nightly/report 200 12\n")
        self.assertEqual((self.folder / "report").read_bytes(), body(12))

    def test_the_readme_serves_a_scheme(self):
        (self.folder / "shout.py").write_text(self.snippet("# shout.py"))
        worker = Program([PYTHON, "-m", "earshot_bus.worker", "shout:shout", "--scheme", "shout"],
                         environment(EARSHOT_RUNTIME=self.bus.runtime), self.folder)
        with earshot_bus.blocking.connect(self.bus.runtime) as bus, bus.handler() as handler:
            eventually(lambda: any("shout" in served["schemes"] for served in bus.status()["workers"]), "the worker serves")
            self.assertEqual(handler.fetch("shout:hello").read(), b"HELLO")
            with self.assertRaisesRegex(earshot_bus.FetchFailed, "no text follows shout:"):
                handler.fetch("shout:")
        worker.signal(signal.SIGTERM)
        self.assertEqual(worker.wait(), 0, worker.describe())

    def test_every_program_is_tested_and_described(self):
        readme = (PROGRAMS.parent / "README.md").read_text()
        tests = "".join(path.read_text() for path in pathlib.Path(__file__).parent.glob("test_*.py"))
        for program in PROGRAMS.glob("*.py"):
            self.assertIn(program.name, readme)
            self.assertTrue(f'"{program.name}"' in tests or f'"{program.stem}:' in tests, program.name)
