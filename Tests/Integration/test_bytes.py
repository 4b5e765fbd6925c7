"""Arguments, paths and lists are bytes: those that are not UTF-8 arrive unchanged. Bytes that no message can contain are
rejected."""

import json
import os

from support.harness import Bus, TestCase
from support.origin import Origin, body

# As a shell passes it: Python converts these back to bytes.
NAME = os.fsdecode(b"caf\xe9")


class ByteTests(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.origin = cls.enterClassContext(Origin())
        cls.bus = cls.enterClassContext(Bus(workers=1))

    def seen(self, *arguments, **options):
        """Returns the request of one `get` as received by the origin."""
        got = self.bus.run("get", *arguments, **options)
        self.assertEqual(got.status, 0, got.describe())
        return json.loads(got.stdout)

    def test_a_url_s_bytes_are_percent_encoded(self):
        self.assertEqual(self.seen(f"{self.origin.url}/headers?{NAME}/\u00e9")["target"], "/headers?caf%E9/%C3%A9")
        listed = f"{self.origin.url}/headers?".encode() + b"caf\xe9\n"
        self.assertEqual(self.seen("-i", "-", input=listed)["target"], "/headers?caf%E9")
        get = json.loads(self.bus.run("get", "--json", f"{self.origin.url}/bytes/1?{NAME}").stdout)
        self.assertEqual(get["url"], f"{self.origin.url}/bytes/1?caf%E9")

    def test_a_file_s_name_is_its_bytes(self):
        url = f"{self.origin.url}/bytes/300000"
        for option, path in (("-o", f"file-{NAME}"), ("-d", f"folder-{NAME}")):
            # Once moved, once copied over an existing file, and once while it arrives.
            for _ in range(2):
                got = self.bus.run("get", option, path, url)
                self.assertEqual(got.status, 0, got.describe())
            target = self.bus.folder / path / "300000" if option == "-d" else self.bus.folder / path
            self.assertTrue(target.read_bytes() == body(300_000))
        self.assertEqual([name for name in os.listdir(os.fsencode(self.bus.folder)) if b"\xef\xbf\xbd" in name], [])
        link = self.bus.folder / f"link-{NAME}"
        link.symlink_to(f"target-{NAME}")
        (self.bus.folder / f"target-{NAME}").touch()
        self.bus.run("get", "-o", f"link-{NAME}", url)
        self.assertTrue(link.is_symlink())
        self.assertTrue(link.read_bytes() == body(300_000))

    def test_what_is_read_is_found_by_its_bytes(self):
        (self.bus.folder / f"list-{NAME}").write_text(f"{self.origin.url}/headers\n")
        (self.bus.folder / f"config-{NAME}").write_text("slots = 7\n")
        (self.bus.folder / f"data-{NAME}").write_bytes(b"data \xe9")
        self.seen("-i", f"list-{NAME}")
        config = self.bus.run("config", "--config", f"config-{NAME}")
        self.assertIn("slots 7 ", " ".join(config.stdout.decode().split()))
        self.assertEqual(self.seen("--data", f"@data-{NAME}", f"{self.origin.url}/headers")["body"], "data \xe9")
        self.assertEqual(self.seen("--data", NAME, f"{self.origin.url}/headers")["body"], "caf\xe9")
        self.assertEqual(self.seen("-H", f"x: {NAME}", f"{self.origin.url}/headers")["headers"]["x"], "caf\xe9")

    def test_a_message_shows_them(self):
        got = self.bus.run("get", "-i", NAME)
        self.assertEqual((got.status, got.stderr), (66, "earshot: cannot read caf\\xe9: No such file or directory\n"))
        get = self.bus.run("get", "--json", "-o", f"told-{NAME}", f"{self.origin.url}/bytes/1")
        self.assertEqual(json.loads(get.stdout)["path"], "told-caf\ufffd")

    def test_a_folder_that_no_message_can_name_is_refused(self):
        for path in ("new\nline", "escape\x1b[2J", NAME):
            for option in ("--spool", "--cache-folder", "--durable-folder", "--runtime"):
                with self.subTest(option=option, path=path):
                    serve = self.bus.run("serve", option, path)
                    self.assertEqual(serve.status, 73, serve.describe())
                    self.assertIn("holds a control character or is not UTF-8: choose another path\n", serve.stderr)
                    self.assertEqual(len(serve.stderr.splitlines()), 1)
                    self.assertFalse((self.bus.folder / path).exists())
            got = self.bus.run("get", "--ca-file", path, self.origin.url)
            self.assertEqual(got.status, 64, got.describe())
            self.assertIn("--ca-file: the path must be UTF-8 without control characters", got.stderr)

    def test_nothing_invisible_reaches_a_terminal_a_name_or_json(self):
        hidden = "\u200b\u202e\U000e0041\u2066"
        self.bus.run("get", "-d", "names", f"{self.origin.url}/kept/a{hidden}b")
        self.assertEqual([path.name for path in (self.bus.folder / "names").iterdir()], ["a____b"])
        get = self.bus.run("get", "--json", f"{self.origin.url}/bytes/1?a{hidden}b")
        self.assertEqual(json.loads(get.stdout)["url"], f"{self.origin.url}/bytes/1?a{hidden}b")
        self.assertTrue(get.stdout.isascii(), get.stdout)

    def test_a_wrong_argument_is_shown_without_controls(self):
        hidden = "\u200b\u202e\U000e0041\u2066"
        for arguments in (["get", f"--non{hidden}\x1b[2Jsense"], [f"non\x1b[2J{hidden}sense"],
                          ["get", "--priority", f"\x1b[2J{hidden}", self.origin.url]):
            got = self.bus.run(*arguments)
            self.assertEqual(got.status, 64, got.describe())
            for character in f"\x1b{hidden}":
                self.assertNotIn(character, got.stderr)
