"""`earshot cache` without a bus."""

import json
import unittest

from support.harness import Commands, TestCase, remove_folder, temporary_folder


class CacheCommandTests(TestCase):
    def test_stat_counts_the_partial_bodies_beside_the_cache_and_clear_removes_them(self):
        folder = temporary_folder()
        self.addCleanup(remove_folder, folder)
        commands = Commands(folder / "run", folder)
        options = ["--cache-folder", folder / "cache"]
        self.assertEqual(json.loads(commands.run("cache", "stat", "--json", *options).stdout)["parts"], 0)
        parts = folder / "parts"
        parts.mkdir(mode=0o700)
        for name, size in (("a" * 64 + ".body", 10), ("a" * 64 + ".head", 3)):
            (parts / name).write_bytes(bytes(size))
        shown = json.loads(commands.run("cache", "stat", "--json", *options).stdout)
        self.assertEqual((shown["parts"], shown["part-bytes"]), (1, 10))
        self.assertIn(b"parts      1, 10 bytes,", commands.run("cache", "stat", *options).stdout)
        clear = commands.run("cache", "clear", *options)
        self.assertEqual((clear.status, clear.stderr), (0, "earshot: removed 0 responses and 1 parts\n"))
        self.assertEqual(list(parts.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
