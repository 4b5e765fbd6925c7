"""One user takes all work that it can get of a bus, of each kind in two ways: transfers, lookups, parts of bodies. It waits for its
own, and another user is served meanwhile."""

import os
import unittest
import urllib.parse

from support.names import NameServer
from support.processes import eventually
from test_exhaustion import Bed


class TransferTests(Bed):
    """A quarter of 256 slots."""

    SLOTS, QUOTA = 128, 64

    def test_transfers_that_send_nothing_and_transfers_that_drip(self):
        for path in ("/hang?", "/drip?bytes=100000&seconds=600&"):
            [client] = self.hostile()
            for number in range(300):
                client.fetch(f"h/{number % 7}", number, f"{self.url}{path}{number}", priority="high", cache="no-store")
            eventually(lambda: self.origin.running == self.QUOTA, "the quota is used up")
            reason = client.query("why h/5 299")
            self.assertEqual((reason["waits-for"], reason.get("limit")), ("quota", self.QUOTA), reason)
            self.assertServed()
            # A transfer that timed out is followed by another one.
            eventually(lambda: self.origin.running == self.QUOTA, "the quota is still used up")
            self.leave(client)

    def test_READs_of_many_sessions_and_too_many_of_one(self):
        clients = self.hostile(40)
        for client in clients:
            client.send("SUBSCRIBE h")
        clients[0].fetch("h", 1, f"{self.url}/bytes/20000000")
        numbers = [client.terminal().fields["seq"] for client in clients]

        def read(client, number):
            for _ in range(80):
                client.send(f"READ {number} 0 262144")
        for client, number in zip(clients, numbers):
            read(client, number)
        self.assertServed()
        errors = set()
        for _ in range(50):
            errors |= {clients[0].expect("DATA").fields.get("error") for _ in range(80)} - {None}
            if errors:
                break
            # The broker was faster than these messages.
            read(clients[0], numbers[0])
        self.assertEqual(errors, {"limit"})


class LookupTests(Bed):
    """A lookup takes seconds if its name server does not respond, and c-ares cannot end it earlier. The worker permits 1,024 of
    removed requests, and the user a quarter of 1,000 transfers."""

    WORKERS, SLOTS = 1, 1_000
    WAITING, REMOVED, WAVE = 400, 1_300, 240
    ROUNDS = 3
    """Other load on the machine can spoil one."""

    @classmethod
    def start(cls):
        kinds = {f"{kind}{turn}": count for kind, count in (("waits", cls.WAITING), ("removed", cls.REMOVED))
                 for turn in range(cls.ROUNDS)}
        silent = {f"{kind}-{number}.example": [None] for kind, count in kinds.items() for number in range(count)}
        known = {f"known-{kind}.example": ["127.0.0.1"] for kind in kinds}
        cls.names = cls.enterClassContext(NameServer({**silent, **known}, ttl=600))
        cls.ARGUMENTS = ["--dns-server", cls.names.address]
        return super().start()

    def begin(self, kind):
        """Returns a client whose request waits for the first lookup of a kind."""
        [client] = self.hostile()
        client.fetch("witness", 1, f"http://{kind}-0.example/", retries=0)
        self.names.await_questions(f"{kind}-0.example", 1)
        return client

    def isLookedUp(self, kind, client):
        """Whether a later lookup for the neighbour has its answer before the first one fails."""
        port = urllib.parse.urlsplit(self.quiet).port
        self.neighbour.fetch("own", kind, f"http://known-{kind}.example:{port}/bytes/10")
        self.assertEqual(self.neighbour.terminal().verb, "RESULT")
        return client.query("why witness 1")["state"] == "running"

    def test_lookups_of_requests_that_wait(self):
        self.assertTrue(any(self.isLookedUpBehind(f"waits{turn}", self.WAITING, self.WAITING) for turn in range(self.ROUNDS)))

    @unittest.skipUnless(os.environ.get("EARSHOT_LONG"), "lookups that end in 2 s, on an idle machine: bin/test long")
    def test_lookups_of_requests_that_were_removed(self):
        self.assertTrue(any(self.isLookedUpBehind(f"removed{turn}", self.REMOVED, self.WAVE) for turn in range(self.ROUNDS)))

    def isLookedUpBehind(self, kind, count, wave):
        client = self.begin(kind)
        for number in range(1, count):
            client.fetch("h", number, f"http://{kind}-{number}.example/")
            if number % wave == 0:
                self.names.await_questions(f"{kind}-{number}.example", 1)
                client.remove("h")
        isFirst = self.isLookedUp(kind, client)
        self.assertServed()
        client.remove("h")
        if not isFirst:
            # The last lookup has ended, and so have those before it.
            client.fetch("last", 1, f"http://{kind}-{number}.example/", retries=0)
            eventually(lambda: client.query("why last 1")["state"] != "running", "the lookups have ended")
        self.leave(client)
        return isFirst


if __name__ == "__main__":
    unittest.main()
