"""`earshot-web`: its resources, access rules and bounds. It needs no other program."""

import json
import os
import re
import signal
import stat
import time
import unittest

import checkout  # noqa: F401
from web import Web
from support.harness import Bus, Commands, TestCase, temporary_folder
from support.cluster import ClusterBus
from support.harness import web as binary
from support.origin import Origin
from support.processes import Program, eventually, kill

TOKEN = "0123456789abcdef-token"


class ResourceTests(TestCase):
    def test_the_metrics_and_the_status_follow_the_bus(self):
        with Origin() as origin, Bus() as bus, Web(bus) as web, bus.client() as client:
            before = web.metrics()
            self.assertEqual((before["earshot_up"], before["earshot_ready"]), (1, 1))
            self.assertEqual(before["earshot_requests_submitted_total"], 0)
            for number in range(3):
                client.fetch("h", number, f"{origin.url}/bytes/1000")
            client.fetch("h", "failed", f"{origin.url}/status/404")
            for _ in range(4):
                client.terminal()
            now = eventually(lambda: (found := web.metrics())["earshot_request_seconds_count"] == 4 and found, "metrics")
            self.assertEqual(now["earshot_requests_submitted_total"], 4)
            self.assertEqual(now['earshot_requests_total{state="answered"}'], 3)
            self.assertEqual(now['earshot_requests_failed_total{cause="http-status"}'], 1)
            self.assertEqual(now['earshot_request_seconds_bucket{le="+Inf"}'], 4)
            self.assertGreaterEqual(now["earshot_transfer_seconds_count"], 2)
            self.assertGreaterEqual(now["earshot_transfer_bytes_total"], 1000)
            document = eventually(lambda: (found := web.json("/status.json"))["status"] and found, "the status")
            self.assertEqual((document["schema"], document["ready"]), (1, True))
            self.assertEqual(document["status"]["requests"]["answered"], 3)

    def test_a_request_is_found_with_its_reason(self):
        with Bus(arguments=["--origin-limit", "1"]) as bus, Web(bus) as web, bus.client() as client, \
                Origin() as origin:
            client.fetch("gallery/1", "a-b", f"{origin.url}/hang")
            found = eventually(lambda: (answer := web.json("/why?handler=gallery%2F1&request=a-b")).get("state") == "running"
                               and answer, "it runs")
            self.assertIn("worker", found)
            self.assertEqual(web.json("/why?handler=x&request=y")["state"], "unknown")
            self.assertEqual(web.get("/why?handler=x")[0], 400)
            client.remove("gallery/1")

    def test_it_is_ready_with_a_broker_and_a_worker_that_accept_requests(self):
        folder = temporary_folder()
        commands = Commands(folder / "run", folder)
        with Web(commands) as web:
            self.assertEqual(web.get("/healthz")[0], 200)
            self.assertEqual(web.get("/readyz")[::2], (503, "not ready: no broker answers\n"))
            self.assertEqual(web.metrics(up=0), {"earshot_up": 0, "earshot_ready": 0})
            self.assertEqual(web.json("/status.json")["status"], None)
            with Bus(folder=folder, arguments=["--drain-seconds", "600"]) as bus:
                web.await_ready()
                for value, status in [("closed", 503), ("open", 200)]:
                    self.assertEqual(bus.run("set", "admission", value).status, 0)
                    eventually(lambda: web.get("/readyz")[0] == status, f"admission is {value}")
                    self.assertEqual(web.metrics()["earshot_ready"], int(value == "open"))
                with Origin() as origin, bus.client() as client:
                    client.fetch("h", 1, f"{origin.url}/hang")
                    eventually(lambda: web.metrics()['earshot_flights{phase="running"}'] == 1, "it runs")
                    bus.program.signal(signal.SIGTERM)
                    eventually(lambda: web.get("/readyz")[2] == "not ready: the broker is draining\n", "it drains")
                    self.assertEqual(web.get("/healthz")[0], 200)
            eventually(lambda: web.get("/readyz")[0] == 503, "the broker is gone")

    def test_events_come_each_second_until_the_page_is_closed(self):
        with Bus() as bus, Web(bus) as web:
            connection = web.connection()
            connection.request("GET", "/events")
            response = connection.getresponse()
            self.assertEqual(response.headers["Content-Type"], "text/event-stream")
            self.assertEqual(response.headers["X-Accel-Buffering"], "no", "nginx passes on each event at once")
            phases = []
            while phases.count("serving") < 3 and len(phases) < 60:
                line = response.readline()
                self.assertTrue(line.startswith(b"data: "), line)
                # A broker that was not scheduled has no status.
                phases.append((json.loads(line[6:])["status"] or {}).get("phase"))
                self.assertEqual(response.readline(), b"\n")
            self.assertEqual(set(phases) - {None}, {"serving"})
            connection.close()
            response.close()

    def test_the_page_has_no_external_part(self):
        with Bus() as bus, Web(bus) as web:
            for path, kind in [("/", "text/html"), ("/page.js", "text/javascript"), ("/page.css", "text/css"),
                               ("/icon.svg", "image/svg+xml")]:
                status, fields, text = web.get(path)
                self.assertEqual(status, 200)
                self.assertTrue(fields["Content-Type"].startswith(kind))
                self.assertIn("default-src 'none'", fields["Content-Security-Policy"])
                self.assertEqual(fields["X-Content-Type-Options"], "nosniff")
                outside = [word for word in text.split('"') if word.startswith(("http:", "https:", "//"))
                           and not word.startswith("http://www.w3.org/")]
                self.assertEqual(outside, [])
            self.assertEqual(web.get("/other")[0], 404)
            status, fields, text = web.get("/metrics", method="HEAD")
            self.assertEqual((status, text), (200, ""))
            eventually(lambda: int(web.get("/metrics", method="HEAD")[1]["Content-Length"]) > 1000, "the metrics have a length")


