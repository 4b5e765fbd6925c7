"""Redirects that meet: concurrent requests for both ends of a loop both fail. Also the connections of redirects."""

from support.harness import Bus, TestCase
from support.origin import Origin
from support.script import ScriptedOrigin


class CrossingTests(TestCase):
    ROUNDS = 200

    def setUp(self):
        self.origin = self.enterContext(Origin(ports=2))
        self.bus = self.enterContext(Bus(origin_limit=20))

    def test_A_to_B_and_B_to_A_asked_at_once_end_as_loops(self):
        self.check(lambda turn: [f"{self.origin.url}/loop/{side}?turn={turn}" for side in "ab"])

    def test_so_do_loops_over_two_origins(self):
        self.check(lambda turn: [f"{url}/other-port?turn={turn}" for url in self.origin.urls])

    def test_so_do_chains_that_lead_to_the_other_ones_beginning(self):
        self.check(lambda turn: [f"{self.origin.url}/ring/6/{start}?turn={turn}" for start in (0, 3)])

    def check(self, ends):
        """All rounds at once, the two ends by two clients, with random timing."""
        clients = [self.bus.client(window=2 * self.ROUNDS) for _ in range(2)]
        for turn in range(self.ROUNDS):
            for side, url in enumerate(ends(turn)):
                clients[side].fetch(f"side{side}", turn, url)
        for client in clients:
            for answer in client.terminals(self.ROUNDS):
                self.assertFailed(answer, "redirect-loop")
            self.assertEqual(client.rest(), [])
        self.assertEqual(self.balance(clients[0])["requests"]["pending"], 0)


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
