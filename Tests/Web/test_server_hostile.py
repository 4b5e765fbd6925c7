"""`earshot-web` and peers that do harm: slow, silent, greedy, malformed, or without the token."""

import concurrent.futures
import os
import pathlib
import resource
import socket
import stat
import time
import unittest

import checkout  # noqa: F401
from web import HOST, Web
from support.harness import Bus, Commands, TestCase, temporary_folder, web
from support.processes import Program, eventually

TOKEN = "0123456789abcdef-token"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
METRICS = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


def memory(pid):
    """Returns the resident memory in KiB."""
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def drip(port):
    """Sends a request byte by byte. Returns the seconds until the connection ends."""
    began = time.monotonic()
    text = b"GET /healthz HTTP/1.1\r\nX: " + b"a" * 1_000
    with socket.create_connection((HOST, port), 2) as peer:
        for sent in range(30):
            try:
                peer.sendall(text[sent:sent + 1])
                if peer.recv(100) == b"":
                    break
            except TimeoutError:
                continue
            except OSError:
                break
    return time.monotonic() - began


class FloodTests(TestCase):
    @classmethod
    def setUpClass(cls):
        # Beside the other tests, because it takes half a minute.
        cls.patient = cls.enterClassContext(Web(cls.enterClassContext(Bus())))
        cls.dripping = cls.enterClassContext(concurrent.futures.ThreadPoolExecutor(1)).submit(drip, cls.patient.port)

    def test_very_slow_requests_end_after_their_time(self):
        seconds = self.dripping.result()
        self.assertGreater(seconds, 25)
        self.assertLess(seconds, 120, "it still waits for the request")
        self.assertEqual(self.patient.get("/healthz")[0], 200)

    def setUp(self):
        self.bus = self.enterContext(Bus())
        self.web = self.enterContext(Web(self.bus))

    def connect(self):
        peer = self.enterContext(socket.create_connection((HOST, self.web.port), 60))
        return peer

    def answers(self):
        began = time.monotonic()
        self.assertEqual(self.web.get("/healthz")[0], 200)
        self.assertEqual(self.web.get("/metrics")[0], 200)
        # Less than the 30 s for which it waits for a request.
        self.assertLess(time.monotonic() - began, 30)

    def test_1000_silent_and_slow_connections_keep_nobody_out(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = hard if hard != resource.RLIM_INFINITY else 10_000
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(2_000, most)), hard))
        before = memory(self.web.program.pid)
        # A third of them where the system permits only 1,024 files.
        for number in range(1_000 if most >= 2_000 else 300):
            peer = self.connect()
            if number % 2:
                peer.sendall(b"GET /metrics HTTP/1.1\r\nHost: loc")
        self.answers()
        files = len(os.listdir(f"/proc/{self.web.program.pid}/fd"))
        self.assertLess(files, 100)
        self.assertLess(memory(self.web.program.pid) - before, 20_000)

    def test_peers_that_do_not_read_cost_bounded_memory(self):
        for _ in range(5):
            self.web.get("/metrics")
        before = memory(self.web.program.pid)
        for _ in range(60):
            peer = self.connect()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            peer.setblocking(False)
            for _ in range(50):
                try:
                    peer.send(METRICS * 300)
                except BlockingIOError:
                    break
        self.answers()
        self.assertLess(memory(self.web.program.pid) - before, 40_000)

    def test_a_peer_that_has_ended_its_side_gets_all_its_responses(self):
        for count in (1, 50, 300):
            peer = self.connect()
            peer.sendall(METRICS * count)
            peer.shutdown(socket.SHUT_WR)
            answer = b""
            while data := peer.recv(65_536):
                answer += data
            self.assertEqual(answer.count(b"HTTP/1.1 200 OK"), count)

    def test_streams_that_nobody_reads_leave_places_for_pages(self):
        for _ in range(16):
            peer = self.connect()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            peer.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n" + METRICS * 100)
        self.answers()

    def test_connections_that_end_in_each_phase_leave_nothing_behind(self):
        requests = [b"", b"G", HEALTH[:-2], HEALTH, METRICS, METRICS * 50, b"GET /events HTTP/1.1\r\nHost: a\r\n\r\n",
                    b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 10]
        before = len(os.listdir(f"/proc/{self.web.program.pid}/fd"))
        for number in range(300):
            with socket.create_connection((HOST, self.web.port), 60) as peer:
                if number % 2:
                    # A reset in place of an orderly end.
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                peer.sendall(requests[number // 2 % len(requests)])
        self.answers()
        eventually(lambda: len(os.listdir(f"/proc/{self.web.program.pid}/fd")) <= before, "all are closed")


class SecretTests(TestCase):
    def test_the_token_is_accepted_in_its_field_only_and_never_shown(self):
        with Bus() as bus:
            file = bus.folder / "token"
            file.write_text(TOKEN)
            file.chmod(0o600)
            with Web(bus, "--token-file", file) as web:
                refused = [{}, {"Authorization": TOKEN}, {"Authorization": f"Bearer {TOKEN}x"},
                           {"Authorization": f"Bearer {TOKEN[:-1]}"}, {"Authorization": "Bearer"},
                           {"Authorization": "Basic OnRva2Vu"}, {"Cookie": f"token={TOKEN}"}, {"X_Token": TOKEN}]
                for fields in refused:
                    self.assertEqual(web.get(f"/metrics?token={TOKEN}", **fields)[0], 401, fields)
                status, fields, text = web.get(f"/why?handler={TOKEN}", Authorization=f"Bearer {TOKEN}")
                self.assertEqual(status, 400)
                self.assertNotIn(TOKEN, f"{fields}{text}")
                arguments = pathlib.Path(f"/proc/{web.program.pid}/cmdline").read_bytes()
                self.assertNotIn(TOKEN.encode(), arguments)
            self.assertNotIn(TOKEN, web.program.stderr)

    def test_a_request_without_the_token_asks_the_broker_nothing(self):
        with Bus() as bus, bus.client() as client:
            file = bus.folder / "token"
            file.write_text(TOKEN)
            file.chmod(0o600)
            with Web(bus, "--token-file", file) as web:
                peers = client.query("status")["clients"]
                with self.subTest("streams"):
                    for _ in range(40):
                        self.assertEqual(web.get("/events")[0], 401)
                self.assertEqual(web.get("/events", Authorization="Bearer wrong-wrong-wrong")[0], 401)
                self.assertEqual(client.query("status")["clients"], peers)


class SocketTests(TestCase):
    def setUp(self):
        self.folder = temporary_folder()
        self.commands = Commands(self.folder / "run", self.folder)

    def refused(self, path):
        program = Program([web(), "--listen", path], self.commands.environment, self.folder)
        self.assertEqual(program.wait(), 73, program.describe())
        self.assertIn(f"cannot listen at {path}", program.stderr)

    def test_a_file_in_the_place_of_the_socket_stays(self):
        for name, make in [("file", lambda path: path.write_text("kept")), ("link", lambda path: path.symlink_to("file"))]:
            path = self.folder / name
            make(path)
            self.refused(path)
            self.assertEqual(path.read_text(), "kept")

    def test_a_server_that_runs_keeps_its_socket_and_one_that_was_killed_does_not(self):
        path = self.folder / "web.sock"
        with Web(self.commands, listen=str(path)) as first:
            self.refused(path)
            self.assertEqual(first.get("/healthz")[0], 200)
            first.program.signal(9)
            first.program.wait()
        self.assertTrue(stat.S_ISSOCK(path.lstat().st_mode))
        with Web(self.commands, listen=str(path)) as second:
            self.assertEqual(second.get("/healthz")[0], 200)


if __name__ == "__main__":
    unittest.main()
