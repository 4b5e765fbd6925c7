"""The HTTP door as a forward proxy: sharing, hang-ups, bodies and fields."""

import gzip
import itertools
import os
import socket
import tempfile
import time
import unittest

import checkout  # noqa: F401
from door import HOST, Door, RawOrigin, Site, more, needs, read
from support import certificate
from support.harness import TestCase
from support.origin import Origin, body
from support.processes import eventually
from support.script import ScriptedOrigin

PROXY_STATUS = "Proxy-Status"


class DoorTests(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.door = cls.enterClassContext(Door(origin_limit=100))
        cls.origin = cls.enterClassContext(Origin())
        cls.url = cls.origin.url

    def target(self, path):
        return self.url + path

    # Sharing.

    def test_a_hundred_curls_for_one_url_are_one_request(self):
        if reason := needs("curl"):
            self.skipTest(reason)
        for count in (8, 100):
            path = f"/gate/crowd-{count}?bytes=200000"
            programs = [self.door.start_curl(self.target(path)) for _ in range(count)]
            with self.door.client() as client:
                self.await_requests_of(client, count)
            self.origin.open_gate(f"crowd-{count}")
            for program in programs:
                content, errors = program.communicate(timeout=60)
                self.assertEqual(program.returncode, 0, errors)
                self.assertTrue(content == body(200_000), "other bytes than the origin's")
            self.assertEqual(self.origin.journal.count(path), 1)

    def await_requests_of(self, client, count):
        eventually(lambda: client.query("status")["requests"]["pending"] >= count, f"{count} requests are open")

    def test_hang_ups_of_99_leave_the_hundredth_and_that_of_all_reaches_the_origin(self):
        path = "/gate/last?bytes=70000"
        peers = [self.door.request(self.target(path)) for _ in range(100)]
        self.origin.journal.await_count(path, 1)
        with self.door.client() as client:
            self.await_requests_of(client, 100)
            for peer in peers[1:]:
                peer.close()
            eventually(lambda: client.query("status")["requests"]["pending"] == 1, "one request is left")
        self.origin.open_gate("last")
        with peers[0] as peer:
            self.assertIn(b"\r\n\r\n" + body(70_000)[:1_000], self.whole(peer))
        self.assertEqual(self.origin.journal.count(path), 1)
        path = "/gate/none?bytes=70000"
        peers = [self.door.request(self.target(path)) for _ in range(100)]
        self.origin.journal.await_count(path, 1)
        with self.door.client() as client:
            self.await_requests_of(client, 100)
        ended = time.monotonic()
        for peer in peers:
            peer.close()
        aborted = self.origin.journal.await_aborts("/gate/none")[0]
        if os.environ.get("EARSHOT_LONG"):
            self.assertLess(aborted - ended, 5)

    def whole(self, peer):
        """Reads a response with a length."""
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += more(peer)
        head, _, rest = answer.partition(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        while len(rest) < length:
            rest += more(peer)
        return head + b"\r\n\r\n" + rest

    def test_a_body_reaches_all_clients_while_it_grows(self):
        size = 4 << 20
        path = f"/steps/grow/end?bytes={size}"
        whole = body(size)
        peers = [self.door.request(self.target(path)) for _ in range(3)]
        starts = []
        for peer in peers:
            answer = b""
            while len(answer.partition(b"\r\n\r\n")[2]) < 1_000_000:
                answer += more(peer)
            starts.append(answer)
        # The origin holds the rest back until now.
        self.origin.open_gate("grow")
        self.origin.open_gate("end")
        for peer, answer in zip(peers, starts):
            rest = answer.partition(b"\r\n\r\n")[2]
            while len(rest) < size:
                rest += more(peer)
            self.assertTrue(rest == whole, "other bytes than the origin's")
            peer.close()
        self.assertEqual(self.origin.journal.count(path), 1)

    def test_a_client_that_does_not_read_delays_nobody(self):
        path = "/bytes/8000000?seed=slow"
        slow = socket.socket()
        self.addCleanup(slow.close)
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        slow.settimeout(60)
        slow.connect((HOST, self.door.port))
        slow.sendall(f"GET {self.target(path)} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        self.origin.journal.await_count(path, 1)
        _, _, content = self.door.get(self.target(path))
        self.assertTrue(content == body(8_000_000, "slow"))
        # The rest is still in the file of the spool.
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self.assertTrue(read(slow).endswith(body(8_000_000, "slow")))

    # Bodies and statuses of the origin.

    def test_bytes_status_and_body_of_the_origin_are_passed_on(self):
        for path, status in [("/bytes/0", 200), ("/bytes/10", 200), ("/bytes/65537", 200), ("/bytes/3000000", 200),
                             ("/chunked/100001", 200), ("/status/404", 404), ("/status/500", 500), ("/status/503", 503),
                             ("/status/204", 204), ("/redirect/1", 302)]:
            answer = self.door.get(self.target(path))
            self.assertEqual(answer[0], status, path)
            self.assertNotIn(PROXY_STATUS, answer[1])
            if path.startswith(("/bytes", "/chunked")):
                self.assertTrue(answer[2] == body(int(path.split("/")[2])), path)
            self.assertEqual(self.origin.journal.count(path), 1, "no retry, no redirect")

    def test_a_body_that_the_origin_cuts_is_never_a_complete_one(self):
        # Before and after the door has sent a head; with a length, with chunks, and for HTTP/1.0 without either.
        chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        for size in (1_000, 3_000_000):
            answers = [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (size * 2) + body(size),
                       chunked + b"%x\r\n" % size + body(size) + b"\r\n"]
            for version, answer in itertools.product(("1.0", "1.1"), answers):
                def serve(connection, answer=answer):
                    connection.head()
                    connection.send(answer)

                with ScriptedOrigin(serve) as origin, \
                        self.door.open_request(f"GET {origin.url}/ HTTP/{version}\r\nHost: a\r\n\r\n".encode()) as peer:
                    own = self.own_response(peer)
                if own is not None:
                    self.assertIn(b"HTTP/1.1 502", own)
                    self.assertIn(b"Proxy-Status: earshot; error=http_response_incomplete", own)

    def own_response(self, peer):
        """Returns a response of the door itself; None for one of the origin that was reset before its end."""
        answer = b""
        try:
            while data := peer.recv(65_536):
                answer += data
                if b"Proxy-Status" in answer and answer.endswith(b"\n"):
                    return answer
        except ConnectionResetError:
            return None
        self.fail(f"an orderly end after {answer[:300]}")

    def test_HEAD_has_the_length_of_the_GET_and_is_answered_from_it(self):
        path = "/kept/head?cc=max-age=600&bytes=5000"
        self.assertEqual(self.door.get(self.target(path), "HEAD")[1]["Content-Length"], "5000")
        self.assertEqual(len(self.door.get(self.target(path))[2]), 5000)
        status, fields, content = self.door.get(self.target(path), "HEAD")
        self.assertEqual((status, fields["Content-Length"], content), (200, "5000", b""))
        self.assertIn("Age", fields)
        self.assertEqual([r.method for r in self.origin.journal.log("/kept/head")], ["HEAD", "GET"])

    def test_stored_responses_answer_conditions_and_ranges(self):
        path = "/kept/stored?cc=max-age=600&bytes=5000"
        status, fields, whole = self.door.get(self.target(path))
        self.assertEqual((status, fields["Earshot-Source"]), (200, "network"))
        status, again, content = self.door.get(self.target(path), If_None_Match=fields["ETag"])
        self.assertEqual((status, content), (304, b""))
        self.assertNotIn("Content-Length", again)
        status, part, content = self.door.get(self.target(path), Range="bytes=10-19")
        self.assertEqual((status, part["Content-Range"], content), (206, "bytes 10-19/5000", whole[10:20]))
        self.assertEqual(self.origin.journal.count(path), 1)
        self.assertEqual(self.door.get(self.target(path), Cache_Control="no-cache")[1]["Earshot-Source"], "revalidated")
        status, fields, _ = self.door.get(self.target("/kept/absent?cc=max-age=1"), Cache_Control="only-if-cached")
        self.assertEqual(status, 504)
        self.assertIn("not-cached", self.door.get(self.target("/kept/absent?cc=max-age=1"),
                                                  Cache_Control="only-if-cached")[2].decode())

    # Fields.

    def test_fields_of_the_connection_stay_behind_and_Via_names_the_door(self):
        fields = {"Connection": "keep-alive, X-Mine", "X-Mine": "1", "X-Other": "2", "Proxy-Authorization": "Basic abc",
                  "TE": "trailers", "Keep-Alive": "5", "Via": "1.0 before"}
        text = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        answer = self.door.raw(f"GET {self.target('/headers')} HTTP/1.1\r\nHost: elsewhere\r\n{text}\r\n"
                               f"GET {self.target('/bytes/1?end')} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        got = {name.lower(): value for name, value in self.origin.journal.log("/headers")[-1].headers.items()}
        self.assertEqual(got["host"], self.url.split("/")[2])
        self.assertEqual(got["x-other"], "2")
        self.assertTrue({"x-mine", "proxy-authorization", "te", "keep-alive"}.isdisjoint(got), got)
        self.assertEqual((got["accept"], got["accept-encoding"]), ("*/*", "identity"))
        self.assertIn("earshot/", got["user-agent"])
        self.assertRegex(got["via"], r"^1\.0 before, ?1\.1 earshot-|^1\.1 earshot-")
        self.assertEqual(answer.count(b"\r\nVia: 1.1 earshot-"), 2)
        self.assertEqual(answer.count(b"\r\nDate: "), 2)

    def test_POST_and_PUT_carry_their_body_with_either_framing(self):
        content = body(300_000)
        status, _, _ = self.door.get(self.target("/headers"), "POST", content)
        self.assertEqual((status, self.origin.journal.log("/headers")[-1].body), (200, content))
        chunks = b"".join(b"%x;a=b\r\n%s\r\n" % (len(part), part) for part in (content[:5], content[5:]))
        answer = self.door.raw(f"PUT {self.target('/headers')} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
                               "Transfer-Encoding: chunked\r\n\r\n".encode() + chunks + b"0\r\nA: b\r\n\r\n")
        self.assertIn(b"HTTP/1.1 200", answer)
        request = self.origin.journal.log("/headers")[-1]
        self.assertEqual((request.method, request.body), ("PUT", content))

    def test_100_continue_or_a_final_status_comes_before_the_body(self):
        def expect(length, target="/headers"):
            return (f"POST {self.target(target)} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n"
                    "Expect: 100-continue\r\n\r\n").encode()
        with self.door.open_request(expect(3)) as peer:
            self.assertEqual(peer.recv(100), b"HTTP/1.1 100 Continue\r\n\r\n")
            peer.sendall(b"abc")
            self.assertIn(b"HTTP/1.1 200", read(peer))
        for text in [expect(5 << 20), f"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n"
                     .encode()]:
            answer = self.door.raw(text)
            self.assertNotIn(b"100 Continue", answer)
            self.assertRegex(answer, rb"^HTTP/1.1 4(13|05) ")

    def test_own_refusals_have_Proxy_Status(self):
        status, fields, _ = self.door.get("http://absent.invalid/")
        self.assertEqual((status, fields[PROXY_STATUS].split(";")[:2]), (502, ["earshot", " error=dns_error"]))
        with socket.socket() as closed:
            closed.bind((HOST, 0))
            status, fields, _ = self.door.get(f"http://{HOST}:{closed.getsockname()[1]}/")
        self.assertEqual(status, 502)
        self.assertIn("error=connection_refused", fields[PROXY_STATUS])

    def test_requests_that_return_are_508_and_CONNECT_is_refused(self):
        self.assertEqual(self.door.get(self.door.proxy)[0], 508)
        via = self.door.get(self.target("/bytes/1"))[1]["Via"]
        self.assertEqual(self.door.get(self.target("/bytes/1"), Via=via)[0], 508)
        status, fields, text = self.door.get("a.example:443", "CONNECT")
        self.assertEqual((status, "GET" in fields["Allow"]), (405, True))
        self.assertIn(b"tunnels", text)
        self.assertEqual(self.door.get("/")[0], 404)

    def test_old_and_odd_requests_are_served(self):
        url = self.target("/bytes/3?odd")
        answer = self.door.raw(f"GET {url} HTTP/1.0\r\n\r\n".encode())
        self.assertTrue(answer.endswith(body(3)) and b"Connection: close" in answer, answer)
        answer = self.door.raw(f"\r\nGET {url} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        self.assertTrue(answer.endswith(body(3)))
        answer = self.door.raw(f"GET {self.target('/chunked/100000?odd')} HTTP/1.0\r\n\r\n".encode())
        self.assertTrue(answer.endswith(body(100_000)))
        several = f"GET {url} HTTP/1.1\r\nHost: a\r\n\r\n" * 20
        answer = self.door.raw((several + f"GET {url} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").encode())
        self.assertEqual(answer.count(b"HTTP/1.1 200 OK"), 21)

    # The prefix.

    def test_a_url_below_the_prefix_is_fetched_and_its_redirect_stays_there(self):
        path = f"/{self.url}/kept/prefix?cc=max-age=600&bytes=100"
        status, fields, content = self.door.get(path, Cookie="a=b", Authorization="c")
        self.assertEqual((status, len(content)), (200, 100))
        self.assertEqual(fields["Content-Security-Policy"], "sandbox")
        self.assertTrue({"cookie", "authorization"}.isdisjoint(name.lower() for name in self.origin.journal.log("/kept/prefix")[0].headers))
        self.assertEqual(self.door.get(path.replace("://", ":/"))[1]["Earshot-Source"], "cache")
        status, fields, _ = self.door.get(f"/{self.url}/redirect/2")
        self.assertEqual(status, 302)
        self.assertTrue(fields["Location"].startswith(f"http://127.0.0.1:{self.door.port}/{self.url}/"), fields["Location"])

    def test_https_is_fetched_below_the_prefix_and_an_unknown_certificate_is_502(self):
        with tempfile.TemporaryDirectory() as folder, Origin(certificate=certificate.self_signed(folder)) as secure:
            path = f"/{secure.url}/bytes/100000"
            status, fields, _ = self.door.get(path)
            self.assertEqual((status, "tls_protocol_error" in fields[PROXY_STATUS]), (502, True))
            self.assertEqual(secure.journal.total, 0)
            if os.geteuid() != 0:
                self.skipTest("only root can replace the certificates that the system trusts")
            bundle = "/etc/ssl/certs/ca-certificates.crt"
            trusting = ["unshare", "-m", "sh", "-c", f'mount --bind {folder}/certificate.pem {bundle} && exec "$@"', "sh"]
            with Door(prefix=trusting) as door:
                self.assertEqual(door.get(path)[::2], (200, body(100_000)))
                status, fields, _ = door.get(f"/{secure.url}/redirect/2")
                self.assertEqual((status, fields["Location"].partition("/redirect")[0]), (302, f"{door.proxy}{secure.url}"))

    def test_rewritten_indexes_that_nobody_reads_have_a_bound(self):
        with Site() as site, Door(arguments=["--http-rewrite", HOST]) as door:
            url = site.publish("/large", "text/html", b"x" * (30 << 20), Cache_Control="max-age=600")
            peers = [door.open_request(f"GET /{url} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()) for _ in range(3)]
            for peer in peers:
                peer.settimeout(60)
            # 64 MiB for all.
            self.assertEqual(sorted(peer.recv(12)[9:] for peer in peers), [b"200", b"200", b"503"])
            for peer in peers:
                peer.close()
            eventually(lambda: door.get("/" + url)[0] == 200, "the bytes are free again")

    def test_an_index_of_a_named_host_keeps_its_urls_below_the_prefix(self):
        text = b'<a href="http://files.example/a.whl#sha256=1">a</a>'
        packed = gzip.compress(text)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
        with RawOrigin(head + packed) as origin, Door(arguments=["--http-rewrite", HOST]) as door:
            _, fields, content = door.get("/" + origin.url, Accept_Encoding="gzip", Range="bytes=0-1")
            self.assertEqual(content, text.replace(b'"http://f', f'"http://{HOST}:{door.port}/http://f'.encode()))
            self.assertNotIn("Content-Encoding", fields)
            self.assertNotIn(b"\nRange", origin.heads[0].title())
            # Through the proxy the bytes are those of the server.
            self.assertEqual(door.get(origin.url, Accept_Encoding="gzip")[2], packed)


if __name__ == "__main__":
    unittest.main()
