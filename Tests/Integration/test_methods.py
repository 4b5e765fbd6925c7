"""Requests with a body, and methods that are not idempotent."""

import json
import urllib.parse

from support.harness import Bus, TestCase
from support.origin import Origin
from support.processes import kill


class MethodTests(TestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin(ports=2))
        self.bus = self.enterContext(Bus())
        self.client = self.bus.client()

    def ask(self, request, method, path, body=None, headers=(), **fields):
        self.client.fetch("h", request, self.origin.url + path, headers, body, method=method, coalesce="no", **fields)

    def test_a_body_arrives_as_it_was_sent(self):
        for number, method in enumerate(("POST", "PUT", "PATCH", "DELETE", "REPORT")):
            self.ask(number, method, "/headers", bytes(range(256)), [("content-type", "application/x")])
            answer = self.client.terminal()
            self.assertEqual(answer.verb, "RESULT", answer)
            seen = json.loads(answer.content())
            self.assertEqual(seen["method"], method)
            self.assertEqual(seen["body"].encode("latin-1"), bytes(range(256)))
            self.assertEqual(seen["headers"]["content-type"], "application/x")

    def test_a_redirect_keeps_method_and_body_or_neither(self):
        for status, method, wanted in ((301, "POST", "GET"), (302, "POST", "GET"), (303, "PUT", "GET"),
                                       (307, "POST", "POST"), (308, "PUT", "PUT"), (302, "PUT", "PUT")):
            target = urllib.parse.quote(f"{self.origin.urls[1]}/headers", safe="")
            self.ask(f"{status}{method}", method, f"/redirect-to?url={target}&status={status}", b"form",
                     [("content-type", "a/b"), ("authorization", "Bearer secret"), ("x-kept", "yes")])
            answer = self.client.terminal()
            self.assertEqual(answer.verb, "RESULT", answer)
            seen = json.loads(answer.content())
            self.assertEqual((seen["method"], seen["body"]), (wanted, "" if wanted == "GET" else "form"))
            self.assertEqual("content-type" in seen["headers"], wanted != "GET")
            self.assertNotIn("authorization", seen["headers"])
            self.assertEqual(seen["headers"]["x-kept"], "yes")

    def test_what_may_not_be_done_twice_is_done_once(self):
        self.ask("try", "POST", "/flaky/1?post", b"x", retries=5)
        self.assertFailed(self.client.terminal(), "http-status")
        self.ask("again", "PUT", "/flaky/1?put", b"x", retries=5)
        self.assertEqual(self.client.terminal().verb, "RESULT")
        self.assertEqual([self.origin.count(target) for target in ("/flaky/1?post", "/flaky/1?put")], [1, 2])

    def test_it_is_not_sent_again_over_a_connection_that_was_used(self):
        for number in range(20):
            self.client.fetch("warm", number, f"{self.origin.url}/drop-second?{number}")
            self.client.terminal()
            self.ask(number, "POST", "/drop-second?post", b"x")
            self.assertEqual(self.client.terminal().verb, "RESULT", "it has a connection of its own")
        self.assertEqual(self.origin.count("/drop-second?post"), 20)

    def test_a_worker_s_death_ends_it(self):
        self.ask(1, "POST", "/hang", b"x", retries=5)
        self.origin.await_count("/hang", 1)
        for worker in self.bus.workers:
            kill(worker)
        self.assertFailed(self.client.terminal(), "worker-lost")
        self.assertEqual(self.origin.count("/hang"), 1)

    def test_a_program_that_loses_the_broker_does_not_do_it_again(self):
        program = self.bus.start("get", "--data", "order", f"{self.origin.url}/gate/order")
        self.origin.await_count("/gate/order", 1)
        kill(self.bus.broker)
        self.assertEqual(program.wait(), 5, program.describe())
        self.assertIn("connection-lost", program.stderr)
        self.origin.open_gate("order")
        self.assertEqual(self.origin.count("/gate/order"), 1)

    def test_the_command_sends_text_a_file_and_its_input(self):
        file = self.bus.folder / "body"
        file.write_bytes(b"from a file")
        for arguments, input, wanted in (
                (("--data", "text"), None, ("POST", "text")), (("--data", f"@{file}"), None, ("POST", "from a file")),
                (("-X", "PUT", "--data", "@-"), b"piped", ("PUT", "piped")), (("-X", "DELETE"), None, ("DELETE", ""))):
            got = self.bus.run("get", *arguments, f"{self.origin.url}/headers", input=input)
            self.assertEqual(got.status, 0, got.describe())
            seen = json.loads(got.stdout)
            self.assertEqual((seen["method"], seen["body"]), wanted)
        self.assertEqual(self.bus.run("get", "-X", "GET", "--data", "x", self.origin.url).status, 64)
        self.assertEqual(self.bus.run("get", "--data", f"@{file}.no", self.origin.url).status, 66)

    def test_head_tells_the_length_and_has_no_body(self):
        self.client.fetch("h", 1, f"{self.origin.url}/bytes/70000", method="HEAD")
        answer = self.client.terminal()
        self.assertEqual((answer.verb, answer.content()), ("RESULT", b""), answer)
        self.assertIn(("content-length", " 70000"), [(name.lower(), value) for name, value in answer.headers])
