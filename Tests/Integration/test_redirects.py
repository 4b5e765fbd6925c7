"""Connections of redirects."""

from support.harness import Bus, TestCase
from support.script import ScriptedOrigin


class ConnectionTests(TestCase):
    """The worker waits briefly for the body of a redirect, so that its connection can be reused."""

    PAGE = bytes(20_000)
    HEADS = {
        "announced": b"HTTP/1.1 302 Found\r\nLocation: /target\r\nContent-Length: 20000\r\n\r\n",
        "chunked": b"HTTP/1.1 302 Found\r\nLocation: /target\r\nTransfer-Encoding: chunked\r\n\r\n4e20\r\n",
    }

    def serve(self, connection):
        """Redirects /FORM/END to /target; END is `whole` or `open`. Its body comes after its head."""
        while target := connection.request():
            if target == "/target":
                connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\narrived")
                continue
            _, form, end = target.split("/")
            connection.send(self.HEADS[form] + self.PAGE[:10_000])
            if end == "open":
                connection.is_closed()
                return
            connection.send(self.PAGE[10_000:] + (b"\r\n0\r\n\r\n" if form == "chunked" else b""))

    def check(self, end, connections):
        for form in self.HEADS:
            with self.subTest(form), ScriptedOrigin(self.serve) as origin, Bus(workers=1) as bus:
                client = bus.client()
                client.fetch("h", 1, f"{origin.url}/{form}/{end}")
                self.assertResult(client.terminal(), b"arrived")
                self.assertEqual(origin.accepted, connections)

    def test_a_redirect_whose_body_ends_in_time_leaves_its_connection_for_the_next_request(self):
        self.check("whole", 1)

    def test_a_redirect_whose_body_does_not_end_is_cut_off_with_its_connection(self):
        self.check("open", 2)
