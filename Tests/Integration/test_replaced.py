"""Files that `earshot get` replaces: owner, group and mode, and files that no other can replace."""

import os
import unittest

from support.harness import Bus, TestCase, binary
from support.origin import Origin, body
from support.processes import Program


class ReplacedTests(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.origin = cls.enterClassContext(Origin())
        cls.bus = cls.enterClassContext(Bus(workers=1))

    def get(self, *arguments, status=0):
        program = self.bus.run("get", *arguments)
        self.assertEqual(program.status, status, program.describe())

    @unittest.skipUnless(os.geteuid() == 0, "only root gives files to others")
    def test_a_file_of_another_user_keeps_owner_group_and_mode(self):
        folder = self.bus.folder / "others"
        folder.mkdir()
        small, large = f"{self.origin.url}/bytes/10", f"{self.origin.url}/bytes/300000"
        for name, arguments, mode in (
                ("small", ["-o", folder / "small", small], 0o640), ("large", ["-o", folder / "large", large], 0o600),
                ("10", ["-d", folder, small], 0o604), ("300000", ["-d", folder, large], 0o640),
                ("jar", ["-c", folder / "jar", "-o", "/dev/null", small], 0o600),
                ("failed", ["--failed", folder / "failed", "-o", "/dev/null", small], 0o600)):
            (folder / name).write_text("before")
            os.chown(folder / name, 1000, 1001)
            os.chmod(folder / name, mode)
            self.get(*arguments)
            found = (folder / name).stat()
            self.assertEqual((name, found.st_uid, found.st_gid, found.st_mode & 0o7777), (name, 1000, 1001, mode))
            self.assertNotEqual((folder / name).read_bytes(), b"before")

    def test_a_file_that_cannot_be_replaced_is_written(self):
        """A bind mount, or a directory without write permission for a user who is not root."""
        folder, outside = self.bus.folder / "fixed", self.bus.folder / "outside"
        folder.mkdir()
        target = folder / "file"
        for size in (10, 300_000):
            for path in (target, outside):
                path.write_bytes(b"before" * 100)
            get = [binary(), "get", "-o", str(target), f"{self.origin.url}/bytes/{size}"]
            if os.geteuid() == 0:
                script = f"mount --bind {outside} {target} && exec \"$@\""
                program = Program(["unshare", "-m", "sh", "-c", script, "get", *get], self.bus.environment, self.bus.folder)
            else:
                folder.chmod(0o555)
                program = Program(get, self.bus.environment, self.bus.folder)
            self.assertEqual(program.wait(), 0, program.describe())
            folder.chmod(0o755)
            written = outside if os.geteuid() == 0 else target
            self.assertTrue(written.read_bytes() == body(size), f"{size} bytes")
            self.assertEqual(os.listdir(folder), ["file"], "nothing else is left")
