"""Tests of results: saved files, and a process without free descriptors."""

import os
import pathlib
import resource
import tempfile
import unittest

import fixture  # noqa: F401 (it sets the paths)
from earshot_bus._messages import decode
from earshot_bus._results import FetchFailed, terminal


class ResultTests(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.released = []

    def receive(self, line, file, *fields):
        head = "\n".join([line, "seq: 1", f"file: {file}", *fields])
        return terminal(decode([head.encode()]), lambda: self.released.append(line))

    def file(self, data=b"body"):
        path = self.folder / "spooled"
        path.write_bytes(data)
        return path

    def test_a_result_is_saved_whatever_its_request_is_called(self):
        # An ID chosen by another program may contain any visible characters.
        for number, request in enumerate(("a/../../b", "." * 64, "x" * 64)):
            # The maximum length of a file name.
            target = self.folder / f"{number}{'n' * 254}"
            with self.subTest(request):
                result, _ = self.receive(f"RESULT h {request} 200", self.file())
                result.save(target)
                self.assertEqual(target.read_bytes(), b"body")
                self.assertEqual(sorted(path.name for path in self.folder.iterdir()), sorted(["spooled", target.name]))
                target.unlink()

    def test_a_result_that_cannot_be_saved_is_released(self):
        for target in (self.folder / "none" / "a", self.file() / "a", self.folder):
            with self.subTest(target):
                result, _ = self.receive("RESULT h 1 200", self.file())
                self.assertRaises(OSError, result.save, target)
                self.assertEqual(len(self.released), 1)
                self.released.clear()
        self.assertEqual([path.name for path in self.folder.iterdir()], ["spooled"])

    def test_an_error_page_that_cannot_be_read_is_a_failure_all_the_same(self):
        path = self.file()
        lowest = os.open(path, os.O_RDONLY)
        os.close(lowest)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        # The last free descriptor: the file can be opened, and no other.
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 1, limits[1]))
        try:
            failure, hold = self.receive("FAILED h 1 http-status", path, "status: 404", "length: 4")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        self.assertIsInstance(failure, FetchFailed)
        self.assertEqual((failure.code, failure.status), ("http-status", 404))
        hold.release()
        self.assertEqual(len(self.released), 1)
