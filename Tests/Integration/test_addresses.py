"""Where connections may go: nothing reaches what the policy denies, by whatever way it is named."""

import socket
import urllib.parse

from harness import Bus, TestCase
from names import NameServer
from origin import Origin


class Trap:
    """A socket that listens where nobody may come."""

    def __init__(self, host, port):
        self._socket = socket.create_server((host, port))
        self._socket.setblocking(False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()

    @property
    def is_touched(self):
        try:
            self._socket.accept()
            return True
        except BlockingIOError:
            return False


class AddressTests(TestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.port = urllib.parse.urlsplit(self.origin.url).port

    def fetch(self, client, request, url, **fields):
        client.fetch("h", request, url, **fields)
        return client.terminal()

    def test_public_only_fetches_nothing_from_this_machine(self):
        with Bus(arguments=("--address-policy", "public-only")) as bus:
            client = bus.client()
            for number, host in enumerate(("127.0.0.1", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "localhost",
                                           "a.localhost", "[::1]", "0")):
                answer = self.fetch(client, number, f"http://{host}:{self.port}/bytes/5")
                self.assertFailed(answer, "address-refused")
                self.assertEqual(answer.fields["attempts"], "1", "it is not tried again")
            got = bus.run("get", f"{self.origin.url}/bytes/5")
            self.assertEqual(got.status, 7, got.describe())
            self.assertIn("address-refused", got.stderr)
        self.assertEqual(self.origin.total, 0)

    def test_each_redirect_is_judged(self):
        with Bus(arguments=("--address-policy", "public-only", "--allow", "127.0.0.1")) as bus, \
                Trap("127.0.0.2", self.port) as trap:
            client = bus.client()
            self.assertEqual(self.fetch(client, 1, f"{self.origin.url}/redirect/3").verb, "RESULT")
            for number, host in enumerate(("127.0.0.2", "[::ffff:7f00:2]", "2130706434")):
                target = urllib.parse.quote(f"http://{host}:{self.port}/", safe="")
                answer = self.fetch(client, f"to-{number}", f"{self.origin.url}/redirect-to?url={target}")
                self.assertFailed(answer, "address-refused")
            self.assertFalse(trap.is_touched)

    def test_a_name_that_moves_inside_after_it_was_judged_is_refused(self):
        moves = {"moves.example": ["127.0.0.1", "127.0.0.2"]}
        with NameServer(moves) as names, Trap("127.0.0.2", self.port) as trap, \
                Bus(workers=1, arguments=("--address-policy", "public-only", "--allow", "127.0.0.1",
                                          "--dns-server", names.address)) as bus:
            client = bus.client()
            number = 0
            while (answer := self.fetch(client, number, f"http://moves.example:{self.port}/cut/5/5")).verb == "RESULT":
                self.assertEqual(names.questions("moves.example"), 1, "an address is fetched from that may not be")
                number += 1
            self.assertGreater(number, 0, "it was allowed at first")
            self.assertFailed(answer, "address-refused")
            self.assertFalse(trap.is_touched)

    def test_rules_are_changed_while_all_runs_and_told_with_their_sources(self):
        with Bus(arguments=("--deny", "10.0.0.0/8")) as bus:
            client = bus.client()
            url = f"{self.origin.url}/bytes/5"
            self.assertEqual(self.fetch(client, 1, url).verb, "RESULT")
            self.assertEqual(client.set("address-policy public-only").verb, "CHANGED")
            self.assertFailed(self.fetch(client, 2, url), "address-refused")
            self.assertEqual(client.set("address 127.0.0.1 allow").verb, "CHANGED")
            self.assertEqual(self.fetch(client, 3, url).verb, "RESULT")
            self.assertEqual(client.set("address 127.0.0.1 default").verb, "CHANGED")
            self.assertFailed(self.fetch(client, 4, url), "address-refused")
            self.assertEqual(client.set("address 127.0.0.1/8 allow").operands, ["bad-setting"])
            settings = client.settings()
            self.assertEqual(settings["address-policy"], ("public-only", "set"))
            self.assertEqual(settings["address 10.0.0.0/8"], ("deny", "flag"))
            self.assertNotIn("address 127.0.0.1/32", settings)
        self.assertEqual(self.origin.total, 2)

    def test_a_file_has_them_too(self):
        with Bus() as bus:
            file = bus.folder / "rules.toml"
            file.write_text('address-policy = "public-only"\n[address]\n"10.0.0.0/8" = "allow"\n"*.example" = "deny"\n')
            listed = bus.run("config", "--config", file)
            self.assertEqual(listed.status, 0, listed.describe())
            rows = [line.split() for line in listed.stdout.decode().splitlines()]
            self.assertIn(["address-policy", "public-only", str(file)], rows)
            self.assertIn(["address", "10.0.0.0/8", "allow", str(file)], rows)
            self.assertIn(["address", "*.example", "deny", str(file)], rows)
            file.write_text('[address]\n"10.0.0.1/8" = "allow"\n')
            wrong = bus.run("config", "--config", file)
            self.assertEqual(wrong.status, 78, wrong.describe())
            self.assertIn("10.0.0.0/8", wrong.stderr)
