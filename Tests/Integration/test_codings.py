"""Bodies arrive decoded, for every supported coding; corrupt bytes are an error."""

import hashlib

from support.codings import encode
from support.harness import Bus, TestCase
from support.origin import Origin

CODINGS = ("gzip", "deflate", "br", "zstd")


class CodingTests(TestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.bus = self.enterContext(Bus(workers=1))
        self.client = self.bus.client()
        self.content = b"".join(b"line %d of a text that can be packed\n" % number for number in range(20_000))

    def fetch(self, coding, name, content, **fields):
        self.origin.coded[name] = content
        self.client.fetch(coding, name, f"{self.origin.url}/coded/{coding}/{name}", **fields)
        return self.client.terminal()

    def test_each_coding_is_asked_for_and_undone(self):
        for coding in CODINGS:
            packed = encode(coding, self.content)
            self.assertLess(len(packed), len(self.content) // 2)
            message = self.fetch(coding, coding, packed)
            self.assertResult(message, self.content)
            self.assertEqual(message.fields["sha-256"], hashlib.sha256(self.content).hexdigest())
            accepted = self.origin.log(f"/coded/{coding}/{coding}")[0].headers["accept-encoding"]
            self.assertEqual({word.strip() for word in accepted.split(",")}, set(CODINGS))

    def test_the_decoded_bytes_count(self):
        for coding in CODINGS:
            packed = encode(coding, bytes(50_000_000))
            message = self.fetch(coding, f"bomb-{coding}", packed, max_bytes=1_000_000)
            self.assertFailed(message, "too-large")

    def test_what_is_no_stream_of_its_coding_is_an_error(self):
        for coding in CODINGS:
            packed = encode(coding, self.content)
            damaged = packed[:len(packed) // 2] + b"\xff" * 1000 + packed[len(packed) // 2 + 1000:]
            self.assertFailed(self.fetch(coding, "damaged", damaged, retries=0), "encoding-error")
            self.assertFailed(self.fetch(coding, "none", b"\xff" * 1000, retries=0), "encoding-error")
