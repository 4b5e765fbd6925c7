"""Bodies arrive decoded, for every supported coding; corrupt bytes are an error."""

import hashlib
import json

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

    def test_an_archive_keeps_its_coding(self):
        """Mirrors and object stores declare the compression of the file itself."""
        packed = encode("gzip", self.content)
        digest = hashlib.sha256(packed).hexdigest()
        names = {"a.tar.gz": packed, "page": self.content}
        for name in (*names, "other"):
            self.origin.coded[name] = packed
        url = f"{self.origin.url}/coded/gzip/"
        for arguments in (["-d", "out", *(url + name for name in names)], ["-o", "out/c", "--no-decode", url + "other"],
                          ["-o", "out/b.tgz", f"--checksum=sha256:{digest}", url + "other"]):
            got = self.bus.run("get", *arguments)
            self.assertEqual(got.status, 0, got.describe())
        (self.bus.folder / "list").write_text(f"{url}other\n  out=d.gz\n")
        got = self.bus.run("get", "-i", "list", "-d", "out", "--json")
        self.assertIn("content-encoding", {name.lower() for name in json.loads(got.stdout)["headers"]})
        files = {path.name: path.read_bytes() for path in (self.bus.folder / "out").iterdir()}
        self.assertTrue(files == names | {"b.tgz": packed, "c": packed, "d.gz": packed})
        requested = [request.headers["accept-encoding"] for request in self.origin.log("/coded/gzip/a.tar.gz")]
        self.assertEqual(requested, ["identity"])

    def test_a_body_that_is_not_decoded_is_neither_shared_nor_stored_with_one_that_is(self):
        packed = encode("gzip", self.content)
        self.origin.coded["gate=both"] = packed
        for target in ("/coded/gzip/gate=both", "/coded/gzip/gate=both"):
            self.client.fetch("pair", "decoded", self.origin.url + target)
            self.client.fetch("pair", "coded", self.origin.url + target, decode="no")
            found = {message.operands[1]: message.body for message in (self.client.terminal(), self.client.terminal())}
            self.assertTrue(found == {"decoded": self.content, "coded": packed})
