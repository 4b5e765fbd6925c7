"""The HTTP door and clients that do harm: malformed, large, slow and many."""

import os
import re
import resource
import select
import shutil
import socket
import time
import unittest

import checkout  # noqa: F401
from door import HOST, Door, Site, more, read
from support.harness import TestCase, temporary_folder
from support.origin import Origin
from support.processes import eventually
from support.script import ScriptedOrigin

END = b"\r\n\r\n"


class HostileTests(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.origin = cls.enterClassContext(Origin())
        folder = temporary_folder()
        cls.addClassCleanup(shutil.rmtree, folder, ignore_errors=True)
        cls.door = cls.enterClassContext(Door(http=f"0,unix:{folder}/door", arguments=["--http-api", "0"]))
        cls.process = cls.door.door
        # Its `100 Continue` cannot be written. A timer of its body would run out first.
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(f"{folder}/door")
            peer.shutdown(socket.SHUT_RD)
            peer.sendall(b"POST http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue" + END)
            poll = select.poll()
            poll.register(peer, 0)
            assert poll.poll(60_000), "the door closes it"
        session = cls.door.call("sessions", {})[2]["session"]
        cls.events = socket.create_connection((HOST, cls.door.api_port), 60)
        cls.events.sendall(f"GET /v1/events?session={session} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        cls.began = time.monotonic()
        # Wait for half a minute, beside the other tests.
        cls.slow = [cls.door.open_request(text) for text in (b"", b"GET http://a/ HTTP/1.1\r\nHost:",
                                                             b"POST http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabc")]

    @classmethod
    def tearDownClass(cls):
        for peer in [*cls.slow, cls.events]:
            peer.close()
        super().tearDownClass()

    def line(self, path="/bytes/1", method="GET", version="1.1"):
        return f"{method} {self.origin.url}{path} HTTP/{version}\r\n".encode()

    def test_malformed_and_large_requests_reach_no_origin(self):
        before = self.origin.journal.total
        host, post = b"Host: a\r\n", self.line(method="POST") + b"Host: a\r\n"
        for text, status in [
                (self.line() + END, 400), (self.line() + host + host + b"\r\n", 400), (self.line() + b"Host: a b\r\n\r\n", 400),
                (self.line() + host + b" folded: b" + END, 400), (self.line() + host + b"A : b" + END, 400),
                (self.line() + host + b"A: b\rC: d" + END, 400), (self.line() + host + b"A: b\nC: d" + END, 400),
                (self.line() + host + b"A: \0" + END, 400), (self.line()[:-2] + b"\n" + host + b"\r\n", 400),
                (b"\0" + self.line() + host + b"\r\n", 400), (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n", 400),
                (self.line(version="2.0") + host + b"\r\n", 505), (b"PRI * HTTP/2.0" + END + b"SM" + END, 505),
                (post + b"Content-Length: 1\r\nContent-Length: 1" + END + b"a", 400),
                (post + b"Content-Length: 1\r\nContent-Length: 2" + END + b"ab", 400),
                (post + b"Content-Length: 1, 1" + END + b"a", 400), (post + b"Content-Length: +1" + END + b"a", 400),
                (post + b"Content-Length: 1\r\nTransfer-Encoding: chunked" + END + b"0" + END, 400),
                (post + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity" + END + b"0" + END, 400),
                (post + b"Transfer-Encoding: chunked, chunked" + END + b"0" + END, 501),
                (post + b"Transfer-Encoding: gzip, chunked" + END + b"0" + END, 501),
                (post + b"Transfer-Encoding:\x0bchunked" + END + b"0" + END, 400),
                (self.line(method="POST", version="1.0") + host + b"Transfer-Encoding: chunked" + END + b"0" + END, 400),
                (post + b"Transfer-Encoding: chunked" + END + b"0x1\r\na\r\n0" + END, 400),
                (post + b"Transfer-Encoding: chunked" + END + b"1\na\r\n0" + END, 400),
                (post + b"Transfer-Encoding: chunked" + END + b"1\r\nab\r\n0" + END, 400),
                (post + b"Transfer-Encoding: chunked" + END + b"-1\r\n", 400),
                (post + b"Transfer-Encoding: chunked" + END + b"fffffffffffffffff\r\n", 400),
                (post + b"Transfer-Encoding: chunked" + END + b"1;" + b"a" * 5_000, 400),
                (post + b"Transfer-Encoding: chunked" + END + b"500000\r\n", 413),
                (post + b"Content-Length: 9999999" + END, 413), (post + b"Expect: a-pony\r\nContent-Length: 1" + END, 417),
                (self.line() + host + b"Content-Length: 1" + END + b"a", 400),
                (self.line("/" + "a" * 9_000) + host + b"Connection: close" + END, 414),
                (self.line() + host + b"A: " + b"b" * 40_000 + END, 431), (self.line() + b"A" * 40_000, 431),
                (b"GET http://u:p@a/ HTTP/1.1\r\nHost: a\r\nConnection: close" + END, 400),
                (b"GET file:///etc/passwd HTTP/1.1\r\nHost: a\r\nConnection: close" + END, 400),
                (b"GET gopher://a/ HTTP/1.1\r\nHost: a\r\nConnection: close" + END, 400),
                (b"TRACE http://a/ HTTP/1.1\r\nHost: a\r\nConnection: close" + END, 405)]:
            answer = self.door.raw(text)
            self.assertTrue(answer.startswith(b"HTTP/1.1 %d " % status), (text[:100], answer[:100]))
            # What follows a request that cannot be read is no request.
            self.assertEqual(len(re.findall(rb"HTTP/1\.1 \d", answer)), 1, (text[:100], answer))
        self.assertEqual(self.origin.journal.total, before)

    def test_an_origin_gets_one_request_in_its_own_framing(self):
        smuggled = b"GET http://a/smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
        ok = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        heads = []

        def serve(connection):
            heads.append(connection.head().encode())
            connection.send(ok)

        with ScriptedOrigin(serve) as origin:
            for text in [
                    f"POST {origin.url}/ HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\nContent-Length: {len(smuggled)}\r\n\r\n".encode()
                    + smuggled,
                    f"POST {origin.url}/ HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
                    + b"%x\r\n%s\r\n0\r\nX-Trailer: 1\r\n\r\n" % (len(smuggled), smuggled)]:
                self.assertIn(b"HTTP/1.1 200 ", self.door.raw(text))
            self.assertEqual(len(heads), 2)
            for head in heads:
                lines = head.partition(END)[0].lower().split(b"\r\n")
                self.assertIn(b"host: " + origin.url.split("/")[2].encode(), lines)
                self.assertIn(b"content-length: %d" % len(smuggled), lines)
                self.assertFalse([line for line in lines if line.startswith((b"transfer-encoding", b"x-trailer"))], head)

    def test_bodies_that_do_not_end_have_a_bound(self):
        post = self.line(method="POST") + b"Host: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue" + END
        peers = [self.door.open_request(post) for _ in range(20)]
        answers = [more(peer) for peer in peers]
        # 64 MiB for chunked bodies of up to 4 MiB.
        refused = [answer for answer in answers if not answer.startswith(b"HTTP/1.1 100")]
        self.assertIn(len(refused), (4, 5))
        for answer in refused:
            self.assertRegex(answer, rb"(?s)^HTTP/1.1 503 .*no room for a body of 4194304 bytes")
        for peer in peers:
            peer.close()
        self.assertEqual(self.door.get(self.origin.url + "/bytes/1")[0], 200)

    def test_idle_connections_give_way_to_new_ones(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4_096), hard))
        with Site() as site, Door(descriptors=200) as door:
            url = site.publish("/stored", "text/plain", b"x" * 10_000_000, Cache_Control="max-age=600")
            door.get(url)
            reader = door.request(url)
            answer = more(reader)
            peers = [socket.create_connection((HOST, door.port), 60) for _ in range(150)]
            self.assertEqual(door.get(self.origin.url + "/bytes/1")[0], 200)
            eventually_ended = sum(bool(select.select([peer], [], [], 0)[0]) for peer in peers)
            self.assertGreater(eventually_ended, 50)
            for peer in peers:
                peer.close()
            # A client that still reads is not idle.
            with reader:
                while len(answer.partition(END)[2]) < 10_000_000:
                    answer += more(reader)

    def test_a_stream_without_events_has_comments(self):
        text = b""
        while not text.endswith(END + b":\n\n"):
            text += more(self.events)
        self.assertGreater(time.monotonic() - self.began, 25)

    def test_the_kernel_looks_for_clients_that_have_vanished(self):
        # Timer 2 of proc_net_tcp(5) is that of keepalive.
        with socket.create_connection((HOST, self.door.port), 60) as peer:
            ends = [f"{socket.htonl(0x7f000001):08X}:{port:04X}" for port in (self.door.port, peer.getsockname()[1])]

            def timer():
                with open("/proc/net/tcp") as file:
                    rows = [line.split() for line in file]
                return next((row[5][:2] for row in rows if row[1:3] == ends), None)
            eventually(lambda: timer() == "02", "the connection has a timer")

    def test_slow_clients_end_after_their_time(self):
        ends = []
        for peer in self.slow:
            peer.settimeout(120)
            self.assertEqual(read(peer), b"")
            ends.append(time.monotonic() - self.began)
        self.assertGreater(min(ends), 25)
        self.assertEqual(self.door.door, self.process, "the door crashed")
        if os.environ.get("EARSHOT_LONG"):
            self.assertLess(max(ends), 55)


if __name__ == "__main__":
    unittest.main()
