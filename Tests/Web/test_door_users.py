"""The HTTP door as a process of the bus: its users, its rights, its settings, its death."""

import base64
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest
import urllib.parse
from unittest import mock

import checkout  # noqa: F401
from door import HOST, Door, RawOrigin, Site, more, read
from support.harness import Bus, Commands, TestCase, binary, temporary_folder, web
from support.origin import Origin, body
from support.processes import eventually, watch_all
from web import Web

OTHER = 4_321
"""A user ID without an account."""

REQUEST_PROGRAM = """
import os, socket, sys
os.setgroups([]); os.setgid({user}); os.setuid({user})
kind, place, request = sys.argv[1:]
peer = socket.socket({{"unix": socket.AF_UNIX, "mapped": socket.AF_INET6}}.get(kind, socket.AF_INET))
peer.settimeout(60)
try:
    peer.connect(place if kind == "unix" else ("::ffff:127.0.0.1" if kind == "mapped" else "127.0.0.1", int(place)))
except PermissionError:
    sys.exit("closed")
peer.sendall(request.encode())
print(peer.recv(100).decode().split()[1])
"""


class UserTests(TestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.url = self.origin.url + "/bytes/100"

    def request_as_other(self, kind, target, request=None):
        """Returns the status of a request of another user, or `closed`."""
        request = request or f"GET {self.url} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        done = subprocess.run([sys.executable, "-I", "-c", REQUEST_PROGRAM.format(user=OTHER), kind, str(target), request],
                              capture_output=True, text=True, timeout=90)
        return (done.stdout or done.stderr).strip()

    @unittest.skipIf(os.geteuid(), "another user needs root")
    def test_another_user_gets_403_over_tcp_unless_it_is_permitted(self):
        with Door() as door:
            self.assertEqual(self.request_as_other("tcp", door.port), "403")
            self.assertEqual(self.origin.journal.total, 0)
            self.assertEqual(door.get(self.url)[0], 200)
            eventually(lambda: door.status()["http"]["refused"] > 0, "the refusal is counted")
        with Door(arguments=["--http-users", OTHER]) as door:
            self.assertEqual(self.request_as_other("tcp", door.port), "200")
            # Programs in Java connect with a socket of IPv6.
            self.assertEqual(self.request_as_other("mapped", door.port), "200")
            self.assertEqual(door.get(self.url)[0], 200)
        self.assertEqual(self.origin.journal.count("/bytes/100"), 4)

    def test_a_program_that_is_gone_when_the_kernel_is_asked_is_refused(self):
        with Door() as door:
            os.kill(door.door, signal.SIGSTOP)
            door.request(self.url).close()
            os.kill(door.door, signal.SIGCONT)
            eventually(lambda: door.status()["http"]["refused"] == 1, "the request is refused")
            self.assertEqual(self.origin.journal.total, 0)

    @unittest.skipIf(os.geteuid(), "another user needs root")
    def test_a_unix_socket_serves_the_users_of_its_door(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o755)
        path = folder / "door"
        for arguments, outcome in [([], "closed"), (["--http-users", OTHER], "200"), (["--http-users", OTHER + 1], "403")]:
            with Door(http=f"0,unix:{path}", arguments=arguments):
                self.assertEqual(self.request_as_other("unix", path), outcome)
                with socket.socket(socket.AF_UNIX) as peer:
                    peer.connect(str(path))
                    peer.sendall(f"GET {self.url} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
                    self.assertEqual(peer.recv(15), b"HTTP/1.1 200 OK")
            self.assertFalse(path.exists(), "the socket of a door that has ended")

    @unittest.skipIf(os.geteuid(), "another user needs root")
    def test_a_bus_with_users_reads_bodies_through_the_broker(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o755)
        path = folder / "api"
        options = ["--users", OTHER, "--http-users", OTHER, "--http-api", f"unix:{path}"]
        with Door(http=f"0,unix:{folder}/door", arguments=options) as door:
            door.path, door.api_path = folder / "door", path
            for target in ("/bytes/3000000", "/chunked/3000000", "/bytes/100"):
                self.assertTrue(door.get(self.origin.url + target)[2] == body(int(target.split("/")[2])), target)
            self.assertEqual(self.request_as_other("tcp", door.port), "200")
            # A body that grows, to two clients.
            peers = [door.request(self.origin.url + "/steps/a/b?bytes=4000000") for _ in range(2)]
            answers = [more(peer) for peer in peers]
            self.origin.open_gate("a")
            self.origin.open_gate("b")
            for peer, answer in zip(peers, answers):
                while len(answer.partition(b"\r\n\r\n")[2]) < 4_000_000:
                    answer += more(peer)
                self.assertTrue(answer.endswith(body(4_000_000)))
                peer.close()
            self.assertTrue(door.call("fetch", {"url": self.origin.url + "/bytes/3000000"})[2] == body(3_000_000))
            session = door.call("sessions", {})[2]["session"]
            door.call("requests", {"session": session, "requests": [{"url": self.origin.url + "/bytes/2000000"}]})
            result, = door.call("results", {"session": session, "wait": 60})[2]["results"]
            content = door.call(f"body?session={session}&sequence={result['sequence']}")[2]
            self.assertTrue(content == body(2_000_000))

    @unittest.skipIf(os.geteuid(), "another user needs root")
    def test_a_request_of_another_user_that_the_bus_sends_to_its_door_gets_no_rights_of_the_bus(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o755)
        file = folder / "token"
        file.write_text("0123456789ab/@%:\n")
        file.chmod(0o600)
        api = folder / "api"
        with Door(arguments=["--http-users", OTHER, "--http-api", f"unix:{api}"]) as door:
            redirect = f"HTTP/1.1 302 Found\r\nLocation: {door.proxy}{self.url}\r\nContent-Length: 0\r\n\r\n"
            redirecting = self.enterContext(RawOrigin(redirect.encode()))
            for members in ({}, {"fields": {"A": "b"}, "errors": "deliver"}, {"url": redirecting.url}):
                text = json.dumps({"url": f"{door.proxy}{self.url}", **members})
                self.request_as_other("unix", api, f"POST /v1/fetch HTTP/1.1\r\nHost: localhost\r\nEarshot-API: 1\r\nContent-Type: "
                                      f"application/json\r\nContent-Length: {len(text)}\r\n\r\n{text}")
            self.assertEqual((self.origin.journal.total, len(redirecting.heads)), (0, 1))
            door.api_path = api
            self.assertEqual(door.call("fetch", {"url": f"{door.proxy}{self.url}"})[2], body(100))
        with Door(arguments=["--http-tokens", file, "--users", OTHER, "--http-users", OTHER]) as door:
            self.assertEqual(door.get(self.url)[0], 407)
            self.assertEqual(door.get(self.url, Proxy_Authorization="Bearer 0123456789ab/@%:")[0], 200)
            self.assertEqual(self.request_as_other("tcp", door.port), "200")
            printed = door.run("http-env").stdout.decode().removeprefix("export ").split()
            proxy = urllib.parse.urlsplit(dict(word.split("=", 1) for word in printed)["http_proxy"])
            pair = base64.b64encode(f"{proxy.username}:{urllib.parse.unquote(proxy.password)}".encode()).decode()
            self.assertEqual((proxy.port, door.get(self.url, Proxy_Authorization=f"Basic {pair}")[0]), (door.port, 200))
        with Door(arguments=["--users", OTHER]) as door:
            done = door.run("http-env")
            self.assertEqual((done.status, "`http-tokens`" in done.stderr), (78, True), done.describe())

    @unittest.skipIf(os.geteuid(), "another user needs root")
    def test_in_a_bus_with_users_a_large_index_is_not_rewritten_and_whole(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o755)
        options = ["--users", OTHER, "--http-users", OTHER, "--http-rewrite", HOST]
        link = '<a href="http://files.example/a.whl">a</a>'
        with Site() as site, Door(http=f"0,unix:{folder}/door", arguments=options) as door:
            door.path = folder / "door"
            small, large = (site.publish(f"/{count}", "text/html", link * count) for count in (1, 10_000))
            self.assertIn(b'"http://localhost/http://files', door.get("/" + small)[2])
            self.assertTrue(door.get("/" + large)[2] == link.encode() * 10_000)

    def test_a_door_that_dies_is_replaced_and_its_requests_end(self):
        with Door(crashes=True) as door, door.client() as client:
            peer = door.request(self.origin.url + "/hang")
            self.origin.journal.await_count("/hang", 1)
            old = door.door
            os.kill(old, signal.SIGKILL)
            self.origin.journal.await_aborts("/hang")
            with peer:
                try:
                    self.assertEqual(peer.recv(1), b"")
                except ConnectionResetError:
                    pass

            def serves():
                # The status may have the address of the dead door, and then none.
                for address in client.query("status").get("http", {}).get("addresses", []):
                    door.port = int(address.rstrip("/").rpartition(":")[2])
                    with contextlib.suppress(ConnectionError):
                        return door.get(self.url)[2] == body(100)
            eventually(serves, "the next door serves")

    def test_a_door_serves_the_next_broker(self):
        with Door(crashes=True) as door:
            self.assertEqual(door.get(self.url)[0], 200)
            peer = door.request(self.origin.url + "/hang")
            self.origin.journal.await_count("/hang", 1)
            watched = watch_all([door.broker])
            os.kill(door.broker, signal.SIGKILL)
            self.assertTrue(watched[0].await_death())
            with peer:
                answer = peer.recv(65_536)
            self.assertIn(b"HTTP/1.1 503 ", answer)
            self.assertIn(b"Retry-After: 1", answer)
            eventually(lambda: door.get(self.url)[0] == 200, "the next broker serves it")
            self.assertEqual(len(door.status()["http"]["addresses"]), 1)

    def test_a_reload_starts_moves_and_ends_the_door(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        file = folder / "config.toml"
        file.write_text("")
        path = folder / "door"
        with Bus(arguments=["--config", file]) as bus, bus.client() as client:
            self.assertNotIn("http", client.query("status"))
            for text, addresses in [(f'http = ["unix:{path}"]', [str(path)]), (f'http = ["unix:{path}2"]', [f"{path}2"]), ("", None)]:
                file.write_text(text)
                bus.program.signal(signal.SIGHUP)
                eventually(lambda: client.query("status").get("http", {}).get("addresses") == addresses, f"listens at {addresses}")

    def test_each_form_of_an_address_of_loopback_is_local(self):
        with Door(http="0,[0:0:0:0:0:0:0:1]:0") as door:
            self.assertEqual(len(door.status()["http"]["addresses"]), 2)

    def test_a_bad_setting_ends_the_start_with_the_reason(self):
        for arguments, reason in [(["--http", "0.0.0.0:1"], "http-tokens"), (["--http-api", "[::]:1"], "http-tokens"),
                                  (["--http", "host:1"], "numeric address"), (["--http-tokens", "relative"], "absolute path"),
                                  (["--http-origins", "null"], "give an origin"), (["--http-api", "0", "--http-origins", "example.org"], "give an origin"),
                                  (["--http-api", "0", "--http-users", "root"], "unix:PATH"),
                                  (["--http-api", "0", "--listen", "tcp://127.0.0.1:5765"], "unix:PATH"), (["--http", "unix:relative"], "absolute path"),
                                  (["--http", "0", "--http-users", "no-such-user"], "no-such-user"),
                                  (["--http-api", "0", "--users", "root"], "unix:PATH")]:
            commands = Commands(temporary_folder(), temporary_folder())
            done = commands.run("serve", "--runtime", commands.runtime, *arguments)
            self.assertEqual(done.status, 78, done.describe())
            self.assertIn(reason, done.stderr)
        with socket.create_server((HOST, 0)) as taken:
            commands = Commands(temporary_folder(), temporary_folder())
            done = commands.run("serve", "--runtime", commands.runtime, "--spool", commands.folder / "spool",
                                "--http", taken.getsockname()[1])
            self.assertEqual(done.status, 73, done.describe())
            self.assertIn("cannot open the HTTP door", done.stderr)

    def test_beyond_loopback_each_request_needs_a_token_and_guesses_are_bounded(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        file = folder / "token"
        file.write_text("0123456789abcdef\n")
        file.chmod(0o600)
        with Door(http="0.0.0.0:0", arguments=["--http-api", "0.0.0.0:0", "--http-tokens", file,
                                                   "--http-origins", "https://console.example"]) as door:
            token = "Bearer 0123456789abcdef"
            self.assertEqual([door.get(self.url)[0], door.get("/" + self.url)[0], door.call("status")[0]], [407, 401, 401])
            self.assertEqual(door.get(self.url, Authorization=token)[0], 407)
            self.assertEqual(door.get("/" + self.url, Authorization=token, Host="bus.example")[0], 200)
            self.assertEqual(door.get(self.url, Proxy_Authorization="Basic YTowMTIzNDU2Nzg5YWJjZGVm")[0], 200)
            self.assertEqual(door.call("status", Authorization=token, Host="bus.example")[0], 200)
            # The preflight of a named page has no token, and the page can read a refusal.
            named = {"Origin": "https://console.example", "Host": "bus.example"}
            for status, answer in [
                    (204, door.call("requests", method="OPTIONS", Access_Control_Request_Method="POST", **named)),
                    (401, door.call("requests", {}, **named)), (401, door.call("status", **named))]:
                self.assertEqual((answer[0], answer[1]["Access-Control-Allow-Origin"]), (status, "https://console.example"))
            answer = door.call("requests", method="OPTIONS", Access_Control_Request_Method="POST", Origin="http://evil.example")
            self.assertEqual((answer[0], answer[1]["Access-Control-Allow-Origin"]), (401, None))
            # A browser sends the token that it keeps, also for a page of another site.
            foreign = {"Authorization": token, "Host": "bus.example", "Origin": "http://evil.example"}
            self.assertEqual([door.call("status", **foreign)[0], door.get("/" + self.url, **foreign)[0]], [403, 403])
            self.assertTrue({"authorization", "proxy-authorization"}.isdisjoint(
                name.lower() for request in self.origin.journal.log() for name in request.headers))
            guess = f"GET /v1/status HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer wrong\r\n\r\n".encode()
            began = time.monotonic()
            with socket.create_connection((HOST, door.api_port), 60) as peer:
                peer.sendall(guess * 500 + guess.replace(b"Host: a", b"Host: a\r\nConnection: close"))
                answer = read(peer)
            compared = answer.count(b"HTTP/1.1 401 ")
            self.assertEqual(compared + answer.count(b"HTTP/1.1 429 "), 501)
            self.assertIn(compared, range(1, 10 * int(time.monotonic() - began + 1) + 1))
        commands = Commands(temporary_folder(), temporary_folder())
        file.chmod(0o644)
        done = commands.run("serve", "--runtime", commands.runtime, "--spool", commands.folder / "spool", "--http", "0",
                            "--http-tokens", file)
        self.assertEqual((done.status, "chmod 600" in done.stderr), (78, True), done.describe())

    def test_a_bus_without_a_door_that_can_start_is_ready_and_reports_it(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        os.link(binary(), folder / "earshot")
        programs = {"EARSHOT_BINARY": os.fspath(folder / "earshot"), "EARSHOT_WEB": web()}
        self.enterContext(mock.patch.dict(os.environ, programs))
        for program in [None, "#!/bin/sh\nkill -SEGV $$\n"]:
            if program:
                (folder / "earshot-web").write_text(program)
                (folder / "earshot-web").chmod(0o755)
            with Bus(workers=1, arguments=["--http", "0"], crashes=True) as bus, bus.client() as client:
                self.assertIn("without the HTTP door", bus.program.stderr)
                self.assertTrue(client.query("status")["ready"])
                failing, = eventually(lambda: client.query("status")["failing"], "the crash loop is reported")
                self.assertEqual(failing["role"], "http")
                self.assertIn("the HTTP door", bus.program.stderr)
                with Web(bus) as page:
                    eventually(lambda: "without the HTTP door" in page.get("/readyz")[2], "it is reported")

    def test_status_metrics_and_http_env_tell_of_the_door(self):
        with Door(arguments=["--http-api", "0"]) as door:
            self.assertEqual(door.run("http-env").stdout.decode(), f"export http_proxy={door.proxy} HTTP_PROXY={door.proxy}\n")
            self.assertEqual(door.get(self.url)[0], 200)
            eventually(lambda: door.status()["http"]["requests"] == 1, "the request is counted")
            self.assertEqual(door.status()["http"]["addresses"], [door.proxy, f"http://{HOST}:{door.api_port}/v1/"])
            with Web(door) as web:
                self.assertEqual(web.metrics()["earshot_http_requests_total"], 1)
        commands = Commands(temporary_folder(), temporary_folder())
        self.assertEqual(commands.run("http-env").status, 69)


if __name__ == "__main__":
    unittest.main()
