"""Failures are a FAILED with its code, a sentence on standard error and a specific exit code."""

import json
import shutil
import socket

from support import certificate
from support.harness import Bus, TestCase, temporary_folder
from support.names import NameServer
from support.origin import Origin, body


class FailureTests(TestCase):
    @classmethod
    def setUpClass(cls):
        folder = temporary_folder()
        cls.addClassCleanup(shutil.rmtree, folder)
        cls.origin = cls.enterClassContext(Origin())
        cls.secure = cls.enterClassContext(Origin(certificate=certificate.self_signed(folder)))
        names = cls.enterClassContext(NameServer())
        cls.bus = cls.enterClassContext(Bus(origin_limit=64, arguments=["--dns-server", names.address]))
        # A port that is ours and without a listener.
        closed = cls.enterClassContext(socket.socket())
        closed.bind(("127.0.0.1", 0))
        cls.nobody = f"http://127.0.0.1:{closed.getsockname()[1]}/"

    def check(self, url, code, status, *options, begun=b""):
        """`get url` fails as expected, in text and in JSON, and writes nothing that resembles a result. Only of a body that has
        `begun`, and is written while it arrives, the received part is written."""
        if url.startswith("/"):
            url = self.origin.url + url
        plain = self.bus.run("get", "--retries", "0", *options, url)
        self.assertEqual(plain.status, status, plain.describe())
        self.assertTrue(begun.startswith(plain.stdout), f"an error page is never a result: {plain.describe()}")
        self.assertIn(code, plain.stderr)
        self.assertGreaterEqual(len(plain.stderr.split()), 4, f"a sentence: {plain.stderr!r}")
        self.assertEqual(len(plain.messages), 1, plain.stderr)

        out = self.bus.folder / "out"
        structured = self.bus.run("get", "--retries", "0", "--json", "-d", out, *options, url)
        self.assertEqual(structured.status, status, structured.describe())
        lines = structured.stdout.splitlines()
        self.assertEqual(len(lines), 1, structured.describe())
        line = json.loads(lines[0])
        self.assertEqual((line["url"], line["code"]), (url, code), line)
        self.assertEqual(list(out.iterdir()) if out.exists() else [], [], "nothing was written")
        return line

    def test_404(self):
        self.assertEqual(self.check("/status/404", "http-status", 22)["status"], 404)

    def test_500(self):
        self.assertEqual(self.check("/status/500", "http-status", 22)["status"], 500)

    def test_refused_connection(self):
        self.check(self.nobody, "connect-refused", 7)

    def test_unknown_host(self):
        self.check("http://nobody.example.org/", "unknown-host", 6)

    def test_time_out(self):
        self.check("/hang", "timeout", 28, "--timeout", "0.3")
        self.check("/stall/1000", "timeout", 28, "--timeout", "0.3", begun=body(1000))

    def test_a_header_that_drips_is_no_silence_but_has_a_bound(self):
        client = self.bus.client()
        # On a slow machine an attempt may be silent for the whole limit.
        client.fetch("drip", 1, f"{self.origin.url}/drip-head?bytes=80&seconds=4", timeout=2, retries=5)
        self.assertResult(client.terminal(), b"ok")
        for request in range(2, 7):
            client.fetch("drip", request, f"{self.origin.url}/drip-head?bytes=4000&seconds=200", timeout=1, retries=0)
            answer = client.terminal()
            self.assertFailed(answer, "timeout")
            if "header" in answer.fields["detail"]:
                break
        self.assertIn("header", answer.fields["detail"])

    def test_too_large(self):
        self.check("/bytes/5000", "too-large", 63, "--max-bytes", "4999")
        self.check("/chunked/5000", "too-large", 63, "--max-bytes", "4999")
        self.check("/gzip-bomb/500000000", "too-large", 63, "--max-bytes", "1000000")

    def test_bad_certificate(self):
        self.check(f"{self.secure.url}/bytes/10", "tls", 60)
        self.assertEqual(self.secure.total, 0, "nothing was asked of one who is not who he says")

    def test_redirect_loop(self):
        self.check("/loop/a", "redirect-loop", 47)

    def test_too_many_redirects(self):
        self.check("/redirect/50", "too-many-redirects", 47)
        self.assertEqual(self.origin.count("/redirect/0"), 0)

    def test_truncated_body(self):
        self.check("/cut/1000/2000", "truncated", 18)
        self.check("/cut/100000/200000", "truncated", 18)

    def test_another_scheme(self):
        self.check("ftp://127.0.0.1/file", "unsupported-scheme", 1)
        self.check("file:///etc/hostname", "unsupported-scheme", 1)

    def test_malformed_url(self):
        for url in ("http://", "http://127.0.0.1:99999/", "http://[::1/", "no-scheme-at-all"):
            self.check(url, "malformed-url", 3)

    def test_a_malformed_url_is_followed_by_a_step_that_helps(self):
        for url, end in (("127.0.0.1:8080/x", "(malformed-url); write http://127.0.0.1:8080/x"),
                         ("localhost:8080/x", "(unsupported-scheme); write http://localhost:8080/x"),
                         ("http://127.0.0.1:99999/", "The port is not a number from 1 to 65535 (malformed-url)"),
                         ("", "the URL is empty (malformed-url); give one such as https://example.org/")):
            got = self.bus.run("get", "--", url)
            self.assertTrue(got.stderr.endswith(f"{end}\n"), got.describe())

    def test_a_redirect_to_a_malformed_url_is_told_by_its_fault_and_the_start_of_its_target(self):
        got = self.bus.run("get", f"{self.origin.url}/redirect-to?url=http%3A%2F%2F127.0.0.1%3A99999%2Fa%3Fsecret")
        self.assertEqual(got.status, 3, got.describe())
        text = "The server redirects to http://127.0.0.1:99999/a: The port is not a number from 1 to 65535"
        self.assertTrue(got.stderr.endswith(f": {text} (malformed-url)\n"), got.stderr)

    def test_a_reserved_field_is_named_with_the_reason(self):
        for field, reason in (("Connection: close", "connection (header line 1): it belongs to the connection"),
                              ("Host: h", "host (header line 1): it follows from the URL"),
                              ("Content-Length: 3", "content-length (header line 1): it follows from the body")):
            got = self.bus.run("get", "-H", field, f"{self.origin.url}/bytes/1")
            self.assertEqual(got.status, 43, got.describe())
            self.assertIn(f"The request may not set the field {reason}", got.stderr)
            self.assertTrue(got.stderr.endswith("(bad-header); omit it\n"), got.stderr)


