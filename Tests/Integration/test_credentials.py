"""Requests with a credential are isolated from all others: both responses and refusals."""

import json
import urllib.parse

from support.harness import Bus, TestCase
from support.origin import Origin
from support.processes import eventually
from support.script import ScriptedOrigin


class CredentialTests(TestCase):
    TURNS = 100
    TOKENS = ("one", "two", None)

    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.bus = self.enterContext(Bus(origin_limit=20))
        self.clients = {token: self.bus.client(window=4096) for token in self.TOKENS}

    def fetch(self, token, request, path):
        headers = [("authorization", f"Bearer {token}")] if token else []
        self.clients[token].fetch(f"of/{token}", request, self.origin.url + path, headers)

    def check_answer(self, token):
        """The next result is the origin's response to this token."""
        answer = self.clients[token].terminal()
        self.assertEqual(answer.verb, "RESULT", answer)
        seen = json.loads(answer.content())["headers"].get("authorization")
        self.assertEqual(seen, f"Bearer {token}" if token else None)

    def test_each_gets_what_was_answered_to_its_own_credential(self):
        for turn in range(self.TURNS):
            for again in range(3):
                for token in self.TOKENS:
                    self.fetch(token, f"{turn}-{again}", f"/headers?turn={turn}")
        for token in self.TOKENS:
            for _ in range(3 * self.TURNS):
                self.check_answer(token)
            self.assertEqual(self.clients[token].rest(), [])
        ledger = self.balance(self.clients["one"])
        self.assertEqual(ledger["requests"]["answered"], 9 * self.TURNS)
        self.assertGreaterEqual(ledger["flights"]["started"], 3 * self.TURNS, "none is shared between credentials")

    def test_a_refusal_of_one_does_not_slow_the_other(self):
        self.fetch("one", "refused", "/only/two?turn=first")
        self.origin.await_count("/only/two?turn=first", 1)
        self.await_cooling()
        for turn in range(self.TURNS):
            self.fetch("one", turn, f"/only/two?turn={turn}")
            self.fetch("two", turn, f"/only/two?turn={turn}")
            self.check_answer("two")
        self.assertEqual(self.clients["one"].rest(), [])
        asked = [request.headers["authorization"] for request in self.origin.log("/only/two")]
        self.assertEqual(asked, ["Bearer one"] + ["Bearer two"] * self.TURNS)

    def await_cooling(self):
        """Waits until the broker has recorded the refusal."""
        eventually(lambda: any("cooling-ms" in row for row in self.clients["one"].query("origins")["origins"]),
                   "the origin cools down")

    def test_a_dot_at_the_end_of_the_host_makes_another_origin(self):
        port = self.origin.url.rpartition(":")[2]
        client = self.clients["one"]
        client.fetch("shop", "login", f"http://localhost:{port}/set-cookie/a=1", cookies="yes")
        self.assertEqual(client.terminal().verb, "RESULT")
        for number, (host, seen) in enumerate((("localhost.", (None, None)), ("localhost", ("Bearer one", "a=1")))):
            target = urllib.parse.quote(f"http://{host}:{port}/headers", safe="")
            client.fetch("shop", number, f"http://localhost:{port}/redirect-to?url={target}",
                         [("authorization", "Bearer one")], cookies="yes")
            headers = json.loads(client.terminal().content())["headers"]
            self.assertEqual((headers.get("authorization"), headers.get("cookie")), seen)


class ConnectionTests(TestCase):
    """Credentials that authenticate a connection: it serves no other request."""

    OWN = ("Negotiate YII=", "NTLM TlRM", "negotiate YII=")

    def setUp(self):
        self.asked = []
        self.server = self.enterContext(ScriptedOrigin(self.serve))
        self.client = self.enterContext(Bus(workers=1)).client()

    def serve(self, connection):
        """Records the connection and the path of each request."""
        while path := connection.request():
            self.asked.append((connection, path))
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    def fetch(self, request, field=None):
        self.client.fetch("h", request, f"{self.server.url}/{request}",
                          [field] if field else [])
        self.assertEqual(self.client.terminal().verb, "RESULT")

    def test_a_request_with_such_a_credential_has_a_connection_of_its_own(self):
        for turn in range(5):
            self.fetch(f"plain-{turn}")
            for number, value in enumerate(self.OWN):
                self.fetch(f"own-{turn}-{number}", ("authorization", value))
            self.fetch(f"proxy-own-{turn}", ("proxy-authorization", "Negotiate YII="))
            self.fetch(f"bearer-{turn}", ("authorization", "Bearer one"))
        shared = {number for number, path in self.asked if "own" not in path}
        own = [number for number, path in self.asked if "own" in path]
        self.assertEqual(len(shared), 1, "the others share one")
        self.assertEqual(len(own), 20)
        self.assertEqual(len({*own, *shared}), 21, "each has one")
