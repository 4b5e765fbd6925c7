"""HTTP/2: a response is complete only if its stream has ended, whatever libcurl reports."""

import os
import pathlib
import shutil
import socket
import unittest.mock

from support import certificate
from support.harness import Bus, TestCase, binary, temporary_folder
from support.streams import CONTENT, TEXT, StreamOrigin

NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, STREAM_CLOSED, REFUSED, CANCEL, CALM, HTTP1_REQUIRED = 0, 1, 2, 5, 7, 8, 11, 13
CODES = (NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, STREAM_CLOSED, CANCEL, CALM)

#: Endings of a complete response.
WHOLE = ["whole", "unannounced", "empty-end", "trailers", "interim", "padded", "goodbye-then-end",
         *(f"end-then-reset/{code}" for code in (NO_ERROR, INTERNAL_ERROR, CANCEL))]
#: All announced bytes without the end of the stream: complete, or reported as a failure.
EITHER = [f"length-then-reset/{NO_ERROR}"]
#: Endings of an incomplete response.
BROKEN = ["cut", "cut-with-notice", "too-short", "too-long",
          *(f"{name}/{code}" for code in CODES for name in (
              "reset-first", "reset-after-head", "reset-in-body", "reset-in-announced-body", "reset-at-its-end",
              "reset-and-close", "goodbye-and-close", "goodbye-and-reset"))]


class Case(TestCase):
    @classmethod
    def setUpClass(cls):
        folder = temporary_folder()
        cls.addClassCleanup(shutil.rmtree, folder)
        cls.certificate = certificate.self_signed(folder)

    def origin(self, **options):
        return self.enterContext(StreamOrigin(self.certificate, **options))

    def submit(self, client, request, url, **fields):
        client.fetch("h", request, url, ca_file=self.certificate[0], **{"retries": 0, **fields})

    def fetch(self, client, request, url, **fields):
        self.submit(client, request, url, **fields)
        return client.terminal()