class ExitCodeTests(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.origin = cls.enterClassContext(Origin())
        cls.bus = cls.enterClassContext(Bus())

    def test_all_failed_by_one_cause_is_that_causes(self):
        got = self.bus.run("get", "-d", self.bus.folder / "none", f"{self.origin.url}/status/404",
                           f"{self.origin.url}/status/410")
        self.assertEqual(got.status, 22, got.describe())

    def test_usage_is_64(self):
        for arguments in (["get"], ["get", "--nonsense", "http://127.0.0.1/"], ["nonsense"],
                          ["get", "--priority", "urgent", "http://127.0.0.1/"]):
            got = self.bus.run(*arguments)
            self.assertEqual(got.status, 64, got.describe())
            self.assertTrue(got.stderr)

    def test_what_is_read_as_a_command_of_its_own_speaks_as_one_of_the_program(self):
        for name in ("get", "serve", "broker", "worker"):
            self.assertIn(f"USAGE: earshot {name} ", self.bus.run(name, "--help").stdout.decode())
            self.assertIn(f"earshot {name} --help", self.bus.run(name, "--nonsense").stderr)
            self.assertEqual(self.bus.run(name, "--version").stdout, self.bus.run("--version").stdout)

    def test_no_broker_is_69_for_every_command_that_needs_one(self):
        for arguments in (["submit", "http://127.0.0.1/"], ["watch", "h"], ["drop", "h"], ["cancel", "h", "1"], ["retry", "h"],
                          ["status"], ["why", "h", "1"], ["get", "--no-spawn", "http://127.0.0.1/"]):
            got = self.bus.run(*arguments, "--runtime", self.bus.folder / "nowhere")
            self.assertEqual(got.status, 69, got.describe())
            self.assertIn("no broker", got.stderr.lower())
