"""Lists of URLs: names and options of their files, files that exist, and lists of failures."""

import hashlib
import json
import os
import signal
import subprocess
import time

from support.figures import report
from support.harness import Bus, TestCase, binary
from support.nginx import Nginx
from support.origin import Origin, body
from support.processes import Program, eventually
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
                first.await_line(f"{nginx.url}/none", timeout=120)
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


class TailTests(TestCase):
    def test_the_first_file_comes_within_100_ms_of_its_line_of_tail(self):
        """The pipe stays open. The time must meet the bound only with EARSHOT_LONG=1."""
        with Bus() as bus, Origin() as origin:
            lines = bus.folder / "list"
            lines.touch()
            with subprocess.Popen(["tail", "-f", lines], stdout=subprocess.PIPE) as tail:
                get = Program([binary(), "get", "-i", "-", "-d", "out", "--json"], bus.environment, bus.folder, stdin=tail.stdout)
                delays = []
                for number in range(1, 21 if LONG else 4):
                    began = time.monotonic()
                    with lines.open("a") as list_:
                        list_.write(f"{origin.url}/bytes/{number}\n")
                    get.await_line(f'"index":{number},', "stdout")
                    delays.append(time.monotonic() - began)
                    self.assertEqual((bus.folder / "out" / str(number)).read_bytes(), body(number))
                tail.kill()
            self.assertEqual(get.wait(), 0, get.describe())
            report(f"first file after {delays[0] * 1000:.0f} ms, others after at most {max(delays[1:]) * 1000:.0f} ms")
            if LONG:
                self.assertLess(max(delays), 0.1)


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
        outcomes = self.get("-i", "-", "-d", "options", "--json", input=lines.encode(), status=2).stdout.splitlines()
        self.assertEqual({line["index"]: line.get("code") for line in map(json.loads, outcomes)},
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
            outcomes = {line["index"]: line.get("skipped") for line in map(json.loads, got.stdout.splitlines())}
            self.assertEqual(outcomes, {1: "unchanged", 2: None})
            self.assertEqual(self.files("stamped"), {"old": b"old 1", "new": b"new 2"})
            self.get("-o", out / "one", "--remote-time", urls[0])
            self.assertEqual((out / "one").stat().st_mtime, 1_000_000_000)
            (out / "one").write_text("kept")
            self.assertEqual(self.get("-o", out / "one", "--no-clobber", urls[0]).stderr, "")
            self.assertEqual((out / "one").read_text(), "kept")

    def test_a_partial_file_is_continued(self):
        root, out = self.bus.folder / "whole", self.bus.folder / "partial"
        root.mkdir()
        out.mkdir()
        content = body(300_000, "whole")
        for name in ("rest", "done", "newer", "fresh"):
            (root / name).write_bytes(content)
            os.utime(root / name, (1_000_000_000, 1_000_000_000))
        # Other bytes than those of the server show that only the rest came.
        (out / "rest").write_bytes(bytes(100_000))
        (out / "done").write_bytes(bytes(300_000))
        (out / "newer").write_bytes(bytes(10))
        os.utime(out / "newer", (999_999_999, 999_999_999))
        with Nginx(self.bus.folder / "nginx-continue", root) as nginx:
            urls = [f"{nginx.url}/{name}" for name in ("rest", "done", "newer", "fresh")]
            got = self.get("-d", out, "--continue", "--json", *urls, status=2)
        outcomes = {line["index"]: (line.get("skipped"), line.get("code")) for line in map(json.loads, got.stdout.splitlines())}
        self.assertEqual(outcomes, {1: (None, None), 2: ("complete", None), 3: (None, "write-failed"), 4: (None, None)})
        self.assertTrue(self.files("partial") == {"rest": bytes(100_000) + content[100_000:], "done": bytes(300_000),
                                                  "newer": bytes(10), "fresh": content})

    def test_a_complete_file_is_fetched_anew_if_only_its_entity_tag_has_changed(self):
        """The new version has the length and the time of the old one."""
        content, versions = {"tagged": body(1_000, "one"), "untagged": body(1_000, "one")}, {"tagged": '"1"', "untagged": None}
        requested = []

        def serve(connection):
            while request := connection.head():
                target = request.split(" ")[1].strip("/")
                fields = dict(line.lower().split(": ", 1) for line in request.split("\r\n")[1:] if line)
                requested.append((target, fields.get("if-range")))
                known = content[target]
                is_current = fields.get("if-range") in (None, versions[target])
                tag = f"ETag: {versions[target]}\r\n" if versions[target] else ""
                tag += "Last-Modified: Sun, 09 Sep 2001 01:46:40 GMT\r\n"
                if "range" in fields and is_current:
                    connection.send(f"HTTP/1.1 416 R\r\n{tag}Content-Range: bytes */1000\r\nContent-Length: 0\r\n\r\n".encode())
                else:
                    connection.send(f"HTTP/1.1 200 OK\r\n{tag}Content-Length: 1000\r\n\r\n".encode(), known)

        with ScriptedOrigin(serve) as origin:
            urls = [f"{origin.url}/{name}" for name in content]
            for arguments in (["-d", "tags", *urls], ["-d", "tags", *urls]):
                got = self.get("--continue", *arguments)
            self.assertIn("2 skipped", got.stderr)
            content.update(tagged=body(1_000, "two"), untagged=body(1_000, "two"))
            versions.update(tagged='"2"')
            self.assertIn("1 skipped", self.get("--continue", "-d", "tags", *urls).stderr)
            files = self.files("tags")
            self.assertTrue(files == {"tagged": body(1_000, "two"), "untagged": body(1_000, "one")})
            self.assertIn("2 skipped", self.get("--continue", "-d", "tags", *urls).stderr)
        self.assertEqual([tag for name, tag in requested if name == "tagged"], [None, '"1"', '"1"', '"2"'])
        self.assertEqual({tag for name, tag in requested if name == "untagged"}, {None})

    def test_a_partial_file_stays_if_the_response_does_not_continue_it(self):
        heads = {"/part": "206 A\r\nContent-Range: bytes 100-149/200\r\nContent-Length: 50",
                 "/whole": "206 A\r\nContent-Range: bytes 0-49/200\r\nContent-Length: 50",
                 "/coded": "206 A\r\nContent-Range: bytes 100-149/150\r\nContent-Encoding: gzip\r\nContent-Length: 50",
                 "/none": "206 A\r\nContent-Length: 50", "/cut": "206 A\r\nContent-Range: bytes 100-199/200\r\nContent-Length: 100",
                 "/shorter": "416 A\r\nContent-Range: bytes */50\r\nContent-Length: 50",
                 "/unknown": "416 A\r\nContent-Length: 50"}

        def serve(connection):
            while target := connection.request():
                connection.send(f"HTTP/1.1 {heads[target]}\r\n\r\n".encode(), body(50))
                if target == "/cut":
                    return

        out = self.bus.folder / "unfit"
        out.mkdir()
        for target in heads:
            (out / target[1:]).write_bytes(bytes(100))
        with ScriptedOrigin(serve) as origin:
            got = self.get("-d", out, "--continue", "--json", "--retries", "0", *(f"{origin.url}{target}" for target in heads), status=2)
        codes = {line["url"].removeprefix(origin.url): line["code"] for line in map(json.loads, got.stdout.splitlines())}
        failures = {"/cut": "truncated", "/unknown": "http-status"}
        self.assertEqual(codes, {target: failures.get(target, "write-failed") for target in heads})
        self.assertEqual(set(self.files("unfit").values()), {bytes(100)})

    def test_a_continued_file_has_the_expected_hash(self):
        root, out = self.bus.folder / "hashed-root", self.bus.folder / "hashed-out"
        root.mkdir()
        out.mkdir()
        content = body(300_000, "hashed")
        (root / "a").write_bytes(content)
        (root / "empty").write_bytes(content)
        os.utime(root / "a", (1_000_000_000, 1_000_000_000))
        digest = hashlib.sha256(content).hexdigest()
        with Nginx(self.bus.folder / "nginx-hashed", root) as nginx:
            get = ("-o", out / "a", "--continue", "--checksum", f"sha256:{digest}", f"{nginx.url}/a")
            (out / "a").write_bytes(bytes(100_000))
            self.get(*get, status=65)
            self.assertTrue((out / "a").read_bytes() == bytes(100_000), "the file stays")
            (out / "a").write_bytes(content[:100_000])
            self.get(*get)
            self.assertTrue((out / "a").read_bytes() == content)
            (out / "empty").write_bytes(b"")
            self.get("-d", out, "--continue", f"{nginx.url}/empty")
            self.assertTrue((out / "empty").read_bytes() == content, "an empty file is replaced")
        (out / "bytes").write_bytes(b"x")
        self.get("-o", out / "bytes", "--continue", "--checksum", f"sha256:{digest}", f"{self.origin.url}/bytes/50", status=65)
        self.assertEqual((out / "bytes").read_bytes(), b"x", "a server without ranges sent another body")
