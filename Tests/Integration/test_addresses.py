"""Destinations of connections: nothing reaches a denied address, however it is spelled."""

import os
import socket
import time
import urllib.parse

from support.harness import Bus, TestCase
from support.names import NameServer
from support.origin import Origin

LONG = bool(os.environ.get("EARSHOT_LONG"))
"""Whether times must meet the documented bounds, which hold on an otherwise idle machine."""


class Trap:
    """Socket that listens where no connection may arrive."""

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


HERE = (
    # This machine, in every spelling of the URL standard.
    "127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0x7f.1", "0177.0.0.1", "017700000001",
    "127.0.0.1.", "127.255.255.254", "0", "0.0.0.0", "0x0", "%31%32%37.0.0.1", "%EF%BC%91%EF%BC%92%EF%BC%97.0.0.1", "localhost", "localhost.",
    "LOCALHOST", "a.localhost", "[::1]", "[0:0:0:0:0:0:0:1]", "[::]",
    # IPv4 in IPv6: mapped, compatible, translated by both prefixes, 6to4, Teredo.
    "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::127.0.0.1]", "[64:ff9b:1::7f00:1]",
    "[2002:7f00:1::]", "[2001:0:7f00:1::]", "[2001::80ff:fffe]",
)
INNER = (
    # Private and other special-purpose networks.
    "10.0.0.1", "172.16.0.1", "172.31.255.254", "192.168.0.1", "100.64.0.1", "169.254.169.254", "192.0.0.8", "192.0.2.1",
    "198.18.0.1", "198.51.100.1", "203.0.113.1", "192.88.99.1", "224.0.0.1", "239.255.255.250", "240.0.0.1",
    "255.255.255.255", "[fc00::1]", "[fd00:ec2::254]", "[fe80::1]", "[fec0::1]", "[ff02::1]", "[100::1]",
    "[2001:db8::1]", "[2001:2::1]", "[3fff::1]", "[5f00::1]",
)


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
            self.assertGreaterEqual(len(HERE + INNER), 40)
            for number, host in enumerate(HERE + INNER):
                answer = self.fetch(client, number, f"http://{host}:{self.port}/bytes/5")
                # Some are not valid URLs for the broker, and so no addresses.
                with self.subTest(host):
                    self.assertEqual(answer.verb, "FAILED", answer)
                    self.assertIn(answer.operands[2], ("address-refused", "malformed-url"))
                    if answer.operands[2] == "address-refused":
                        self.assertEqual(answer.fields["attempts"], "1", "it is not tried again")
                    else:
                        self.assertIn("%", host)
            got = bus.run("get", f"{self.origin.url}/bytes/5")
            self.assertEqual(got.status, 7, got.describe())
            self.assertIn("address-refused", got.stderr)
        self.assertEqual(self.origin.total, 0)

    def test_each_redirect_is_judged(self):
        with Bus(arguments=("--address-policy", "public-only", "--allow", "127.0.0.1")) as bus, \
                Trap("127.0.0.2", self.port) as trap:
            client = bus.client()
            self.assertEqual(self.fetch(client, 1, f"{self.origin.url}/redirect/3").verb, "RESULT")
            for number, host in enumerate(("127.0.0.2", "[::ffff:7f00:2]", "2130706434", *INNER)):
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

    def test_addresses_that_refuse_do_not_delay_the_next(self):
        # The resolver sorts addresses. In any order the good address comes last for some of the names.
        good, refusing = "127.0.0.1", ["127.0.0.2", "127.0.0.3", "127.0.0.4"]
        lists = [" ".join((*refusing[:count], good, *refusing[count:])) for count in range(4)]
        lists.append(" ".join(("::1", *refusing, good)))
        names = {f"n{number}.example": [addresses] for number, addresses in enumerate(lists)}
        with NameServer(names) as server, Bus(workers=1, arguments=("--dns-server", server.address)) as bus:
            client = bus.client()
            # It occupies the worker until all others have ended.
            client.fetch("h", "held", f"{self.origin.url}/gate/held?bytes=5")
            self.origin.await_running(1)
            began = time.monotonic()
            for name in names:
                client.fetch("h", name, f"http://{name}:{self.port}/bytes/5", retries=0)
            answers = client.terminals(len(names))
            self.assertEqual(sorted((answer.verb, answer.operands[1]) for answer in answers),
                             [("RESULT", name) for name in sorted(names)], answers)
            if LONG:
                self.assertLess(answers[-1].at - began, 1.2)
            self.origin.open_gate("held")
            self.assertEqual(client.terminal().id, ("h", "held"))

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
