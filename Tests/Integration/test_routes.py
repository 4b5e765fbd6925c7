"""Routes of requests: proxies, trusted certificates and client certificates."""

import json
import os
import shutil
import socket
import ssl
import threading
import time
import urllib.parse

from support import certificate
from support.harness import Bus, Commands, TestCase, temporary_folder
from support.origin import Origin
from support.proxy import Proxy
from support.script import ScriptedOrigin


class Case(TestCase):
    """The tests of a class share a bus. Each has a client of its own."""

    @classmethod
    def setUpClass(cls):
        cls.bus = cls.enterClassContext(Bus(workers=1))

    def setUp(self):
        self.client = self.enterContext(self.bus.client())


class ProxyTests(Case):
    def setUp(self):
        super().setUp()
        self.origin = self.enterContext(Origin())
        self.port = urllib.parse.urlsplit(self.origin.url).port
        # Only the proxies can resolve this name.
        self.hidden = f"http://hidden.invalid:{self.port}"

    def fetch(self, client, request, url, **fields):
        client.fetch("h", request, url, **fields)
        return client.terminal()

    def test_each_kind_of_proxy_is_used_and_looks_the_name_up(self):
        with Proxy() as http, Proxy() as bare, Proxy("socks5") as socks, Proxy("socks4") as old:
            for number, proxy in enumerate((http.url, bare.address, socks.url, f"socks5h://{socks.address}",
                                            f"socks://{socks.address}", old.url, f"socks4a://{old.address}")):
                answer = self.fetch(self.client, number, f"{self.hidden}/bytes/70000?{number}", proxy=proxy)
                self.assertEqual(answer.verb, "RESULT", answer)
            self.assertEqual(http.requested + bare.requested, [f"GET {self.hidden}/bytes/70000?{number}" for number in range(2)])
            # A connection serves all requests by the same way.
            self.assertEqual(set(socks.requested), {f"hidden.invalid:{self.port}"})
            answer = self.fetch(self.client, "address", f"{self.origin.url}/bytes/9", proxy=old.url)
            self.assertEqual(answer.verb, "RESULT", answer)
            self.assertEqual(set(old.requested), {f"hidden.invalid:{self.port}", f"127.0.0.1:{self.port}"})

    def test_the_command_takes_each_form_of_a_proxy_from_option_and_environment(self):
        with Proxy() as http, Proxy("socks5") as socks:
            for number, proxy in enumerate((http.address, f"socks5h://{socks.address}", f"socks://{socks.address}")):
                url = f"{self.hidden}/bytes/9?{number}"
                got = self.bus.run("get", "--proxy", proxy, url)
                self.assertEqual(got.status, 0, got.describe())
                own = Commands(self.bus.folder / "none", self.bus.folder)
                own.environment.update(all_proxy=proxy)
                got = own.run("get", "--no-cache", url)
                self.assertEqual(got.status, 0, got.describe())
            self.assertEqual(len(http.requested), 2)
            self.assertGreaterEqual(len(socks.requested), 3, "one connection can serve both requests on the bus")
            got = self.bus.run("get", "--proxy", "ftp://x", self.origin.url)
            self.assertEqual(got.status, 64)
            self.assertIn("SCHEME://[USER:PASSWORD@]HOST[:PORT]", got.stderr)

    def test_a_proxy_that_does_not_connect_is_named_with_its_answer(self):
        url = "https://hidden.invalid/"
        # Bound without `listen`, so that no other program takes the port.
        closed = self.enterContext(socket.socket())
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        cases = [
            ("http", {"reply": "403 No"}, "", "proxy-refused", "refused to connect to the server (status 403)"),
            ("http", {"reply": "302 Away\r\nLocation: http://127.0.0.1/"}, "", "proxy-refused",
             "refused to connect to the server (status 302)"),
            ("http", {"user": "me:secret"}, "", "proxy-refused", "requires a user and password (status 407); give"),
            ("http", {"user": "me:secret"}, "me:wrong@", "proxy-refused", "refused its user and password (status 407)"),
            ("http", {"reply": "503 Busy"}, "", "proxy-unavailable", "refused to connect to the server (status 503)"),
            ("socks5", {"reply": 5}, "", "connect-refused", "reports that the server refused the connection (reply 5)"),
            ("socks5", {"reply": 4}, "", "connect-failed", "cannot reach the server (reply 4)"),
            ("socks5", {"reply": 3}, "", "connect-failed", "cannot reach the network of the server (reply 3)"),
            ("socks5", {"reply": 2}, "", "proxy-refused", "does not allow the connection to the server (reply 2)"),
            ("socks5", {"user": "me:secret"}, "", "proxy-refused", "requires a user and password; give"),
            ("socks5", {"user": "me:secret"}, "me:wrong@", "proxy-refused", "refused its user and password; correct"),
            ("socks4", {"reply": 91}, "", "connect-failed", "could not connect to the server, or refused to"),
            ("socks4", {"reply": 93}, "", "proxy-refused", "requires another user"),
        ]
        for number, (kind, options, user, code, text) in enumerate(cases):
            with self.subTest(kind=kind, options=options), Proxy(kind, **options) as proxy:
                way = f"{kind}://{user}{proxy.address}"
                answer = self.fetch(self.client, number, url, proxy=way, retries=0)
                self.assertFailed(answer, code)
                self.assertIn(f"The proxy {proxy.address} {text}", answer.fields["detail"])
                self.assertNotIn("secret", answer.fields["detail"])
        for number, way in enumerate((f"http://{address}", f"socks5://{address}", f"socks4://{address}")):
            answer = self.fetch(self.client, f"closed{number}", url, proxy=way, retries=0)
            self.assertFailed(answer, "connect-refused")
            self.assertIn(f"The proxy {address} refused the connection", answer.fields["detail"])
        with Proxy(reply="403 No") as proxy:
            got = self.bus.run("get", "--proxy", proxy.url, url)
            self.assertEqual(got.status, 97, got.describe())
            self.assertIn(f"The proxy {proxy.address} refused to connect to the server (status 403) (proxy-refused)",
                          got.stderr)
            self.assertEqual(len(proxy.requested), 1, "a refusal is not repeated")

    def test_a_proxy_that_is_busy_is_asked_again_when_it_says(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder)
        paths = certificate.self_signed(folder)
        replies = ["503 Busy\r\nRetry-After: 1", "429 Slow"]
        with Origin(certificate=paths) as secure, Proxy(replies=replies) as proxy:
            started = time.monotonic()
            answer = self.fetch(self.client, 1, f"{secure.url}/bytes/9", proxy=proxy.url, ca_file=paths[0])
            self.assertEqual(answer.verb, "RESULT", answer)
            self.assertEqual(len(proxy.requested), 3)
            self.assertGreater(time.monotonic() - started, 1)

    def test_a_proxy_s_user_is_told_to_it_and_to_nobody_else(self):
        with Proxy(user="me:secret") as http, Proxy("socks5", user="me:secret") as socks:
            for number, proxy in enumerate((http, socks)):
                url = proxy.url.replace("://", "://me:secret@")
                answer = self.fetch(self.client, number, f"{self.hidden}/headers?{number}", proxy=url)
                self.assertEqual(answer.verb, "RESULT", answer)
                self.assertNotIn("proxy-authorization", json.loads(answer.content())["headers"])
                self.assertEqual(set(proxy.credentials), {"me:secret"})
            wrong = http.url.replace("://", "://me:wrong@")
            answer = self.fetch(self.client, "wrong", f"{self.hidden}/headers?1", proxy=wrong, retries=0)
            self.assertFailed(answer, "http-status")

    def test_a_proxy_that_speaks_tls_is_used_if_its_certificate_is_trusted(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder)
        paths = certificate.self_signed(folder)
        with Proxy(certificate=paths) as proxy, Origin(certificate=paths) as secure:
            trusted = {"proxy": proxy.url, "ca_file": paths[0], "retries": 0}
            self.assertEqual(self.fetch(self.client, 1, f"{self.hidden}/bytes/70000", **trusted).verb, "RESULT")
            self.assertEqual(self.fetch(self.client, 2, f"{secure.url}/bytes/70000", **trusted).verb, "RESULT")
            self.assertEqual(proxy.requested, [f"GET {self.hidden}/bytes/70000", f"CONNECT {secure.url.partition('//')[2]}"])
            self.assertFailed(self.fetch(self.client, 3, f"{self.hidden}/bytes/5", proxy=proxy.url, retries=0), "tls")
            self.assertEqual(len(proxy.requested), 2)

    def test_a_netrc_file_is_never_read_by_itself(self):
        bus = Bus()
        (bus.folder / ".netrc").write_text("machine 127.0.0.1 login me password secret\ndefault login me password x\n")
        (bus.folder / ".netrc").chmod(0o600)
        bus.environment["HOME"] = str(bus.folder)
        bus.environment["NETRC"] = str(bus.folder / ".netrc")
        with bus:
            client = bus.client()
            answer = self.fetch(client, 1, f"{self.origin.url}/headers")
            self.assertNotIn("authorization", json.loads(answer.content())["headers"])
            got = bus.run("get", f"{self.origin.url}/headers?get")
            self.assertNotIn("authorization", json.loads(got.stdout)["headers"])

    def test_the_environment_is_honoured_and_a_request_may_say_otherwise(self):
        with Proxy() as proxy:
            bus = Bus()
            bus.environment.update(http_proxy=proxy.address, no_proxy="127.9.9.9/8\tdirect.invalid\n10.0.0.0/33")
            with bus:
                bus.program.await_line("no_proxy: ignored '10.0.0.0/33'")
                client = bus.client()
                self.assertEqual(self.fetch(client, 1, f"{self.hidden}/bytes/1").verb, "RESULT")
                self.assertEqual(len(proxy.requested), 1)
                self.assertEqual(self.fetch(client, 2, f"{self.origin.url}/bytes/1").verb, "RESULT")
                self.assertFailed(self.fetch(client, 3, f"http://a.direct.invalid:{self.port}/bytes/1"), "unknown-host")
                self.assertFailed(self.fetch(client, 4, f"{self.hidden}/bytes/2", proxy="none"), "unknown-host")
                self.assertEqual(len(proxy.requested), 1)

    def test_a_command_says_once_that_a_running_bus_does_not_use_its_proxy(self):
        with Proxy() as proxy:
            hint = f"give --proxy {proxy.url} to use it"
            own = Commands(self.bus.runtime, self.bus.folder)
            own.environment.update(http_proxy=f"http://me:secret@{proxy.address}", no_proxy="direct.invalid")
            urls = [f"{self.origin.url}/bytes/{number}" for number in (1, 2)]
            got = own.run("get", "--json", *urls)
            self.assertEqual(got.status, 0, got.describe())
            self.assertEqual(got.stderr.count("give --proxy http://USER:PASSWORD@" + proxy.address), 1, got.stderr)
            self.assertNotIn("secret", got.stderr)
            own.environment.update(http_proxy=proxy.address)
            submitted = own.run("submit", *urls)
            self.assertEqual(submitted.stderr.count(hint), 1, submitted.stderr)
            for arguments in (["get", "-q", *urls[:1]], ["get", "--proxy", "none", *urls[:1]],
                              ["get", "http://direct.invalid/"], ["get", "https://secure.invalid/"]):
                self.assertNotIn("--proxy", own.run(*arguments).stderr, arguments)
            self.assertEqual(proxy.requested, [])

    def test_public_only_goes_through_no_proxy(self):
        with Bus(arguments=("--address-policy", "public-only", "--allow", "127.0.0.1")) as bus, Proxy() as proxy:
            client = bus.client()
            answer = self.fetch(client, 1, f"{self.origin.url}/bytes/1", proxy=proxy.url)
            self.assertFailed(answer, "address-refused")
            self.assertEqual(proxy.requested, [])


