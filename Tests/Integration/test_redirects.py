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

    def connections(self, form, end):
        with ScriptedOrigin(self.serve) as origin, Bus(workers=1) as bus:
            client = bus.client()
            client.fetch("h", 1, f"{origin.url}/{form}/{end}")
            self.assertResult(client.terminal(), b"arrived")
            return origin.accepted

    def test_a_redirect_whose_body_ends_in_time_leaves_its_connection_for_the_next_request(self):
        for form in self.HEADS:
            # The end may come too late if a process was not scheduled.
            self.assertTrue(any(self.connections(form, "whole") == 1 for _ in range(10)), form)

    def test_a_redirect_whose_body_does_not_end_is_cut_off_with_its_connection(self):
        for form in self.HEADS:
            self.assertEqual(self.connections(form, "open"), 2, form)
