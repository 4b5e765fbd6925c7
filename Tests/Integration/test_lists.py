"""Lists of URLs: names and options of their files, files that exist, and lists of failures."""

import json
import os
import signal

from support.harness import Bus, TestCase
from support.nginx import Nginx
from support.origin import Origin, body
from support.processes import eventually
from support.script import ScriptedOrigin

LONG = os.environ.get("EARSHOT_LONG") == "1"


class RepeatedListTests(TestCase):
    WINDOW = 1024
    """Requests that a run has at most at a time."""
    BEFORE, AFTER = (40_000, 58_976) if LONG else (300, 700)

    def test_an_interrupted_list_that_is_repeated_does_only_the_rest(self):
        """The gate holds back a window of requests in the middle, so the last files are not requested in the first run."""
        with Bus() as bus, Origin() as origin:
            root, out = bus.folder / "root", bus.folder / "out"
            root.mkdir()
            names = [f"f{index}" for index in range(self.BEFORE + self.AFTER)]
            for name in names:
                (root / name).write_bytes(name.encode())
            with Nginx(bus.folder / "nginx", root) as nginx:
                files = [f"{nginx.url}/{name}" for name in names]
                held = [f"{origin.url}/gate/rest?seed={number}" for number in range(1, self.WINDOW + 1)]
                urls = [*files[:self.BEFORE], f"{nginx.url}/none", *held, *files[self.BEFORE:]]
                (bus.folder / "list").write_text("".join(f"{url}\n" for url in urls))
                command = ["get", "-i", "list", "-d", out, "--no-clobber", "--failed", "failed"]
                first = bus.start(*command)
                eventually(lambda: out.exists() and len(list(out.iterdir())) == self.BEFORE, "the first files are there", 120)
                origin.await_count("/gate/rest?seed=1", 1)
                os.kill(first.pid, signal.SIGINT)
                self.assertEqual(first.wait(), 130, first.describe())
                self.assertRegex(first.stderr, rf"interrupted: {self.BEFORE} of {len(urls)} files, 1 failed, .*; repeat the command")
                left = self.urls(bus.folder / "failed")
                self.assertEqual(left, [f"{nginx.url}/none", *urls[self.BEFORE + 1:]], "failures, and the rest in its order")
                origin.open_gate("rest")
                second = bus.run(*command, timeout=300)
            requests = nginx.requests()
            self.assertEqual(second.status, 2, second.describe())
            self.assertRegex(second.stderr, rf"{self.WINDOW + self.AFTER} files, 1 failed, .*, {self.BEFORE} skipped\n")
            self.assertEqual(requests, {**{f"/{name}": 1 for name in names}, "/none": 2}, "no file was fetched twice")
            self.assertEqual(self.urls(bus.folder / "failed"), [f"{nginx.url}/none"])
            found = {path.name: path.read_bytes() for path in out.iterdir()}
            wanted = {name: name.encode() for name in names}
            wanted |= {f"rest-{number}" if number > 1 else "rest": body(100, str(number)) for number in range(1, self.WINDOW + 1)}
            self.assertTrue(found == wanted, "each file has the content of its URL")

    def urls(self, path):
        return [line for line in path.read_text().splitlines() if line[0] not in "# "]


