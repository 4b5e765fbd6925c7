"""Requests with a body, and methods that are not idempotent."""

import json

from support.harness import Bus, TestCase
from support.origin import Origin
from support.processes import kill


class MethodTests(TestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin(ports=2))
        self.bus = self.enterContext(Bus())
        self.client = self.bus.client()

    def fetch(self, request, method, path, body=None, headers=(), **fields):
        self.client.fetch("h", request, self.origin.url + path, headers, body, method=method, coalesce="no", **fields)

    def test_a_body_arrives_as_it_was_sent(self):
        for number, method in enumerate(("POST", "PUT", "PATCH", "DELETE", "REPORT")):
            self.fetch(number, method, "/headers", bytes(range(256)), [("content-type", "application/x")])
            answer = self.client.terminal()
            self.assertEqual(answer.verb, "RESULT", answer)
            seen = json.loads(answer.content())
            self.assertEqual(seen["method"], method)
            self.assertEqual(seen["body"].encode("latin-1"), bytes(range(256)))
            self.assertEqual(seen["headers"]["content-type"], "application/x")

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
