"""Requests with a credential are isolated from all others: both responses and refusals."""


from support.harness import Bus, TestCase
from support.script import ScriptedOrigin


class ConnectionTests(TestCase):
    """Credentials that authenticate a connection: it serves no other request."""

    OWN = ("Negotiate YII=", "NTLM TlRM", "negotiate YII=")

    def setUp(self):
        self.requested = []
        self.server = self.enterContext(ScriptedOrigin(self.serve))
        self.client = self.enterContext(Bus(workers=1)).client()

    def serve(self, connection):
        """Records the connection and the path of each request."""
        while path := connection.request():
            self.requested.append((connection, path))
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
        shared = {number for number, path in self.requested if "own" not in path}
        own = [number for number, path in self.requested if "own" in path]
        self.assertEqual(len(shared), 1, "the others share one")
        self.assertEqual(len(own), 20)
        self.assertEqual(len({*own, *shared}), 21, "each has one")