class ListTests(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.origin = cls.enterClassContext(Origin())
        cls.bus = cls.enterClassContext(Bus())

    def get(self, *arguments, input=None, status=0):
        program = self.bus.run("get", *arguments, input=input)
        self.assertEqual(program.status, status, program.describe())
        return program

    def files(self, name):
        folder = self.bus.folder / name
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def test_a_list_of_failures_names_files_as_the_first_run(self):
        urls = [f"{self.origin.url}/bytes/1?seed={seed}" for seed in "ab"]
        (self.bus.folder / "again").write_text(f"{urls[0]}\n{self.origin.url}/flaky/1?a\n{urls[1]}\n")
        first = self.get("-i", "again", "-d", "named", "--failed", "bad", "--retries", "0", status=2)
        self.assertIn("1 failed", first.stderr)
        listed = (self.bus.folder / "bad").read_text()
        self.assertRegex(listed, r"^# HTTP status 503 \(http-status\)\nhttp.*/flaky/1\?a\n  out=1-2\n$")
        self.get("-i", "bad", "-d", "named", "--failed", "bad")
        self.assertEqual((self.bus.folder / "bad").read_text(), "")
        self.assertEqual(sorted(self.files("named")), ["1", "1-2", "1-3"])
        self.assertEqual(self.files("named")["1-3"], body(1, "b"))

    def test_options_of_a_list_hold_for_the_url_above_them(self):
        digest = "ab" * 32
        lines = (f"{self.origin.url}/headers\r\n  out=a/fields.json\r\n\theader=X-One: 1\r\n"
                 f"{self.origin.url}/bytes/9\n  dir=b\n"
                 f"{self.origin.url}/bytes/10\n  checksum=sha-256={digest}\n"
                 f"{self.origin.url}/bytes/11\n  out=../escaped\n")
        told = self.get("-i", "-", "-d", "options", "--json", input=lines.encode(), status=2).stdout.splitlines()
        self.assertEqual({line["index"]: line.get("code") for line in map(json.loads, told)},
                         {1: None, 2: None, 3: "digest-mismatch", 4: "bad-option"})
        found = self.files("options")
        self.assertEqual(sorted(found), ["a/fields.json", "b/9"])
        self.assertEqual(json.loads(found["a/fields.json"])["headers"]["x-one"], "1")

    def test_a_template_names_files(self):
        urls = [f"{self.origin.url}/bytes/5?seed=t", f"{self.origin.url}/bytes/6"]
        self.get("-d", "template", "--out-template", "{host}/{path}.{n}", *urls)
        self.assertEqual(sorted(self.files("template")), ["127.0.0.1/bytes/5.1", "127.0.0.1/bytes/6.2"])
        self.get("-d", "hashed", "--out-template", "{sha256}", urls[0], urls[0])
        self.assertEqual(len(self.files("hashed")), 2)
        for template in ("/tmp/{n}", "../{n}", "{x}"):
            self.get("-d", "none", "--out-template", template, urls[0], status=64)

    def test_a_server_names_files_inside_the_directory(self):
        def serve(connection):
            while target := connection.request():
                name = {"/a": 'filename="../../b.txt"', "/c": "filename*=UTF-8''%2e%2e%2fd.txt"}[target]
                connection.send(f"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Disposition: attachment; {name}\r\n\r\nhi".encode())

        with ScriptedOrigin(serve) as origin:
            self.get("-d", "served", "--remote-name-header", f"{origin.url}/a", f"{origin.url}/c")
        self.assertEqual(self.files("served"), {"b.txt": b"hi", "d.txt": b"hi"})

    def test_an_existing_file_is_replaced_only_by_a_newer_one(self):
        root, out = self.bus.folder / "times", self.bus.folder / "stamped"
        root.mkdir()
        for name in ("old", "new"):
            (root / name).write_text(f"{name} 1")
            os.utime(root / name, (1_000_000_000, 1_000_000_000))
        with Nginx(self.bus.folder / "nginx", root) as nginx:
            urls = [f"{nginx.url}/{name}" for name in ("old", "new")]
            self.get("-d", out, "--timestamping", *urls)
            self.assertEqual((out / "old").stat().st_mtime, 1_000_000_000, "the time of the server")
            (root / "new").write_text("new 2")
            got = self.get("-d", out, "--timestamping", "--json", *urls)
            told = {line["index"]: line.get("skipped") for line in map(json.loads, got.stdout.splitlines())}
            self.assertEqual(told, {1: "unchanged", 2: None})
            self.assertEqual(self.files("stamped"), {"old": b"old 1", "new": b"new 2"})
            self.get("-o", out / "one", "--remote-time", urls[0])
            self.assertEqual((out / "one").stat().st_mtime, 1_000_000_000)
            (out / "one").write_text("kept")
            self.assertEqual(self.get("-o", out / "one", "--no-clobber", urls[0]).stderr, "")
            self.assertEqual((out / "one").read_text(), "kept")
