"""Many requests for one URL are coalesced into one request to its origin."""

from support.harness import Bus, TestCase
from support.origin import Origin, body


class CoalescingTests(TestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.bus = self.enterContext(Bus())
        self.url = f"{self.origin.url}/gate/slow?bytes=30000"

    def test_50_of_200_vanish_and_150_are_answered(self):
        # The 50 are processes, to be killed; they come first, so that the flight was theirs.
        doomed = [self.bus.start("get", self.url) for _ in range(50)]
        observer = self.bus.client()
        self.await_requests(observer, pending=50)
        clients = [self.bus.client() for _ in range(150)]
        for index, client in enumerate(clients):
            client.fetch(f"many/{index}", 1, self.url)
        self.await_requests(observer, pending=200)
        for program in doomed:
            program.kill()
        self.await_requests(observer, pending=150, removed=50)
        self.balance(observer)
        self.origin.open_gate("slow")
        for client in clients:
            self.assertResult(client.terminal(), body(30_000))
            self.assertEqual(client.rest(), [])
        self.assertEqual(self.origin.count("/gate/slow"), 1)
        self.assertEqual(self.origin.log("/gate/slow")[0].aborted, None)
        ledger = self.balance(observer)["requests"]
        self.assertEqual((ledger["submitted"], ledger["answered"], ledger["removed"], ledger["pending"]),
                         (200, 150, 50, 0))

    def test_the_last_who_leaves_cuts_the_transfer(self):
        client = self.bus.client()
        client.fetch("alone", 1, self.url)
        self.origin.await_count("/gate/slow", 1)
        client.cancel("alone", 1)
        self.origin.await_aborts("/gate/slow")