class SharedBusCase(Case):
    """The tests of a class share a bus. Each has an origin and a client of its own."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.bus = cls.enterClassContext(Bus(workers=1, origin_limit=30))

    def setUp(self):
        self.client = self.enterContext(self.bus.client())


class EndingTests(SharedBusCase):
    def check(self, name, message):
        if name in WHOLE or name in EITHER and message.verb == "RESULT":
            self.assertResult(message, CONTENT)
        else:
            self.assertEqual(message.verb, "FAILED", f"{name}: {message}")
            self.assertIn(message.operands[2], ("reset", "truncated", "protocol-error"), f"{name}: {message}")

    def test_each_ending_alone(self):
        origin = self.origin()
        for name in WHOLE + EITHER + BROKEN:
            with self.subTest(name):
                self.check(name, self.fetch(self.client, name, f"{origin.url}/{name}"))
        self.assertEqual([path for connection, path in origin.requested if connection == 0], [], "all by HTTP/2")

    def test_endings_beside_others_on_their_connection(self):
        origin = self.origin()
        for round, name in enumerate(name for name in WHOLE + EITHER + BROKEN if "close" not in name and "goodbye" not in name
                                     and "cut" not in name):
            with self.subTest(name):
                # The others share its connection.
                self.assertResult(self.fetch(self.client, f"first-{round}", f"{origin.url}/whole?{round}"), CONTENT)
                for number in range(8):
                    self.submit(self.client, f"{name}-{number}", f"{origin.url}/{name}?{round}.{number}")
                    self.submit(self.client, f"good-{round}-{number}", f"{origin.url}/unannounced?{round}.{number}")
                for message in self.client.terminals(16):
                    self.check("whole" if message.operands[1].startswith("good") else name, message)
        self.assertLess(origin.accepted, len(origin.requested) / 4)

    def test_a_request_that_authenticates_its_connection_does_not_share_one(self):
        origin = self.origin()
        self.assertResult(self.fetch(self.client, 1, f"{origin.url}/whole?1"), CONTENT)
        for number in (2, 3):
            self.client.fetch("h", number, f"{origin.url}/whole?{number}", [("authorization", "Negotiate YII=")],
                              ca_file=self.certificate[0], retries=0)
            self.assertResult(self.client.terminal(), CONTENT)
        self.assertResult(self.fetch(self.client, 4, f"{origin.url}/whole?4"), CONTENT)
        by_http1 = [path for connection, path in origin.requested if connection == 0]
        self.assertEqual(by_http1, ["/whole?2", "/whole?3"])
        self.assertEqual(origin.accepted, 3, "the other two share one")

    def test_no_content_is_whole(self):
        origin = self.origin()
        answer = self.fetch(self.client, 1, f"{origin.url}/nothing")
        self.assertEqual((answer.verb, answer.operands[2]), ("RESULT", "204"))

    def test_what_was_refused_or_not_processed_is_asked_for_again(self):
        origin = self.origin()
        self.assertResult(self.fetch(self.client, 1, f"{origin.url}/reset-once/{REFUSED}"), CONTENT)
        self.assertResult(self.fetch(self.client, 2, f"{origin.url}/unprocessed", retries=1), CONTENT)

    def test_what_was_not_processed_is_asked_for_again_by_http2_of_a_server_that_speaks_nothing_else(self):
        for leaves_at_once, name in ((False, "unprocessed"), (True, "whole")):
            with self.subTest(name):
                origin = self.origin(protocols=["h2"], leaves_at_once=leaves_at_once)
                self.assertResult(self.fetch(self.client, 1, f"{origin.url}/{name}"), CONTENT)
                self.assertEqual(origin.accepted, 2)

    def test_a_server_that_speaks_no_http1_is_asked_again_by_http2(self):
        origin = self.origin(protocols=["h2"])
        self.assertResult(self.fetch(self.client, 1, f"{origin.url}/broken-body-once", retries=2), CONTENT)

    def test_a_server_that_requires_http1_is_asked_by_it(self):
        for name, retries, expected in (("reset-first", 0, "RESULT"), ("reset-in-body", 0, "FAILED"), ("reset-in-body", 1, "RESULT"),
                                        ("reset-in-announced-body", 1, "RESULT"), ("reset-after-head", 1, "RESULT")):
            with self.subTest(f"{name} {retries}"):
                origin = self.origin()
                answer = self.fetch(self.client, 1, f"{origin.url}/{name}/{HTTP1_REQUIRED}", retries=retries)
                if expected == "RESULT":
                    self.assertResult(answer, CONTENT)
                    self.assertEqual([connection for connection, _ in origin.requested], [1, 0])
                    self.assertEqual(answer.fields["attempts"], "2")
                else:
                    self.assertFailed(answer, "reset")
                    self.assertEqual([connection for connection, _ in origin.requested], [1])

    def test_a_connection_is_used_again_after_frames_of_no_stream(self):
        origin = self.origin()
        for number in range(10):
            self.assertResult(self.fetch(self.client, number, f"{origin.url}/whole-then-frames?{number}"), CONTENT)
        self.assertEqual(origin.accepted, 1)

    def test_a_connection_is_replaced_after_a_goodbye(self):
        origin = self.origin()
        for number in range(10):
            self.assertResult(self.fetch(self.client, number, f"{origin.url}/whole-then-goodbye?{number}"), CONTENT)
        self.assertEqual(origin.accepted, 10)

    def test_a_goodbye_beside_others_costs_none_its_answer(self):
        origin = self.origin()
        for round in range(10):
            self.assertResult(self.fetch(self.client, f"first-{round}", f"{origin.url}/whole?{round}"), CONTENT)
            for number in range(16):
                ending = "goodbye-then-end" if number in (5, 9) else "unannounced"
                self.submit(self.client, f"{round}-{number}", f"{origin.url}/{ending}?{round}.{number}", retries=2)
            for message in self.client.terminals(16):
                self.assertResult(message, CONTENT)

    def test_encoded_bodies_are_whole_beside_others(self):
        origin = self.origin()
        self.assertResult(self.fetch(self.client, "first", f"{origin.url}/whole"), CONTENT)
        for number in range(8):
            self.submit(self.client, f"text-{number}", f"{origin.url}/gzipped?{number}")
            self.submit(self.client, f"good-{number}", f"{origin.url}/unannounced?{number}")
        for message in self.client.terminals(16):
            self.assertResult(message, TEXT if message.operands[1].startswith("text") else CONTENT)
        self.assertEqual(origin.accepted, 1)

    def test_what_failed_by_http2_is_tried_again_by_http1(self):
        origin = self.origin()
        self.assertResult(self.fetch(self.client, 1, f"{origin.url}/reset-in-body/0", retries=2), CONTENT)
        self.assertEqual([connection for connection, _ in origin.requested], [1, 0])


class SettingTests(Case):
    def versions(self, origin, client, count=1):
        """Fetches, and returns the versions used."""
        before = len(origin.requested)
        for number in range(count):
            self.assertResult(self.fetch(client, f"{before}-{number}", f"{origin.url}/whole?{before}.{number}"), CONTENT)
        return ["1" if connection == 0 else "2" for connection, _ in origin.requested[before:]]

    def test_it_is_on_unless_it_is_off_for_all_or_for_an_origin(self):
        origin = self.origin()
        with Bus(workers=1) as bus:
            client = bus.client()
            self.assertEqual(self.versions(origin, client), ["2"])
            for setting, version in (("http2 off", "1"), (f"origin {origin.url} http2=auto", "2"), ("http2 auto", "2"),
                                     (f"origin {origin.url} http2=off", "1"), (f"origin {origin.url} default", "2")):
                self.assertEqual(client.set(setting).verb, "CHANGED")
                self.assertEqual(self.versions(origin, client), [version], setting)

    def test_it_is_off_where_the_ends_of_streams_are_not_seen(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder)
        program = folder / "earshot"
        for name in (b"nghttp2_session_callbacks_set_on_frame_recv_callback", b"nghttp2_session_mem_recv"):
            # The first one is in the table of exported symbols.
            program.write_bytes(pathlib.Path(binary()).read_bytes().replace(name + b"\0", name[:-1] + b"_\0", 1))
            program.chmod(0o700)
            origin = self.origin()
            with self.subTest(name), unittest.mock.patch.dict(os.environ, EARSHOT_BINARY=str(program)), Bus(workers=1) as bus:
                bus.program.await_line("HTTP/2 is off")
                self.assertEqual([worker["http2"] for worker in bus.status()["workers"]], [False])
                self.assertEqual(self.versions(origin, bus.client()), ["1"])

    def test_what_may_change_something_goes_by_http1(self):
        origin = self.origin()
        with Bus(workers=1) as bus:
            client = bus.client()
            self.assertResult(self.fetch(client, 1, f"{origin.url}/whole", method="POST", coalesce="no"), CONTENT)
            self.assertEqual([connection for connection, _ in origin.requested], [0])


class SharingTests(SharedBusCase):
    def test_requests_share_a_connection(self):
        origin = self.origin()
        self.assertResult(self.fetch(self.client, "first", f"{origin.url}/whole"), CONTENT)
        for number in range(200):
            self.submit(self.client, number, f"{origin.url}/whole?{number}")
        for message in self.client.terminals(200):
            self.assertResult(message, CONTENT)
        self.assertEqual(origin.accepted, 1)

    def test_a_silent_server_delays_no_other(self):
        origin = self.origin()
        silent = self.enterContext(socket.create_server(("127.0.0.1", 0)))
        for number in range(20):
            self.submit(self.client, f"silent-{number}", f"https://127.0.0.1:{silent.getsockname()[1]}/{number}")
        self.enterContext(silent.accept()[0])
        for number in range(20):
            self.submit(self.client, number, f"{origin.url}/whole?{number}")
        # All before the first failure of a connection.
        for message in self.client.terminals(20):
            self.assertResult(message, CONTENT)

    def test_hosts_share_no_connection(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder)
        self.certificate = certificate.self_signed(folder, "DNS:localhost")
        origin = self.origin()
        for number in range(4):
            url = origin.url.replace("127.0.0.1", "localhost") if number % 2 else origin.url
            self.assertResult(self.fetch(self.client, number, f"{url}/whole?{number}"), CONTENT)
        self.assertEqual([connection for connection, _ in origin.requested], [1, 2, 1, 2])

    def test_a_cancelled_transfer_that_is_alone_on_its_connection_closes_it(self):
        origin = self.origin()
        self.submit(self.client, "silent", f"{origin.url}/silent")
        self.assertTrue(origin.wait(lambda: origin.requested))
        self.client.cancel("h", "silent")
        self.assertTrue(origin.wait(lambda: origin.closed), "the connection is closed")

    def test_a_cancelled_transfer_resets_its_stream_and_leaves_the_others(self):
        origin = self.origin()
        for number in range(2):
            self.submit(self.client, f"silent-{number}", f"{origin.url}/silent?{number}")
            self.assertTrue(origin.wait(lambda: len(origin.requested) == number + 1))
        self.client.cancel("h", "silent-0")
        self.assertResult(self.fetch(self.client, 2, f"{origin.url}/whole"), CONTENT)
        self.assertTrue(origin.wait(lambda: origin.resets), "the stream is reset")
        self.assertEqual((origin.accepted, origin.closed), (1, []))

    def test_a_server_that_allows_one_stream_gets_one(self):
        origin = self.origin(settings={3: 1})
        with Bus(workers=1, origin_limit=4) as bus:
            client = bus.client()
            for number in range(20):
                self.submit(client, number, f"{origin.url}/whole?{number}", retries=2)
            for message in client.terminals(20):
                self.assertResult(message, CONTENT)
            self.assertLessEqual(origin.accepted, 20)

    def test_header_bombs_end_their_requests_alone(self):
        origin = self.origin()
        worker = self.bus.workers
        for number in range(5):
            answer = self.fetch(self.client, number, f"{origin.url}/header-bomb?{number}")
            self.assertEqual(answer.verb, "FAILED", answer)
        self.assertResult(self.fetch(self.client, "after", f"{origin.url}/whole"), CONTENT)
        self.assertEqual(self.bus.workers, worker, "the same worker")


IS_LONG = bool(os.environ.get("EARSHOT_LONG"))


class BoundTests(Case):
    def warm(self, origin, client):
        self.assertResult(self.fetch(client, "first", f"{origin.url}/whole"), CONTENT)

    def test_an_origins_limit_counts_transfers(self):
        origin = self.origin()
        with Bus(workers=1, origin_limit=3) as bus:
            client = bus.client()
            self.warm(origin, client)
            for number in range(12):
                self.submit(client, number, f"{origin.url}/silent?{number}")
            self.assertTrue(origin.wait(lambda: len(origin.requested) == 4))
            running = {row["origin"]: row["running"] for row in client.query("origins")["origins"]}
            self.assertEqual(running, {origin.url: 3})
            self.assertEqual((origin.accepted, origin.most_streams, len(origin.requested)), (1, 3, 4))

    def test_a_connection_has_a_hundred_streams_at_most(self):
        origin = self.origin(settings={3: 1000})
        with Bus(workers=1, slots=200, origin_limit=150) as bus:
            client = bus.client()
            self.warm(origin, client)
            for number in range(120):
                self.submit(client, number, f"{origin.url}/silent?{number}")
            self.assertTrue(origin.wait(lambda: len(origin.requested) == 121), len(origin.requested))
            self.assertEqual(origin.most_streams, 100)
            self.assertLessEqual(origin.accepted, 21)

    def test_a_server_that_refuses_each_stream_is_asked_a_few_times(self):
        origin = self.origin()
        with Bus(workers=1, origin_limit=20) as bus:
            client = bus.client()
            for number in range(20):
                self.submit(client, number, f"{origin.url}/reset-first/{REFUSED}?{number}")
            for message in client.terminals(20):
                self.assertEqual(message.verb, "FAILED", message)
            self.assertLessEqual(len(origin.requested), 20 * 6)

    def test_cancelling_again_and_again_leaves_no_streams(self):
        origin = self.origin()
        with Bus(workers=1, origin_limit=4) as bus:
            client = bus.client()
            self.submit(client, "stays", f"{origin.url}/silent")
            self.assertTrue(origin.wait(lambda: origin.requested))
            for number in range(200):
                self.submit(client, number, f"{origin.url}/silent?{number}")
                self.assertTrue(origin.wait(lambda: len(origin.requested) == number + 2))
                client.cancel("h", number)
            self.assertEqual(origin.accepted, 1)
            self.assertLessEqual(origin.most_streams, 5)

    def test_a_flood_of_frames_ends_its_request_alone(self):
        origin, good = self.origin(), self.origin()
        with Bus(workers=1) as bus:
            client = bus.client()
            workers = bus.workers
            for kind in ("ping", "data", "continuation", *(("settings", "window", "reset") if IS_LONG else ())):
                with self.subTest(kind):
                    self.submit(client, kind, f"{origin.url}/flood/{kind}", timeout=1)
                    self.assertTrue(origin.wait(lambda: kind in origin.floods))
                    for number in range(20):
                        self.submit(client, f"{kind}-{number}", f"{good.url}/whole?{kind}.{number}")
                    for message in client.terminals(21):
                        if message.operands[1] == kind:
                            self.assertEqual(message.verb, "FAILED", message)
                        else:
                            self.assertResult(message, CONTENT)
            self.assertEqual(bus.workers, workers, "the same worker")
            self.assertLess(peak_bytes(workers[0]), 200 << 20)


def peak_bytes(pid):
    """Returns the peak resident set of a process."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))
