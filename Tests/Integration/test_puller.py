"""Bodies of other nodes: `earshot puller` between a broker and a node that the test plays."""

import hashlib
import os
import socket
import stat
import time

from support.cluster import Node, Puller, unreachable_address
from support.harness import TestCase
from support.processes import eventually, process_name

LARGE = bytes(range(256)) * 4_096 * 5 + b"the end"
"""More than the bytes for which the client library opens further connections."""
PIECE = 256 << 10


class PullerTests(TestCase):
    def setUp(self):
        self.puller = Puller()
        self.addCleanup(self.puller.close)
        self.node = self.new_node()

    def new_node(self):
        node = Node(self.puller.file.key)
        self.addCleanup(node.close)
        return node

    def assertDone(self, message, content, status="200"):
        self.assertEqual((message.verb, message.operands[1]), ("DONE", status), message)
        self.assertTrue(message.content() == content, "other bytes than those of the node")
        self.assertEqual(message.fields["length"], str(len(content)))
        self.assertEqual(message.fields["sha-256"], hashlib.sha256(content).hexdigest())

    def assertFails(self, message, code):
        self.assertEqual((message.verb, message.operands[1]), ("FAILED", code), message)
        eventually(lambda: not self.puller.files(), lambda: f"no file is left; left: {self.puller.files()[:3]}")

    def test_it_serves_its_scheme_alone(self):
        self.assertEqual(self.puller.ready.fields["schemes"], "earshot-node")
        self.assertEqual(self.puller.ready.fields["slots"], "256")

    def test_a_small_body_comes_in_a_message(self):
        url = self.node.add("small", b"abc", status=404, headers=[("content-type", "text/x"), ("etag", '"1"')])
        message = self.puller.end(self.puller.job(url))
        self.assertDone(message, b"abc", "404")
        self.assertEqual(message.inline, b"abc")
        self.assertEqual(message.headers, [("content-type", " text/x"), ("etag", ' "1"')])
        self.assertEqual(self.node.fetched, [url])

    def test_an_empty_body_has_no_file(self):
        message = self.puller.end(self.puller.job(self.node.add("empty", b"")))
        self.assertDone(message, b"")
        self.assertIsNone(message.inline)

    def test_a_large_body_goes_into_the_spool(self):
        attempt = self.puller.job(self.node.add("large", LARGE, is_pulled=True))
        message = self.puller.end(attempt)
        self.assertDone(message, LARGE)
        name = message.fields["file"]
        self.assertEqual(name, f"{self.puller.program.pid}-{attempt}.part")
        self.assertEqual(stat.S_IMODE(os.stat(self.puller.spool / name).st_mode), 0o400)
        self.assertEqual(self.puller.files(), [name])

    def test_a_large_body_is_reported_while_it_arrives(self):
        url = self.node.add("large", LARGE, is_pulled=True)
        half = 10 * PIECE
        self.node.release(url, half)
        attempt = self.puller.job(url, progress=50, stream="yes")
        while True:
            message = self.puller.receive()
            self.assertEqual((message.verb, message.operands[0]), ("PROGRESS", attempt))
            received, total = (int(word) for word in message.operands[1].split("/"))
            self.assertEqual((total, message.fields["file"]), (len(LARGE), f"{self.puller.program.pid}-{attempt}.part"))
            with open(self.puller.spool / message.fields["file"], "rb") as file:
                self.assertTrue(file.read(received) == LARGE[:received])
            if received == half:
                break
        self.node.release(url, len(LARGE))
        self.assertDone(self.puller.end(attempt), LARGE)

    def test_a_broken_connection_resumes_at_the_offset(self):
        url = self.node.add("large", LARGE, is_pulled=True)
        half = 10 * PIECE
        self.node.release(url, half)
        attempt = self.puller.job(url, progress=50)
        while int(self.puller.receive().operands[1].split("/")[0]) < half:
            pass
        self.node.cut()
        self.node.release(url, len(LARGE))
        self.assertDone(self.puller.end(attempt), LARGE)
        self.assertEqual((self.node.sessions, self.node.resumptions), (1, 1))
        self.assertEqual(len(self.node.reads), len(set(self.node.reads)), "no part is read twice")
        self.assertEqual(self.node.fetched, [url])

    def test_a_node_that_dies_fails_the_job_as_reset(self):
        url = self.node.add("large", LARGE, is_pulled=True)
        self.node.release(url, 10 * PIECE)
        attempt = self.puller.job(url, progress=50)
        self.puller.receive()
        self.node.close()
        self.assertFails(self.puller.end(attempt), "reset")

    def test_a_node_that_does_not_listen_fails_the_job_as_connect_failed(self):
        start = time.monotonic()
        attempt = self.puller.job(f"earshot-node://{unreachable_address()}/k/1")
        self.assertFails(self.puller.end(attempt), "connect-failed")
        self.assertGreater(time.monotonic() - start, 1)

    def test_a_node_that_accepts_and_is_silent_fails_the_job_as_connect_failed(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            attempt = self.puller.job(f"earshot-node://127.0.0.1:{listener.getsockname()[1]}/k/1")
            self.assertFails(self.puller.end(attempt), "connect-failed")

    def test_a_request_without_an_answer_fails_as_reset_and_a_body_that_arrives_goes_on(self):
        large, silent = self.node.add("large", LARGE, is_pulled=True), self.node.url("silent")
        self.node.silent.add(silent)
        self.node.release(large, 10 * PIECE)
        attempt = self.puller.job(large, progress=50)
        self.puller.receive()
        other = self.puller.job(silent, timeout="3600")
        while (message := self.puller.receive()).verb == "PROGRESS":
            pass
        self.assertEqual((message.verb, *message.operands[:2]), ("FAILED", other, "reset"))
        self.node.release(large, len(LARGE))
        self.assertDone(self.puller.end(attempt), LARGE)

    def test_a_node_can_be_reached_after_a_failure(self):
        url = self.node.add("small", b"abc")
        self.node.close()
        self.assertFails(self.puller.end(self.puller.job(url)), "connect-failed")
        self.node.restart()
        self.assertDone(self.puller.end(self.puller.job(url)), b"abc")

    def test_a_body_that_is_gone_fails_as_not_cached(self):
        self.assertFails(self.puller.end(self.puller.job(self.node.url("gone"))), "not-cached")

    def test_bytes_that_differ_from_the_digest_are_refused(self):
        for is_pulled in (False, True):
            with self.subTest(is_pulled=is_pulled):
                url = self.node.add(f"wrong-{is_pulled}", LARGE[:100_000], is_pulled=is_pulled, announced="0" * 64)
                self.assertFails(self.puller.end(self.puller.job(url)), "digest-mismatch")

    def test_a_body_above_the_maximum_is_refused_before_it_is_read(self):
        url = self.node.add("large", LARGE, is_pulled=True)
        self.node.release(url, 0)
        self.assertFails(self.puller.end(self.puller.job(url, max_bytes=1_000)), "too-large")
        eventually(lambda: self.node.cancelled, "the request is cancelled")
        small = self.node.add("small", b"abc")
        self.assertFails(self.puller.end(self.puller.job(small, max_bytes=2)), "too-large")

    def test_a_host_name_is_refused(self):
        for address in ("localhost:1", "127.0.0.1", "[127.0.0.1]:1", "::1:1", ":1", "127.0.0.1:0"):
            with self.subTest(address=address):
                self.assertFails(self.puller.end(self.puller.job(f"earshot-node://{address}/k/1")), "malformed-url")

    def test_a_cancelled_job_ends_the_request_at_the_node(self):
        url = self.node.add("large", LARGE, is_pulled=True)
        self.node.release(url, 10 * PIECE)
        attempt = self.puller.job(url, progress=50)
        self.puller.receive()
        self.puller.send(f"CANCEL {attempt}")
        self.assertFails(self.puller.end(attempt), "cancelled")
        eventually(lambda: len(self.node.cancelled) == 1, "the node got REMOVE")

    def test_a_job_without_bytes_ends_with_its_timeout(self):
        url = self.node.add("large", LARGE, is_pulled=True)
        self.node.release(url, 0)
        self.assertFails(self.puller.end(self.puller.job(url, timeout="0.3")), "timeout")

    def test_many_pulls_share_one_connection(self):
        urls = [self.node.add(f"body-{number}", b"%d" % number) for number in range(200)]
        attempts = {self.puller.job(url): b"%d" % number for number, url in enumerate(urls)}
        for _ in range(200):
            message = self.puller.receive()
            self.assertDone(message, attempts.pop(message.operands[0]))
        self.assertEqual((self.node.sessions, len(self.node.fetched)), (1, 200))

    def test_two_nodes_have_a_connection_each(self):
        other = self.new_node()
        for number, node in enumerate((self.node, other, self.node)):
            self.assertDone(self.puller.end(self.puller.job(node.add(f"{number}", b"x"))), b"x")
        self.assertEqual((self.node.sessions, other.sessions), (1, 1))

    def test_more_jobs_than_slots_return_to_the_broker(self):
        url = self.node.add("large", LARGE, is_pulled=True)
        self.node.release(url, 0)
        for _ in range(256):
            self.puller.job(url)
        message = self.puller.end(self.puller.job(url))
        self.assertEqual((message.verb, message.operands[1]), ("FAILED", "worker-lost"), message)

    def test_a_node_that_restarts_in_time_has_no_bodies(self):
        url = self.node.add("large", LARGE, is_pulled=True)
        self.node.release(url, 10 * PIECE)
        reading = self.puller.job(url, progress=50)
        self.puller.receive()
        self.node.close()
        self.node.bodies = {}
        self.node.restart()
        self.assertFails(self.puller.end(reading), "reset")

    def test_the_next_broker_gets_the_puller_and_earlier_jobs_are_void(self):
        url = self.node.add("large", LARGE, is_pulled=True)
        self.node.release(url, 10 * PIECE)
        self.puller.job(url, progress=50)
        self.puller.receive()
        self.puller.listen()
        self.puller.welcome()
        self.assertDone(self.puller.end(self.puller.job(self.node.add("small", b"abc"))), b"abc")

    def test_PING_is_answered(self):
        self.puller.send("PING")
        self.assertEqual(self.puller.receive().verb, "PONG")

    def test_SIGTERM_finishes_running_pulls(self):
        url = self.node.add("large", LARGE, is_pulled=True)
        self.node.release(url, 0)
        attempt = self.puller.job(url)
        eventually(lambda: self.node.fetched, "the pull runs")
        self.assertEqual(process_name(self.puller.program.pid), "earshot-puller")
        self.puller.program.signal(15)
        self.node.release(url, len(LARGE))
        self.assertDone(self.puller.end(attempt), LARGE)
        self.assertEqual(self.puller.receive().verb, "BYE")
        self.assertEqual(self.puller.program.wait(), 0)
