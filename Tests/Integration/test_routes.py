"""Routes of requests: proxies, trusted certificates and client certificates."""

import json
import os
import shutil
import socket
import ssl
import threading
import urllib.parse

from support import certificate
from support.harness import Bus, TestCase, temporary_folder
from support.origin import Origin
from support.proxy import Proxy


class ProxyTests(TestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.port = urllib.parse.urlsplit(self.origin.url).port
        # Only the proxies can resolve this name.
        self.hidden = f"http://hidden.invalid:{self.port}"

    def fetch(self, client, request, url, **fields):
        client.fetch("h", request, url, **fields)
        return client.terminal()

    def test_each_kind_of_proxy_is_used_and_looks_the_name_up(self):
        with Bus() as bus, Proxy() as http, Proxy("socks5") as socks:
            client = bus.client()
            for number, proxy in enumerate((http, socks)):
                answer = self.fetch(client, number, f"{self.hidden}/bytes/70000?{number}", proxy=proxy.url)
                self.assertEqual(answer.verb, "RESULT", answer)
            self.assertEqual(http.asked, [f"GET {self.hidden}/bytes/70000?0"])
            self.assertEqual(socks.asked, [f"hidden.invalid:{self.port}"])

    def test_a_proxy_s_user_is_told_to_it_and_to_nobody_else(self):
        with Bus() as bus, Proxy(user="me:secret") as http, Proxy("socks5", user="me:secret") as socks:
            client = bus.client()
            for number, proxy in enumerate((http, socks)):
                url = proxy.url.replace("://", "://me:secret@")
                answer = self.fetch(client, number, f"{self.hidden}/headers?{number}", proxy=url)
                self.assertEqual(answer.verb, "RESULT", answer)
                self.assertNotIn("proxy-authorization", json.loads(answer.content())["headers"])
                self.assertEqual(set(proxy.credentials), {"me:secret"})
            wrong = http.url.replace("://", "://me:wrong@")
            answer = self.fetch(client, "wrong", f"{self.hidden}/headers?1", proxy=wrong, retries=0)
            self.assertFailed(answer, "http-status")

    def test_a_proxy_that_speaks_tls_is_used_if_its_certificate_is_trusted(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder)
        paths = certificate.self_signed(folder)
        with Bus() as bus, Proxy(certificate=paths) as proxy, Origin(certificate=paths) as secure:
            client = bus.client()
            trusted = {"proxy": proxy.url, "ca_file": paths[0], "retries": 0}
            self.assertEqual(self.fetch(client, 1, f"{self.hidden}/bytes/70000", **trusted).verb, "RESULT")
            self.assertEqual(self.fetch(client, 2, f"{secure.url}/bytes/70000", **trusted).verb, "RESULT")
            self.assertEqual(proxy.asked, [f"GET {self.hidden}/bytes/70000", f"CONNECT {secure.url.partition('//')[2]}"])
            self.assertFailed(self.fetch(client, 3, f"{self.hidden}/bytes/5", proxy=proxy.url, retries=0), "tls")
            self.assertEqual(len(proxy.asked), 2)

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

    def test_requests_by_different_ways_share_nothing(self):
        with Bus() as bus, Proxy() as one, Proxy() as two:
            client = bus.client()
            ways = [one.url, two.url, one.url.replace("://", "://u:p@"), "none", one.url]
            for number, way in enumerate(ways):
                client.fetch("h", number, f"{self.origin.url}/gate/ways", proxy=way)
            self.origin.await_count("/gate/ways", 4)
            self.origin.open_gate("ways")
            for answer in client.terminals(5):
                self.assertEqual(answer.verb, "RESULT", answer)
            self.assertEqual(self.origin.count("/gate/ways"), 4)

    def test_the_environment_is_honoured_and_a_request_may_say_otherwise(self):
        with Proxy() as proxy:
            bus = Bus()
            bus.environment.update(http_proxy=proxy.address, no_proxy="127.0.0.0/8,direct.invalid")
            with bus:
                client = bus.client()
                self.assertEqual(self.fetch(client, 1, f"{self.hidden}/bytes/1").verb, "RESULT")
                self.assertEqual(len(proxy.asked), 1)
                self.assertEqual(self.fetch(client, 2, f"{self.origin.url}/bytes/1").verb, "RESULT")
                self.assertFailed(self.fetch(client, 3, f"http://a.direct.invalid:{self.port}/bytes/1"), "unknown-host")
                self.assertFailed(self.fetch(client, 4, f"{self.hidden}/bytes/2", proxy="none"), "unknown-host")
                self.assertEqual(len(proxy.asked), 1)

    def test_public_only_goes_through_no_proxy(self):
        with Bus(arguments=("--address-policy", "public-only", "--allow", "127.0.0.1")) as bus, Proxy() as proxy:
            client = bus.client()
            answer = self.fetch(client, 1, f"{self.origin.url}/bytes/1", proxy=proxy.url)
            self.assertFailed(answer, "address-refused")
            self.assertEqual(proxy.asked, [])

    def test_what_is_no_proxy_is_refused(self):
        with Bus() as bus:
            client = bus.client()
            self.assertFailed(self.fetch(client, 1, self.origin.url, proxy="ftp://127.0.0.1"), "malformed-url")
            self.assertFailed(self.fetch(client, 3, self.origin.url, proxy="http://127.0.0.1:99999"), "malformed-url")
            self.assertEqual(bus.run("get", "--proxy", "ftp://x", self.origin.url).status, 64)


class DemandingServer:
    """TLS server that ends each handshake with an alert, unless the client sends the certificate `wanted`."""

    def __init__(self, certificate, key, wanted):
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
                            connection.shutdown(socket.SHUT_WR)
                            while connection.recv(65_536):
                                pass
                            break
                        connection.sendall(sent.read())
                except OSError:
                    pass


class CertificateTests(TestCase):
    def setUp(self):
        self.folder = temporary_folder()
        self.addCleanup(shutil.rmtree, self.folder)
        self.certificate, self.key = certificate.self_signed(self.folder)

    def test_a_file_of_certificates_is_trusted_for_that_request_alone(self):
        with Origin(certificate=(self.certificate, self.key)) as origin, Bus() as bus:
            client = bus.client()
            url = f"{origin.url}/bytes/5"
            client.fetch("h", 1, url, ca_file=self.certificate)
            self.assertEqual(client.terminal().verb, "RESULT")
            client.fetch("h", 2, url)
            self.assertFailed(client.terminal(), "tls")
            client.fetch("h", 3, url, ca_file=self.folder / "nothing.pem")
            self.assertFailed(client.terminal(), "tls")
            got = bus.run("get", "--ca-file", self.certificate, url)
            self.assertEqual(got.status, 0, got.describe())

    def test_an_unverified_server_is_accepted_for_that_request_alone(self):
        with Origin(certificate=(self.certificate, self.key)) as origin, Bus(workers=1) as bus:
            client = bus.client()
            # The certificate is for another name as well.
            url = f"{origin.url}/kept/page?cc=max-age=60".replace("127.0.0.1", "localhost")
            for turn, source in enumerate(("network", "cache")):
                client.fetch("h", f"{turn}-unverified", url, verify="no")
                answer = client.terminal()
                self.assertEqual((answer.verb, answer.fields.get("source")), ("RESULT", source), answer)
                # Neither the kept connection nor the stored response serves a verified request.
                client.fetch("h", f"{turn}-verified", url, retries=0)
                self.assertFailed(client.terminal(), "tls")
            self.assertEqual(origin.total, 1)
            for arguments, status in ((["-k"], 0), ([], 60), (["--insecure"], 0)):
                got = bus.run("get", *arguments, f"{origin.url}/bytes/5")
                self.assertEqual(got.status, status, got.describe())

    def test_a_file_that_is_no_certificate_harms_nobody_else(self):
        fifo, large, empty = (self.folder / name for name in ("fifo", "large.pem", "empty.pem"))
        os.mkfifo(fifo)
        empty.touch()
        large.write_bytes(self.certificate.read_bytes() + b"\n" * (1 << 20))
        with Origin(certificate=(self.certificate, self.key)) as origin, Bus(workers=1) as bus:
            client = bus.client()
            worker = bus.workers
            client.fetch("h", "other", f"{origin.url}/gate/other?bytes=5", ca_file=self.certificate)
            origin.await_count("/gate/other", 1)
            for number, (path, reason) in enumerate(((fifo, "not a regular file"), (self.folder, "not a regular file"),
                                                     ("/dev/zero", "not a regular file"), (large, "longer than"),
                                                     (empty, "empty"), (self.folder / "none", "No such file"))):
                usual = {"ca_file": self.certificate, "client_certificate": self.certificate, "client_key": self.key}
                for field in usual:
                    client.fetch("h", f"{number}-{field}", f"{origin.url}/bytes/5", **{**usual, field: path})
                    answer = client.terminal(timeout=5)
                    self.assertFailed(answer, "tls")
                    self.assertIn(reason, answer.fields["detail"])
                    self.assertEqual(answer.fields["attempts"], "1")
            origin.open_gate("other")
            self.assertEqual(client.terminal().verb, "RESULT")
            self.assertEqual(bus.workers, worker)

    def test_a_refused_client_certificate_says_so_and_is_not_tried_again(self):
        own = self.folder / "own"
        own.mkdir()
        wanted, _ = certificate.self_signed(own)
        with DemandingServer(self.certificate, self.key, wanted) as server, Bus() as bus:
            client = bus.client()
            client.fetch("h", 1, server.url, ca_file=self.certificate, client_certificate=self.certificate,
                         client_key=self.key)
            answer = client.terminal()
            self.assertFailed(answer, "tls")
            self.assertEqual(answer.fields["detail"], "The server refused the client certificate.")
            client.fetch("h", 2, server.url, ca_file=self.certificate)
            answer = client.terminal()
            self.assertFailed(answer, "tls")
            self.assertIn("requires a client certificate", answer.fields["detail"])

    def test_a_connection_serves_only_requests_with_the_same_key(self):
        own, other = self.folder / "own", self.folder / "other"
        own.mkdir()
        other.mkdir()
        shown, key = certificate.self_signed(own)
        _, wrong = certificate.self_signed(other)
        with Origin(certificate=(self.certificate, self.key), clients=shown) as origin, Bus(workers=1) as bus:
            client = bus.client()
            for number, (fields, verb) in enumerate((({"client_key": key}, "RESULT"), ({"client_key": wrong}, "FAILED"),
                                                     ({}, "FAILED"), ({"client_key": key}, "RESULT"))):
                client.fetch("h", number, f"{origin.url}/bytes/5?{number}", ca_file=self.certificate, client_certificate=shown,
                             retries=0, **fields)
                answer = client.terminal()
                self.assertEqual(answer.verb, verb, answer)
                if verb == "FAILED":
                    self.assertFailed(answer, "tls")

    def test_a_certificate_is_shown_to_the_origin_it_is_for_and_to_no_other(self):
        own = self.folder / "own"
        own.mkdir()
        shown, key = certificate.self_signed(own)
        with Origin(ports=2, certificate=(self.certificate, self.key), clients=shown) as origin, Bus() as bus:
            client = bus.client()
            usual = {"ca_file": self.certificate, "retries": 0}
            client.fetch("h", 1, f"{origin.url}/bytes/5", client_certificate=shown, client_key=key, **usual)
            self.assertEqual(client.terminal().verb, "RESULT")
            client.fetch("h", 2, f"{origin.url}/bytes/5", **usual)
            self.assertIn(client.terminal().operands[2], ("tls", "reset"))
            client.fetch("h", 3, f"{origin.url}/redirect/1", client_certificate=shown, client_key=key, **usual)
            self.assertEqual(client.terminal().verb, "RESULT", "to the same origin it goes")
            target = urllib.parse.quote(f"{origin.urls[1]}/bytes/5", safe="")
            client.fetch("h", 4, f"{origin.url}/redirect-to?url={target}", client_certificate=shown, client_key=key,
                         **usual)
            self.assertIn(client.terminal().operands[2], ("tls", "reset"), "to another it does not")
            got = bus.run("get", "--ca-file", self.certificate, "--cert", shown, "--key", key, f"{origin.url}/bytes/5")
            self.assertEqual(got.status, 0, got.describe())
