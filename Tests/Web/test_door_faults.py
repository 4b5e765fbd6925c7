"""Faults that users of other HTTP proxies report, at the HTTP door."""

import gzip
import threading
import unittest

import checkout  # noqa: F401
from door import Door, RawOrigin, Site, more
from support.harness import TestCase
from support.origin import Origin, body
from support.processes import eventually

FRESH = b"Cache-Control: max-age=600\r\n"


def response(status, content, fields=b""):
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n%s\r\n%s" % (status, len(content), fields, content)


class FaultTests(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.door = cls.enterClassContext(Door(origin_limit=100))

    def test_a_range_of_a_response_that_is_not_stored_is_passed_on_and_never_stored_as_whole(self):
        whole = body(5_000)
        for range_field, part, content_range in [("bytes=10-19", whole[10:20], b"10-19"), ("bytes=-5", whole[-5:], b"4995-4999")]:
            partial = response(b"206 Partial Content", part, FRESH + b"Content-Range: bytes %s/5000\r\n" % content_range)
            with RawOrigin(partial) as origin:
                status, fields, content = self.door.get(origin.url, Range=range_field)
                self.assertEqual((status, fields["Content-Range"], content), (206, f"bytes {content_range.decode()}/5000", part))
                self.assertIn(f"range: {range_field}\r\n", origin.heads[0].decode().lower())
                origin.answer = response(b"200 OK", whole, FRESH)
                self.assertEqual(self.door.get(origin.url)[::2], (200, whole))
                self.assertEqual(self.door.get(origin.url, Range=range_field)[::2], (206, part))
                self.assertEqual(len(origin.heads), 2)
        # A server that ignores the range.
        with RawOrigin(response(b"200 OK", whole)) as origin:
            self.assertEqual(self.door.get(origin.url, Range="bytes=10-")[::2], (200, whole))

    def test_a_304_with_a_length_of_zero_leaves_the_stored_response_as_it_was(self):
        with RawOrigin(response(b"200 OK", b"whole", b'ETag: "a"\r\nCache-Control: no-cache\r\n')) as origin:
            self.assertEqual(self.door.get(origin.url)[2], b"whole")
            origin.answer = response(b"304 Not Modified", b"", b'ETag: "a"\r\n')
            status, fields, content = self.door.get(origin.url)
            self.assertEqual((status, fields["Content-Length"], content), (200, "5", b"whole"))
            self.assertEqual((fields["Earshot-Source"], len(origin.heads)), ("revalidated", 2))

    def test_a_stored_coding_is_not_given_to_a_client_that_does_not_accept_it(self):
        coded = gzip.compress(b"plain" * 100)
        with Site() as site:
            url = site.publish("/coded", "text/plain", coded, Content_Encoding="gzip", Cache_Control="max-age=600")
            for _ in range(2):
                status, fields, content = self.door.get(url, Accept_Encoding="gzip")
                self.assertEqual((status, fields["Content-Encoding"], content), (200, "gzip", coded))
            self.assertEqual(site.requested, ["/coded"])
            site.publish("/coded", "text/plain", b"plain", Cache_Control="max-age=600")
            self.assertEqual(self.door.get(url, Accept_Encoding="identity")[2], b"plain")
            self.assertEqual(len(site.requested), 2)

    def test_an_error_and_a_stale_response_answer_all_who_joined(self):
        with Site() as site:
            for path, status, fields in [("/error", 404, {}), ("/stale", 200, {"Cache_Control": "max-age=0"})]:
                if status == 200:
                    site.publish(path, "text/plain", b"x", **fields)
                site.held.add(path)
            answers = []

            def request_path(path):
                answers.append((path, self.door.get(site.url + path)[0]))
            clients = [threading.Thread(target=request_path, args=(path,)) for path in ["/error", "/stale"] * 10]
            for client in clients:
                client.start()
            with self.door.client() as client:
                eventually(lambda: client.query("status")["requests"]["pending"] == 20, "all have joined")
            site.open_gate()
            for client in clients:
                client.join(60)
            self.assertEqual(sorted(answers), [("/error", 404)] * 10 + [("/stale", 200)] * 10)
            self.assertEqual(sorted(site.requested), ["/error", "/stale"])

    def test_the_part_of_a_client_that_left_is_not_stored_as_whole(self):
        size = 3_000_000
        with Origin() as origin:
            url = f"{origin.url}/steps/left?bytes={size}"
            with self.door.request(url) as peer:
                received = 0
                while received < 1_000_000:
                    received += len(more(peer))
            origin.journal.await_aborts("/steps/left")
            origin.open_gate("left")
            self.assertTrue(self.door.get(url)[2] == body(size), "other bytes than the origin's")


if __name__ == "__main__":
    unittest.main()
