"""The test support itself: a faulty origin, checker or launcher would make every other test worthless."""

import gzip
import hashlib
import http.client
import json
import os
import shutil
import socket
import ssl
import struct
import unittest
import urllib.error
import urllib.request

from support import certificate
from support.harness import PYTHON, SUPPORT, TestCase, check_ledgers, temporary_folder
from support.nginx import Nginx
from support.origin import Origin, body
from support.processes import Program, Watched, children, eventually, resident, wakeups
from support.steady import Steady


def ask(origin, path, index=0):
    """Returns a raw connection on which `path` was requested."""
    host, _, port = origin.urls[index].rpartition("/")[2].partition(":")
    connection = socket.create_connection((host, int(port)), timeout=10)
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    return connection


def read_all(connection):
    received = b""
    while piece := connection.recv(1 << 16):
        received += piece
    return received


class OriginTests(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.origin = cls.enterClassContext(Origin(ports=2))

    def get(self, path):
        return urllib.request.urlopen(self.origin.url + path, timeout=10)

    def test_bytes_depend_on_size_and_seed_alone(self):
        for size in (0, 1, 1000, 65536, 200_001):
            self.assertEqual(self.get(f"/bytes/{size}?seed=s").read(), body(size, "s"))
            self.assertEqual(self.get(f"/chunked/{size}?seed=s").read(), body(size, "s"))
        self.assertNotEqual(body(1000, "a"), body(1000, "b"))

    def test_requests_are_counted_by_path_and_by_target_over_all_ports(self):
        for index in (0, 1):
            urllib.request.urlopen(self.origin.urls[index] + f"/bytes/7?seed={index}").read()
        self.assertEqual(self.origin.count("/bytes/7"), 2)
        self.assertEqual(self.origin.count("/bytes/7?seed=1"), 1)
        self.assertEqual(self.origin.count("/bytes/7?seed=2"), 0)

    def test_an_abort_by_FIN_and_one_by_RST_are_seen_and_a_whole_response_is_none(self):
        for path, linger in (("/hang?fin", 0), ("/stall/100?rst", 1)):
            connection = ask(self.origin, path)
            self.origin.await_count(path, 1)
            if linger:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
            self.origin.await_aborts(path.partition("?")[0])
        self.get("/bytes/11").read()
        self.assertIsNone(self.origin.log("/bytes/11")[0].aborted)

    def test_a_gate_holds_until_it_is_opened(self):
        connection = ask(self.origin, "/gate/one?bytes=5")
        self.origin.await_count("/gate/one", 1)
        self.assertTrue(self.origin.log("/gate/one")[0].unfinished)
        self.origin.open_gate("one")
        self.assertTrue(connection.recv(1000))
        connection.close()

    def test_faults_are_what_they_say(self):
        self.assertEqual(gzip.decompress(self.get("/gzip-bomb/3000000").read()), bytes(3_000_000))
        self.assertEqual(self.get("/redirect/3").read(), b"arrived\n")
        self.assertEqual(self.origin.count("/redirect/0"), 1)
        self.assertEqual(self.get("/drip?bytes=10&seconds=0.1").read(), body(10))
        self.assertEqual(json.load(self.get("/headers"))["method"], "GET")
        with self.assertRaises(http.client.IncompleteRead):
            self.get("/cut/10/20").read()
        with self.assertRaises(urllib.error.HTTPError) as raised:
            self.get("/status/404")
        self.assertEqual(raised.exception.code, 404)
        raised.exception.close()
        with self.assertRaises(ConnectionResetError):
            read_all(ask(self.origin, "/reset"))
        with self.assertRaises(http.client.BadStatusLine):
            self.get("/garbage")
        with self.assertRaises(urllib.error.HTTPError) as raised:
            self.get("/nonsense")
        self.assertEqual(raised.exception.code, 400)
        raised.exception.close()

    def test_it_holds_1000_connections_at_once(self):
        with Origin() as origin:
            connections = [ask(origin, f"/gate/all?bytes=1&i={i}") for i in range(1000)]
            origin.await_running(1000)
            origin.open_gate("all")
            self.assertTrue(all(connection.recv(1000) for connection in connections))
            origin.await_running(0)
            self.assertEqual(origin.most_at_once, 1000)
            for connection in connections:
                connection.close()

    def test_its_certificate_is_trusted_by_nobody(self):
        folder = temporary_folder()
        try:
            with Origin(certificate=certificate.self_signed(folder)) as origin:
                with self.assertRaises(urllib.error.URLError) as raised:
                    urllib.request.urlopen(origin.url + "/bytes/1", timeout=10)
                self.assertIsInstance(raised.exception.reason, ssl.SSLCertVerificationError)
                trusting = ssl._create_unverified_context()
                with urllib.request.urlopen(origin.url + "/bytes/9", timeout=10, context=trusting) as answer:
                    self.assertEqual(answer.read(), body(9))
        finally:
            shutil.rmtree(folder)

    def test_as_a_command_it_prints_its_url_and_serves(self):
        program = Program([PYTHON, SUPPORT, "origin"])
        try:
            url = program.await_line("http://", "stdout")
            with urllib.request.urlopen(url + "/bytes/3", timeout=10) as answer:
                self.assertEqual(answer.read(), body(3))
        finally:
            program.kill()


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

    def test_nginx_serves_a_folder_and_counts(self):
        folder = temporary_folder()
        try:
            root = folder / "files"
            root.mkdir()
            (root / "one").write_bytes(b"1" * 1000)
            with Nginx(folder / "nginx", root) as nginx:
                for _ in range(2):
                    with urllib.request.urlopen(nginx.url + "/one") as answer:
                        self.assertEqual(answer.read(), b"1" * 1000)
            self.assertEqual(nginx.requests()["/one"], 2)
        finally:
            shutil.rmtree(folder)

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

    def test_checksums_are_not_of_the_same_thing_twice(self):
        digests = {hashlib.sha256(body(1024, seed)).digest() for seed in range(100)}
        self.assertEqual(len(digests), 100)


class SteadyTests(TestCase):
    def setUp(self):
        self.origin = self.enterContext(Steady(2))

    def test_it_answers_in_time_and_counts_by_port(self):
        held = [ask(self.origin, f"/60/{index}", index % 2) for index in range(3)]
        eventually(lambda: len(self.origin.running()) == 3, "all are held")
        self.assertEqual([self.origin.most_at_once(port) for port in (0, 1)], [2, 1])
        self.assertEqual(sorted(entry.target for entry in self.origin.log(0)), ["/60/0", "/60/2"])
        for index in range(3):
            with ask(self.origin, f"/0.1/{index}") as connection:
                self.assertTrue(connection.recv(1 << 16).endswith(f"\r\n\r\n/0.1/{index}".encode()))
        # The delay beyond the due time depends on other load; responses due in a minute still wait.
        self.assertEqual(len(self.origin.running()), 3)
        for entry in self.origin.log()[3:]:
            self.assertEqual(entry.status, 200)
            self.assertGreaterEqual(entry.ended - entry.began, 0.1)
        for connection in held:
            connection.close()

    def test_who_leaves_is_not_held_any_more(self):
        for _ in range(3):
            connection = ask(self.origin, "/60/left")
            eventually(lambda: self.origin.running() == ["/60/left"], "it is held")
            connection.close()
            eventually(lambda: not self.origin.running(), "it is not")
        self.assertEqual(self.origin.most_at_once(), 1)
        self.assertEqual([entry.status for entry in self.origin.log()], [0, 0, 0])


if __name__ == "__main__":
    unittest.main()
