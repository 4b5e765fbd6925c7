"""Options of `earshot get` that people know from other downloaders."""

import base64
import hashlib
import json
import os
import signal
import subprocess
import urllib.parse

from support.harness import Bus, Commands, TestCase, binary, remove_folder, temporary_folder
from support.origin import Origin, body
from support.processes import eventually
from support.script import ScriptedOrigin
from support.terminal import Terminal


class DownloaderTests(TestCase):
    """The tests share a bus. Each has a folder and an environment of its own."""

    @classmethod
    def setUpClass(cls):
        cls.bus = cls.enterClassContext(Bus(workers=1))

    def setUp(self):
        self.origin = self.enterContext(Origin())
        folder = temporary_folder()
        self.addCleanup(remove_folder, folder)
        self.user = Commands(self.bus.runtime, folder)
        self.out = folder / "out"

    def get(self, *arguments, **options):
        return self.user.run("get", "--no-spawn", *arguments, **options)

    def done(self, *arguments, **options):
        """Runs a command that succeeds, and returns its standard output."""
        program = self.get(*arguments, **options)
        self.assertEqual(program.status, 0, program.describe())
        return program.stdout

    def seen(self, *arguments, target="/headers"):
        """Returns the header fields that the origin received."""
        return json.loads(self.done(*arguments, self.origin.url + target))["headers"]

    def basic(self, text):
        return "Basic " + base64.b64encode(text.encode()).decode()

    def test_a_body_has_the_type_of_a_form_unless_the_user_gives_another(self):
        for given, wanted in (([], "application/x-www-form-urlencoded"), (["-H", "content-type: text/plain"], "text/plain")):
            sent = json.loads(self.done("--data", "a=b", *given, self.origin.url + "/headers"))["headers"]
            self.assertEqual(sent["content-type"], wanted)

    def test_the_page_of_a_failure_is_written_if_that_is_wanted(self):
        page = self.origin.url + "/status/404"
        for arguments in (["-o", self.out / "page"], ["-d", self.out]):
            self.assertEqual(self.get(*arguments, page).status, 22)
            self.assertFalse(list(self.out.glob("*")), "no file by default")
        program = self.get("--fail-body", "--json", "-d", self.out, page)
        line = json.loads(program.stdout)
        self.assertEqual((program.status, line["code"], line["path"]), (22, "http-status", f"{self.out}/404"))
        content = (self.out / "404").read_bytes()
        self.assertEqual((hashlib.sha256(content).hexdigest(), line["length"]), (line["sha256"], len(content)))
        self.assertTrue(content)
        program = self.get("--fail-body", page)
        self.assertEqual((program.status, program.stdout), (22, content))
        self.assertEqual(self.get(page).stdout, b"")

    def test_a_body_that_is_no_newer_replaces_no_file(self):
        def serve(connection):
            while target := connection.request():
                date = {"/same": "Sun, 09 Sep 2001 01:46:40 GMT", "/newer": "Sun, 09 Sep 2001 01:46:41 GMT"}[target]
                connection.send(f"HTTP/1.1 200 OK\r\nLast-Modified: {date}\r\nContent-Length: 3\r\n\r\nnew".encode())

        self.out.mkdir()
        for name in ("same", "newer", "one"):
            (self.out / name).write_text("old")
            os.utime(self.out / name, (1_000_000_000, 1_000_000_000))
        with ScriptedOrigin(serve) as origin:
            self.done("--timestamping", "-d", self.out, f"{origin.url}/same", f"{origin.url}/newer")
            self.done("--timestamping", "-o", self.out / "one", f"{origin.url}/same")
        found = {path.name: path.read_text() for path in self.out.iterdir()}
        self.assertEqual(found, {"same": "old", "newer": "new", "one": "old"})

    def test_a_quiet_run_with_a_cookie_jar_ends(self):
        self.done("-q", "-c", self.user.folder / "jar", self.origin.url + "/set-cookie/a=b")
        self.assertIn("\ta\tb\n", (self.user.folder / "jar").read_text())

    def test_the_limit_of_a_shared_bus_is_stated(self):
        program = self.get("-j", "30", "-d", self.out, self.origin.url + "/bytes/1")
        self.assertIn("-j 30: the bus has at most 6 transfers to one origin at a time; raise that with `earshot set origin-limit 30`", program.stderr)
        self.assertNotIn("-j", self.get("-j", "6", "-d", self.out, self.origin.url + "/bytes/1").stderr)

    def test_a_private_bus_has_the_limit_of_the_command(self):
        commands = Commands(self.user.folder / "private", self.user.folder)
        self.addCleanup(commands.await_no_survivors)
        get = commands.start("get", "-j", "8", "-d", "parallel", *(f"{self.origin.url}/gate/eight?{number}" for number in range(8)))
        self.origin.await_running(8)
        self.origin.open_gate("eight")
        self.assertEqual(get.wait(), 0, get.describe())

    # Fields of the request.

    def test_user_and_user_agent_are_fields_of_the_request(self):
        fields = self.seen("-u", "me:sesame:open", "-A", "agent/1")
        self.assertEqual((fields["authorization"], fields["user-agent"]), (self.basic("me:sesame:open"), "agent/1"))

    def test_netrc_serves_each_url_of_a_list_with_its_own_entry(self):
        netrc = self.user.folder / "netrc"
        netrc.write_text('machine 127.0.0.1 login "me" password "sesame"\n')
        local = self.origin.url.replace("127.0.0.1", "localhost")
        self.done("--netrc-file", netrc, "-d", self.out, self.origin.url + "/headers?a", local + "/headers?b")
        sent = [json.loads(path.read_bytes())["headers"].get("authorization") for path in sorted(self.out.iterdir())]
        self.assertEqual(sorted(sent, key=bool), [None, self.basic("me:sesame")])
        self.user.environment["NETRC"] = str(netrc)
        self.assertEqual(self.seen("--netrc", target="/headers?c")["authorization"], self.basic("me:sesame"))
        netrc.write_text('machine 127.0.0.1 login me password "sesame')
        program = self.get("--netrc", self.origin.url + "/headers?d")
        self.assertEqual(program.status, 66, program.describe())
        self.assertNotIn("sesame", program.stderr)
        netrc.unlink()
        self.assertEqual(self.get("--netrc", self.origin.url + "/headers").status, 66)

    def test_a_password_is_in_no_message_of_the_bus(self):
        self.get("-u", "me:sesame", "-v", self.origin.url + "/status/401")
        status = self.user.run("status", "--json")
        text = self.bus.program.stderr + status.stdout.decode()
        for secret in ("sesame", self.basic("me:sesame")[6:]):
            self.assertNotIn(secret, text)

    # Header fields of the response.

    def test_head_and_include_print_status_and_fields(self):
        head = self.done("-I", self.origin.url + "/bytes/5000").decode()
        self.assertTrue(head.startswith("HTTP 200\n") and head.endswith("\n\n"), head)
        self.assertIn("content-length: 5000\n", head.lower())
        self.assertEqual(self.origin.log()[0].method, "HEAD")
        whole = self.done("--include", self.origin.url + "/bytes/5000")
        fields, _, content = whole.partition(b"\n\n")
        self.assertTrue(fields.startswith(b"HTTP 200\n"), fields)
        self.assertEqual(content, body(5000))
        missing = self.get("-I", self.origin.url + "/status/404")
        self.assertEqual((missing.status, missing.stdout[:9]), (22, b"HTTP 404\n"), missing.describe())

    def test_fields_go_to_a_file_of_their_own(self):
        heads = self.user.folder / "heads"
        urls = [f"{self.origin.url}/bytes/{size}" for size in (10, 20)]
        self.done("-D", heads, "-d", self.out, *urls)
        self.assertEqual(heads.read_text().count("HTTP 200\n"), 2)
        self.assertEqual(sorted(path.stat().st_size for path in self.out.iterdir()), [10, 20])

    def test_json_lines_have_the_fields(self):
        line = json.loads(self.done("--json", self.origin.url + "/set-cookie/a=1"))
        self.assertEqual(line["headers"]["set-cookie"][0].split(";")[0], "a=1")
        self.assertEqual(line["source"], "network")

    def test_a_terminal_shows_no_control_characters_of_a_server(self):
        def serve(connection):
            while connection.request():
                connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-E: a\xc2\x9b31;5m\xe2\x80\xae\r\n\r\n")

        origin = self.enterContext(ScriptedOrigin(serve))
        command = [binary(), "get", "--no-spawn", "-q", "-I", origin.url + "/"]
        with Terminal(command, self.user.environment, self.user.folder) as terminal:
            status, shown = terminal.await_end()
        self.assertEqual(status, 0, shown)
        self.assertIn("x-e: a\\u{9b}31;5m\\u{202e}\r\n", shown.lower())
        self.assertIn(b"a\xc2\x9b31;5m\xe2\x80\xae\n", self.done("-I", origin.url + "/"), "a file gets the bytes")

    def test_quiet_does_not_report_a_broker_that_is_slow_to_answer(self):
        os.kill(self.bus.broker, signal.SIGSTOP)
        self.addCleanup(os.kill, self.bus.broker, signal.SIGCONT)
        url = self.origin.url + "/bytes/10"
        quiet, other = [self.user.start("get", "--no-spawn", *option, url) for option in (["-q"], [])]
        other.await_line("waiting for the broker")
        os.kill(self.bus.broker, signal.SIGCONT)
        for get in (quiet, other):
            self.assertEqual(get.wait(), 0, get.describe())
        self.assertEqual(quiet.stderr, "")

    # The end by a signal, and outputs that are no regular files.

    def test_a_signal_ends_the_wait_for_a_named_pipe(self):
        pipe = self.user.folder / "pipe"
        os.mkfifo(pipe)
        url = self.origin.url + "/bytes/10"
        for option, *others in (["-o"], ["-D"], ["--failed", "-d", self.out]):
            with self.subTest(option):
                get = self.user.start("get", "--no-spawn", option, pipe, *others, url)
                eventually(lambda: self.blocks(get.pid, signal.SIGINT), "signals are events")
                get.signal(signal.SIGINT)
                self.assertEqual(get.wait(), 130, get.describe())
        for option in ("--netrc-file", "--cookie-file"):
            with self.subTest(option):
                get = self.user.start("get", "--no-spawn", option, pipe, url)
                writer = eventually(lambda: self.writer(pipe), "the pipe has a reader")
                self.addCleanup(os.close, writer)
                get.signal(signal.SIGINT)
                self.assertEqual(get.wait(), -signal.SIGINT, get.describe())

    def blocks(self, pid, number):
        """Returns whether a process has blocked a signal."""
        with open(f"/proc/{pid}/status") as status:
            mask = next(line.split()[1] for line in status if line.startswith("SigBlk:"))
        return int(mask, 16) >> (number - 1) & 1

    def writer(self, pipe):
        """Returns a descriptor for writing; None if the named pipe has no reader."""
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return None

    def test_a_signal_that_the_parent_disabled_does_not_end_a_run(self):
        url = f"{self.origin.url}/gate/kept?bytes=5"
        self.addCleanup(self.origin.open_gate, "kept")
        get = self.user.start_ignoring([signal.SIGHUP, signal.SIGINT], "get", "--no-spawn", "-o", self.out, url)
        self.origin.await_running(1)
        for number in (signal.SIGHUP, signal.SIGINT):
            get.signal(number)
        self.assertEqual(len(self.user.run("list").stdout.splitlines()), 1)
        self.origin.open_gate("kept")
        self.assertEqual(get.wait(), 0, get.describe())

    def test_standard_output_is_appended_to_by_each_of_its_names(self):
        size = 300_000
        url = f"{self.origin.url}/bytes/{size}"
        for number, arguments in enumerate(([], ["-o", "-"], ["-o", "/dev/stdout"], ["-o", "/proc/self/fd/1"], ["-o", "link"])):
            with self.subTest(arguments=arguments):
                log = self.user.folder / f"log-{number}"
                log.write_bytes(b"old\n")
                if arguments[-1:] == ["link"]:
                    (self.user.folder / "link").symlink_to("/proc/self/fd/1")
                with open(log, "ab") as stream:
                    subprocess.run([binary(), "get", "--no-spawn", *arguments, url], stdout=stream, check=True, timeout=60,
                                   env=self.user.environment, cwd=self.user.folder)
                self.assertTrue(log.read_bytes() == b"old\n" + body(size))
        self.assertTrue((self.user.folder / "link").is_symlink())

    def test_failures_go_to_a_named_pipe_or_standard_output(self):
        pipe = self.user.folder / "pipe"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        missing = self.origin.url + "/status/404"
        lines = f"# HTTP status 404 (http-status)\n{missing}\n  out=404\n".encode()
        self.assertEqual(self.get("-d", self.out, "--failed", pipe, missing).status, 22)
        self.assertEqual(os.read(reader, 1000), lines)
        self.assertTrue(pipe.is_fifo())
        self.assertEqual(self.get("-d", self.out, "--failed", "-", missing).stdout, lines)
        self.assertFalse((self.user.folder / "-").exists())

    def test_an_empty_value_of_an_option_is_its_value(self):
        urls = [f"{self.origin.url}/headers?{number}" for number in (1, 2)]
        self.done("-d", self.out, "--user-agent=", *urls)
        self.assertEqual(len(list(self.out.iterdir())), 2)
        for option in ("--directory=", "--failed="):
            refused = self.get(option, *urls)
            self.assertEqual(refused.status, 64, refused.describe())
            self.assertIn("the path is empty", refused.stderr)

    # Checks.

    def test_json_lines_list_the_redirects_of_their_request(self):
        target = self.origin.url + "/bytes/5?token=1"
        path = "/redirect-to?" + urllib.parse.urlencode({"url": target})
        lines = [json.loads(line) for line in self.done(
            "--json", self.origin.url + path, self.origin.url + "/redirect/2", target).splitlines()]
        lines.sort(key=lambda line: line["index"])
        self.assertEqual([hop["url"] for hop in lines[0]["redirects"]], [target])
        self.assertEqual(len(lines[1]["redirects"]), 2)
        self.assertEqual(lines[1]["redirects"][-1]["url"], lines[1]["final"])
        self.assertTrue(all(300 <= hop["status"] < 400 for hop in lines[1]["redirects"]), lines[1])
        self.assertNotIn("redirects", lines[2])

    def test_a_body_that_does_not_match_its_checksum_leaves_no_file(self):
        size = 3 << 20
        url = f"{self.origin.url}/bytes/{size}"
        right = "sha256:" + hashlib.sha256(body(size)).hexdigest().upper()
        wrong = "sha256:" + hashlib.sha256(b"other").hexdigest()
        target = self.user.folder / "file"
        for destination in (["-o", target], ["-d", self.out], []):
            with self.subTest(destination=destination):
                program = self.get("--checksum", wrong, *destination, url)
                self.assertEqual((program.status, program.stdout), (65, b""), program.describe())
                self.assertIn("digest-mismatch", program.stderr)
                self.assertFalse(target.exists())
                self.assertEqual(list(self.out.iterdir()) if self.out.exists() else [], [])
        self.done("--checksum", right, "-o", target, url)
        self.assertEqual(target.read_bytes(), body(size))
        target.write_text("old")
        self.assertEqual(self.get("--checksum", wrong, "-o", target, url).status, 65)
        self.assertEqual(target.read_text(), "old")
        self.assertEqual(self.get("--checksum", wrong, "-d", self.out, url, url).status, 64)

    def test_a_dry_run_sends_nothing(self):
        urls = [self.origin.url + "/a/x.bin", self.origin.url + "/b/x.bin"]
        program = self.user.run("get", "--dry-run", "-d", "out", *urls, "http://a b/")
        self.assertEqual(program.status, 2, program.describe())
        self.assertEqual(program.stdout.decode().splitlines(),
                         [f"GET {urls[0]} -> out/x.bin", f"GET {urls[1]} -> out/x-2.bin"])
        self.assertFalse(os.path.exists(self.user.folder / "out"))
        line = json.loads(self.done("--dry-run", "--json", "-I", urls[0]))
        self.assertEqual(line, {"method": "HEAD", "url": urls[0]})
        self.assertEqual(self.done("--dry-run", "http://bücher.example/ü").decode(), "GET http://bücher.example/ü\n")
        self.assertEqual(self.origin.log(), [])

    def test_a_dry_run_reports_invalid_options_of_a_list_and_no_secrets(self):
        host = self.origin.url.removeprefix("http://")
        lines = [f"http://me:s3cret@{host}/a?s3cret", f"{self.origin.url}/b", "  out=../x", f"{self.origin.url}/c", "  frob=1"]
        (self.user.folder / "list").write_text("\n".join(lines))
        program = self.get("--dry-run", "-d", "out", "-i", "list")
        self.assertEqual(program.status, 2, program.describe())
        self.assertEqual(program.stdout.decode(), f"GET {self.origin.url}/a?... -> out/a\n")
        self.assertEqual(program.stderr.count("(bad-option)"), 2, program.stderr)
        self.assertIn("s3cret", self.get("--dry-run", "-v", "-d", "out", "-i", "list").stdout.decode())

    def test_sizes_have_suffixes(self):
        self.assertEqual(self.get("--max-bytes", "4K", "-o", os.devnull, self.origin.url + "/bytes/4097").status, 63)
        self.done("--max-bytes", "4K", "-o", os.devnull, self.origin.url + "/bytes/4096")
        output = self.user.run("set", "spool-size", "3G").stdout.decode()
        self.assertIn(str(3 << 30), output)

    # The number of requests.

    def test_jobs_bound_the_requests_to_one_origin(self):
        names = [f"/gate/j{number}?bytes=10" for number in range(4)]
        program = self.user.start("get", "--no-spawn", "-j", "2", "-d", self.out,
                                 *[self.origin.url + name for name in names])
        self.addCleanup(program.kill)
        for number in range(4):
            # The request after the next starts only when one has ended.
            started = min(number + 2, 4)
            for name in names[:started]:
                self.origin.await_count(name, 1)
            self.assertEqual(self.origin.total, started)
            self.origin.open_gate(f"j{number}")
        self.assertEqual(program.wait(), 0, program.describe())
        self.assertEqual(len(list(self.out.iterdir())), 4)
        self.assertEqual(self.origin.most_at_once, 2)
