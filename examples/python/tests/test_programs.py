"""The example programs, as a user runs them."""

import pathlib

import earshot.blocking
from fixture import PROGRAMS, BusTestCase, environment
from support.harness import PYTHON
from support.origin import body
from support.processes import Program


class ProgramTests(BusTestCase):
    def start(self, name, *arguments):
        return Program([PYTHON, PROGRAMS / name, *arguments], environment(EARSHOT_RUNTIME=self.bus.runtime))

    def run_to_end(self, name, *arguments):
        program = self.start(name, *arguments)
        program.status = program.wait(20)
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
        with earshot.blocking.connect(self.bus.runtime) as bus, bus.handler("tests/watch/1") as handler:
            handler.fetch(f"{self.url}/bytes/30")
            with self.assertRaises(earshot.FetchFailed):
                handler.fetch(f"{self.url}/status/410")
        self.assertEqual((watch.wait(20), watch.stderr), (0, ""))
        self.assertEqual(watch.stdout.decode().splitlines()[1:],
                         [f"tests/watch/1 200 30 {self.url}/bytes/30",
                          "tests/watch/1 http-status The server answered with an error status."])

    def test_replace(self):
        urls = [f"{self.url}/stall/40", f"{self.url}/stall/41", f"{self.url}/bytes/42"]
        done = self.run_to_end("replace.py", *urls)
        self.assertEqual((done.status, done.stderr), (0, ""))
        self.assertEqual(done.stdout.decode().splitlines(),
                         [f"{url} removed: it was replaced" for url in urls[:2]] + [f"{urls[2]} 200"])

    def test_every_program_is_tested_and_told_of(self):
        readme = (PROGRAMS.parent / "README.md").read_text()
        tests = "".join(path.read_text() for path in pathlib.Path(__file__).parent.glob("test_*.py"))
        for program in PROGRAMS.glob("*.py"):
            self.assertIn(program.name, readme)
            self.assertTrue(f'"{program.name}"' in tests or f'"{program.stem}:' in tests, program.name)