class AccessTests(TestCase):
    def test_other_hosts_and_other_sites_are_rejected(self):
        with Bus() as bus, Web(bus, "--host", "bus.example") as web:
            for path in ["/", "/metrics", "/status.json", "/events", "/why", "/healthz"]:
                self.assertEqual(web.get(path, Host="evil.example")[0], 421, path)
                self.assertEqual(web.get(path, Origin="http://evil.example")[0], 403, path)
            self.assertEqual(web.get("/metrics", Host="bus.example:80")[0], 200)
            self.assertEqual(web.get("/metrics", Origin=web.url.rstrip("/"))[0], 200)
            for method in ["POST", "PUT", "DELETE", "OPTIONS"]:
                self.assertEqual(web.get("/", method=method)[0], 405, method)
            _, fields, _ = web.get("/status.json")
            self.assertNotIn("Access-Control-Allow-Origin", fields)

    def test_a_token_protects_all_but_the_probes(self):
        with Bus() as bus:
            file = bus.folder / "token"
            file.write_text(TOKEN + "\n")
            file.chmod(0o600)
            with Web(bus, "--token-file", file, listen="0.0.0.0:0") as web:
                for path in ["/", "/metrics", "/status.json", "/events", "/why?handler=a&request=b", "/page.js"]:
                    status, fields, _ = web.get(path)
                    self.assertEqual(status, 401, path)
                    self.assertIn("Basic", fields["WWW-Authenticate"])
                    self.assertEqual(web.get(path, Authorization="Bearer 0123456789abcdef-tokem")[0], 401)
                self.assertEqual(web.get("/metrics", Authorization=f"Bearer {TOKEN}")[0], 200)
                self.assertEqual(web.get("/healthz")[0], 200)
                web.await_ready()

    def test_an_open_address_needs_a_token_in_a_private_file(self):
        folder = temporary_folder()
        commands = Commands(folder / "run", folder)

        def run(*arguments):
            program = Program([binary(), *arguments], commands.environment, folder)
            return program.wait(), program.stderr

        status, text = run("--listen", "0.0.0.0:0")
        self.assertEqual(status, 64)
        self.assertIn("requires --token-file", text)
        file = folder / "token"
        file.write_text(TOKEN)
        file.chmod(0o644)
        status, text = run("--listen", "0.0.0.0:0", "--token-file", str(file))
        self.assertEqual(status, 78)
        self.assertIn("chmod 600", text)
        file.write_text("short")
        file.chmod(0o600)
        self.assertEqual(run("--token-file", str(file))[0], 78)
        self.assertEqual(run("--listen", "localhost")[0], 64)

    def test_a_unix_socket_is_private(self):
        with Bus() as bus:
            path = bus.folder / "web.sock"
            with Web(bus, listen=str(path)) as web:
                self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
                web.await_ready()
            self.assertFalse(path.exists())


class BoundTests(TestCase):
    def test_malformed_requests_end_their_connection_only(self):
        with Bus() as bus, Web(bus) as web:
            for text, status in [(b"x\r\n\r\n", 400), (b"GET / HTTP/1.1\r\n\r\n", 400), (b"\0" * 20_000, 431),
                                 (b"GET /" + b"a" * 20_000, 431), (b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 405),
                                 (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello", 413)]:
                self.assertTrue(web.raw(text).startswith(f"HTTP/1.1 {status} ".encode()), text[:30])
            self.assertEqual(web.get("/healthz")[0], 200)

    def test_streams_are_limited(self):
        with Bus() as bus, Web(bus) as web:
            streams = []
            for _ in range(16):
                connection = web.connection()
                connection.request("GET", "/events")
                streams.append((connection, connection.getresponse()))
            self.assertEqual({response.status for _, response in streams}, {200})
            self.assertEqual(web.get("/events")[0], 503)
            streams.pop()[0].close()
            eventually(lambda: self._can_stream(web), "a place is free")
            for connection, _ in streams:
                connection.close()

    def _can_stream(self, web):
        connection = web.connection()
        connection.request("GET", "/events")
        status = connection.getresponse().status
        connection.close()
        return status == 200

    def test_a_node_without_its_engine_says_why_and_is_ready_after_some_seconds(self):
        with ClusterBus() as bus, Web(bus, is_ready=False) as web:
            reason = re.compile(r"not ready: the engine of the cluster cannot be used; .* \(cannot connect to|ready, ")
            for _ in range(5):
                if eventually(lambda: reason.match(web.get("/readyz")[2]), lambda: web.get("/readyz")[2])[0] != "ready, ":
                    break
                # Its seconds are over already: the next broker has some again.
                kill(broker := bus.broker)
                eventually(lambda: bus.broker != broker, "another broker")
            else:
                self.fail("it is ready at once")
            web.await_ready()
            eventually(lambda: web.get("/readyz")[2].startswith("ready, without the engine of the cluster: cannot connect to"), "the reason")
            bus.program.await_line("fetches without the engine of the cluster")

    def test_a_stopped_broker_delays_an_answer_for_a_limited_time(self):
        with Bus() as bus, Web(bus) as web:
            broker = bus.broker
            os.kill(broker, signal.SIGSTOP)
            try:
                eventually(lambda: web.get("/readyz")[0] == 503, "it is not ready")
                began = time.monotonic()
                self.assertEqual(web.metrics(up=0)["earshot_ready"], 0)
                self.assertLess(time.monotonic() - began, 60)
            finally:
                os.kill(broker, signal.SIGCONT)
            web.await_ready()


if __name__ == "__main__":
    unittest.main()
