"""The test support itself: a faulty origin, checker or launcher would make every other test worthless."""

import os
import socket
import struct
import unittest
import urllib.error
import urllib.request

from support.harness import TestCase, check_ledgers
from support.origin import Origin
from support.processes import Program, Watched, children, eventually, resident, wakeups


def request(origin, path, index=0):
    """Returns a raw connection on which `path` was requested."""
    host, _, port = origin.urls[index].rpartition("/")[2].partition(":")
    connection = socket.create_connection((host, int(port)), timeout=60)
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    return connection


class OriginTests(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.origin = cls.enterClassContext(Origin(ports=2))

    def get(self, path):
        return urllib.request.urlopen(self.origin.url + path, timeout=60)

    def test_an_abort_by_FIN_and_one_by_RST_are_seen_and_a_whole_response_is_none(self):
        for path, linger in (("/hang?fin", 0), ("/stall/100?rst", 1)):
            connection = request(self.origin, path)
            self.origin.await_count(path, 1)
            if linger:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
            self.origin.await_aborts(path.partition("?")[0])
        self.get("/bytes/11").read()
        self.assertIsNone(self.origin.log("/bytes/11")[0].aborted)


class HelperTests(TestCase):
    def test_the_ledger_check_notices_one_lost_request_and_one_lost_delivery(self):
        def ledger(**changes):
            return {"requests": {"submitted": 9, "answered": 3, "failed": {"timeout": 1, "tls": 1}, "removed": 2,
                                 "orphaned": 1, "pending": changes.get("pending", 1)},
                    "deliveries": {"due": 5, "acknowledged": changes.get("acknowledged", 3), "lost": 1,
                                   "outstanding": 1}}
        check_ledgers(ledger())
        with self.assertRaisesRegex(AssertionError, "requests do not balance"):
            check_ledgers(ledger(pending=0))
        with self.assertRaisesRegex(AssertionError, "deliveries do not balance"):
            check_ledgers(ledger(acknowledged=4))

    def test_processes_are_found_measured_and_their_death_is_seen(self):
        reader, writer = os.pipe()
        self.addCleanup(os.close, writer)
        program = Program(["sh", "-c", "exec 3<&0; cat <&3 & echo $!; wait"], stdin=reader)
        os.close(reader)
        try:
            pid = int(program.await_line("", "stdout"))
            self.assertEqual(children(program.pid), [pid])
            # A process of a small C program: some hundred KiB.
            self.assertGreater(resident(pid), 100 << 10)
            self.assertLess(resident(pid), 10 << 20)
            self.check_wakeups(pid, program, writer)
            watched = Watched(pid)
            self.assertFalse(watched.await_death(0))
            watched.signal(9)
            self.assertTrue(watched.await_death())
            watched.close()
        finally:
            program.kill()

    def check_wakeups(self, pid, program, writer):
        """`cat` sleeps once for each line that it copies, and once before the first."""
        lines = 10
        before = wakeups(pid)
        for line in range(lines):
            last = wakeups(pid)
            os.write(writer, b"line %d\n" % line)
            program.await_line(f"line {line}", "stdout")
            eventually(lambda: wakeups(pid) > last, "it was woken, and sleeps again")
        self.assertLessEqual(wakeups(pid) - before, 2 * lines)

    def test_a_crash_in_a_log_is_noticed(self):
        program = Program(["sh", "-c", "echo 'x.swift:1: Fatal error: boom' >&2"])
        program.wait()
        self.assertEqual(len(program.crash_lines), 1)


if __name__ == "__main__":
    unittest.main()