class DemandingServer:
    """TLS server that ends each handshake with an alert, unless the client sends the certificate `wanted`."""

    def __init__(self, certificate, key, wanted, lingers=True):
        self._lingers = lingers
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self._context.load_verify_locations(wanted)
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._listener.getsockname()[1]}/"
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._listener.close()

    def _serve(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                # Memory BIOs, so that it closes nothing before the client has read the alert.
                received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
                tls = self._context.wrap_bio(received, sent, server_side=True)
                try:
                    while data := connection.recv(65_536):
                        received.write(data)
                        try:
                            tls.do_handshake()
                        except ssl.SSLWantReadError:
                            pass
                        except ssl.SSLError:
                            connection.sendall(sent.read())
                            if self._lingers:
                                connection.shutdown(socket.SHUT_WR)
                                while connection.recv(65_536):
                                    pass
                            break
                        connection.sendall(sent.read())
                except OSError:
                    pass


def answering(answer):
    """Returns a server that answers the first bytes of each connection with fixed ones, such as a TLS alert."""
    def serve(connection):
        connection.stream.recv(65_536)
        connection.send(answer)
        connection.stream.shutdown(socket.SHUT_WR)
        connection.is_closed()
    return ScriptedOrigin(serve)


class CertificateTests(Case):
    def setUp(self):
        super().setUp()
        self.folder = temporary_folder()
        self.addCleanup(shutil.rmtree, self.folder)
        self.certificate, self.key = certificate.self_signed(self.folder)

    def test_a_file_of_certificates_is_trusted_for_that_request_alone(self):
        with Origin(certificate=(self.certificate, self.key)) as origin:
            url = f"{origin.url}/bytes/5"
            self.client.fetch("h", 1, url, ca_file=self.certificate)
            self.assertEqual(self.client.terminal().verb, "RESULT")
            self.client.fetch("h", 2, url)
            self.assertFailed(self.client.terminal(), "tls")
            self.client.fetch("h", 3, url, ca_file=self.folder / "nothing.pem")
            self.assertFailed(self.client.terminal(), "tls")
            got = self.bus.run("get", "--ca-file", self.certificate, url)
            self.assertEqual(got.status, 0, got.describe())

    def test_an_unverified_server_is_accepted_for_that_request_alone(self):
        with Origin(certificate=(self.certificate, self.key)) as origin:
            # The certificate is for another name as well.
            url = f"{origin.url}/kept/page?cc=max-age=60".replace("127.0.0.1", "localhost")
            for turn, source in enumerate(("network", "cache")):
                self.client.fetch("h", f"{turn}-unverified", url, verify="no")
                answer = self.client.terminal()
                self.assertEqual((answer.verb, answer.fields.get("source")), ("RESULT", source), answer)
                # Neither the kept connection nor the stored response serves a verified request.
                self.client.fetch("h", f"{turn}-verified", url, retries=0)
                self.assertFailed(self.client.terminal(), "tls")
            self.assertEqual(origin.total, 1)
            for arguments, status in ((["-k"], 0), ([], 60), (["--insecure"], 0)):
                got = self.bus.run("get", *arguments, f"{origin.url}/bytes/5")
                self.assertEqual(got.status, status, got.describe())

    def test_a_file_that_is_no_certificate_harms_nobody_else(self):
        fifo, large, empty = (self.folder / name for name in ("fifo", "large.pem", "empty.pem"))
        os.mkfifo(fifo)
        empty.touch()
        large.write_bytes(self.certificate.read_bytes() + b"\n" * (1 << 20))
        with Origin(certificate=(self.certificate, self.key)) as origin:
            worker = self.bus.workers
            self.client.fetch("h", "other", f"{origin.url}/gate/other?bytes=5", ca_file=self.certificate)
            origin.await_count("/gate/other", 1)
            for number, (path, reason) in enumerate(((fifo, "not a regular file"), (self.folder, "not a regular file"),
                                                     ("/dev/zero", "not a regular file"), (large, "longer than"),
                                                     (empty, "empty"), (self.folder / "none", "No such file"))):
                usual = {"ca_file": self.certificate, "client_certificate": self.certificate, "client_key": self.key}
                for field in usual:
                    self.client.fetch("h", f"{number}-{field}", f"{origin.url}/bytes/5", **{**usual, field: path})
                    answer = self.client.terminal()
                    self.assertFailed(answer, "tls")
                    self.assertIn(reason, answer.fields["detail"])
                    self.assertEqual(answer.fields["attempts"], "1")
            origin.open_gate("other")
            self.assertEqual(self.client.terminal().verb, "RESULT")
            self.assertEqual(self.bus.workers, worker)

    def test_a_refused_client_certificate_says_so_and_is_not_tried_again(self):
        own = self.folder / "own"
        own.mkdir()
        wanted, _ = certificate.self_signed(own)
        with DemandingServer(self.certificate, self.key, wanted) as server:
            self.client.fetch("h", 1, server.url, ca_file=self.certificate, client_certificate=self.certificate,
                              client_key=self.key)
            answer = self.client.terminal()
            self.assertFailed(answer, "tls")
            self.assertEqual(answer.fields["detail"], "The server refused the client certificate.")
            self.client.fetch("h", 2, server.url, ca_file=self.certificate)
            answer = self.client.terminal()
            self.assertFailed(answer, "tls")
            self.assertIn("requires a client certificate", answer.fields["detail"])

    def test_a_connection_serves_only_requests_with_the_same_key(self):
        own, other = self.folder / "own", self.folder / "other"
        own.mkdir()
        other.mkdir()
        shown, key = certificate.self_signed(own)
        _, wrong = certificate.self_signed(other)
        with Origin(certificate=(self.certificate, self.key), clients=shown) as origin:
            for number, (fields, verb) in enumerate((({"client_key": key}, "RESULT"), ({"client_key": wrong}, "FAILED"),
                                                     ({}, "FAILED"), ({"client_key": key}, "RESULT"))):
                self.client.fetch("h", number, f"{origin.url}/bytes/5?{number}", ca_file=self.certificate, client_certificate=shown,
                                  retries=0, **fields)
                answer = self.client.terminal()
                self.assertEqual(answer.verb, verb, answer)
                if verb == "FAILED":
                    self.assertFailed(answer, "tls")

    def test_a_client_certificate_demanded_after_the_handshake_is_no_broken_connection(self):
        own = self.folder / "own"
        own.mkdir()
        wanted, _ = certificate.self_signed(own)
        # The server closes while the request may be on its way, so that a reset can overtake the alert of TLS 1.3.
        with DemandingServer(self.certificate, self.key, wanted, lingers=False) as server:
            for number in range(20):
                self.client.fetch("h", number, f"{server.url}{number}", ca_file=self.certificate, retries=0)
            for answer in self.client.terminals(20):
                self.assertFailed(answer, "tls")
                self.assertIn("requires a client certificate", answer.fields["detail"])

    def test_each_fault_of_a_certificate_is_named_with_a_step_that_helps(self):
        def made(name, make, *arguments):
            folder = self.folder / name
            folder.mkdir()
            return make(folder, *arguments)

        own = made("own", certificate.self_signed)
        expired = made("expired", certificate.dated, "20200101000000Z", "20200102000000Z")
        future = made("future", certificate.dated, "20900101000000Z", "20910101000000Z")
        chain = made("chain", certificate.signed)
        other = f"{chain[2]}"
        cases = [
            (own, None, "127.0.0.1", "The server's certificate is self-signed", "give --ca-file to trust it"),
            (chain, None, "127.0.0.1", "The issuer of the server's certificate is unknown", "give --ca-file for a private CA"),
            (own, other, "127.0.0.1", "The server's certificate has no issuer in the file of trusted certificates", None),
            (chain, own[0], "127.0.0.1", "The server's certificate has no issuer in the file of trusted certificates", None),
            (expired, expired[0], "127.0.0.1", "The server's certificate has expired", None),
            (future, future[0], "127.0.0.1", "The server's certificate is not valid yet", "check the clock of this machine"),
            (own, own[0], "localhost", "The server's certificate is for another host", "check the host name"),
        ]
        for shown, trusted, host, cause, step in cases:
            with self.subTest(cause=cause, shown=shown), Origin(certificate=shown[:2]) as origin:
                url = f"{origin.url}/".replace("127.0.0.1", host)
                got = self.bus.run("get", *(["--ca-file", trusted] if trusted else []), url)
                self.assertEqual(got.status, 60, got.describe())
                self.assertIn(f"{cause} (tls){'; ' + step if step else ''}\n", got.stderr)
        with answering(b"HTTP/1.1 400 No\r\n\r\n") as plain:
            got = self.bus.run("get", plain.url.replace("http:", "https:"))
            self.assertEqual(got.status, 60, got.describe())
            self.assertIn("The server does not speak TLS on this port (tls); check the port, or use http\n", got.stderr)

    def test_an_unknown_name_is_told_by_the_server_s_alert(self):
        def alert(number):
            return answering(bytes([21, 3, 3, 0, 2, 2, number]))

        with alert(112) as server, alert(40) as other:
            for number, (peer, text) in enumerate(((server, "does not know this host name (alert unrecognized_name)"),
                                                   (other, "refused the TLS handshake (alert 40)"))):
                self.client.fetch("h", number, peer.url.replace("http:", "https:"))
                answer = self.client.terminal()
                self.assertFailed(answer, "tls")
                self.assertIn(text, answer.fields["detail"])
                self.assertEqual(answer.fields["attempts"], "1")

    def test_a_certificate_is_shown_to_the_origin_it_is_for_and_to_no_other(self):
        own = self.folder / "own"
        own.mkdir()
        shown, key = certificate.self_signed(own)
        with Origin(ports=2, certificate=(self.certificate, self.key), clients=shown) as origin:
            usual = {"ca_file": self.certificate, "retries": 0}
            self.client.fetch("h", 1, f"{origin.url}/bytes/5", client_certificate=shown, client_key=key, **usual)
            self.assertEqual(self.client.terminal().verb, "RESULT")
            self.client.fetch("h", 2, f"{origin.url}/bytes/5", **usual)
            # This server closes the connection without an alert.
            self.assertIn(self.client.terminal().operands[2], ("tls", "reset"))
            self.client.fetch("h", 3, f"{origin.url}/redirect/1", client_certificate=shown, client_key=key, **usual)
            self.assertEqual(self.client.terminal().verb, "RESULT", "to the same origin it goes")
            target = urllib.parse.quote(f"{origin.urls[1]}/bytes/5", safe="")
            self.client.fetch("h", 4, f"{origin.url}/redirect-to?url={target}", client_certificate=shown, client_key=key,
                              **usual)
            self.assertIn(self.client.terminal().operands[2], ("tls", "reset"), "to another it does not")
            got = self.bus.run("get", "--ca-file", self.certificate, "--cert", shown, "--key", key, f"{origin.url}/bytes/5")
            self.assertEqual(got.status, 0, got.describe())
