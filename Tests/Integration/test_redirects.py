"""Redirects that meet: who asks for both ends of a loop at once is told so at both."""

from support.harness import Bus, TestCase
from support.origin import Origin


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
        """All rounds at once, the two ends by two clients: how far one is when the other begins is left to chance."""
        clients = [self.bus.client(window=2 * self.ROUNDS) for _ in range(2)]
        for turn in range(self.ROUNDS):
            for side, url in enumerate(ends(turn)):
                clients[side].fetch(f"side{side}", turn, url)
        for client in clients:
            for answer in client.terminals(self.ROUNDS):
                self.assertFailed(answer, "redirect-loop")
            self.assertEqual(client.rest(), [])
        self.assertEqual(self.balance(clients[0])["requests"]["pending"], 0)
