"""`fetch --bus tcp://…` of the example libraries: CURVE by libzmq's own options, through a relay made with pyzmq."""

import unittest

from languages import LANGUAGES  # This import sets the path for the next three.
from support.harness import Bus, TestCase
from support.origin import Origin, body
from support.processes import eventually
from support.relay import Relay

LARGE = 3 << 20
SECURING = [language for language in LANGUAGES if language.secures]


class NetworkCases:
    """`fetch --bus` of a language, with a bus, a relay and an origin."""

    language = None

    def setUp(self):
        self.language.built  # noqa: B018 (reports a missing package before a process starts)
        self.origin = self.enterContext(Origin())
        self.bus = self.enterContext(Bus(workers=1))
        self.relay = self.enterContext(Relay(self.bus.runtime, self.bus.folder))
        # No runtime folder of this machine can help.
        self.environment = dict(self.bus.environment, EARSHOT_RUNTIME="/none")

    def start(self, target, *arguments, variables=None):
        return self.language.start("fetch", *map(str, arguments), self.origin.url + target,
                                   environment={**self.environment, **(variables or {})})

    def fetch(self, target, *arguments, variables=None):
        program = self.start(target, *arguments, variables=variables)
        self.assertEqual(program.wait(), 0, program.describe())
        return program.stdout

    def assertRefused(self, words, *arguments, variables=None):
        program = self.start("/bytes/1", *arguments, variables=variables)
        self.assertIn(program.wait(), (64, 69), program.describe())
        self.assertIn(words, program.stderr)

    def test_bodies_of_all_sizes_come_over_a_network(self):
        for size in (LARGE, 70_000, 1000, 0):
            self.assertTrue(self.fetch(f"/bytes/{size}", *self.relay.options()) == body(size), f"{size} bytes")
        ledger = self.balance(self.bus.client())["deliveries"]
        self.assertEqual((ledger["acknowledged"], ledger["lost"]), (4, 0))

    def test_variables_select_the_bus(self):
        self.assertTrue(self.fetch("/bytes/70000", variables=self.relay.variables()) == body(70_000))

    def test_a_killed_relay_loses_and_doubles_nothing(self):
        self.origin.publish("f", LARGE, plan=lambda number, start: {"held": LARGE // 2})
        program = self.start("/parts/f", *self.relay.options())
        self.origin.await_running(1)
        for _ in range(2):
            self.relay.kill()
            self.relay.start()
        self.origin.open_gate("f")
        self.assertEqual(program.wait(), 0, program.describe())
        self.assertTrue(program.stdout == body(LARGE))
        self.assertEqual(self.origin.total, 1, "the session was resumed")

    def test_the_end_of_the_program_ends_its_session(self):
        client = self.bus.client()
        self.fetch("/bytes/10", *self.relay.options())
        eventually(lambda: len(client.query("handlers")["handlers"]) == 0, "no lease keeps the handler")

    def test_mistakes_are_told_with_a_next_step(self):
        keys, (bus, address, *rest) = self.relay.keys, self.relay.options()
        self.assertRefused("the key file of this client", bus, address)
        self.assertRefused("cannot read the key file", *self.relay.options(), "--bus-key", "/none")
        self.assertRefused("neither a key of 40 characters", *self.relay.options(), "--server-key", "short")
        self.assertRefused("tcp://HOST:PORT", bus, "udp://here", *rest)
        open_key = keys.new("open")
        open_key.chmod(0o644)
        self.assertRefused("chmod 600", *self.relay.options(), "--bus-key", open_key)
        self.assertRefused("no public-key", *self.relay.options(), "--server-key", "/etc/passwd")
        self.assertRefused("no bus answers at tcp://127.0.0.1:1: check", bus, "tcp://127.0.0.1:1", *rest)
        self.assertRefused("check the address, the key", *self.relay.options(), "--bus-key", keys.new("other"))
        self.assertRefused("check the address, the key", *self.relay.options(), "--server-key", keys.public(keys.client_file))
        self.assertEqual(self.origin.total, 0)

    def test_the_server_key_may_be_the_output_of_key_show(self):
        shown = self.relay.keys.folder / "shown"
        shown.write_text(self.relay.keys.server_public + "\n")
        self.fetch("/bytes/10", *self.relay.options(), "--server-key", shown)


def load_tests(loader, _tests, _pattern):
    """Creates the test classes of each language, such as CNetworkTests."""
    suite = unittest.TestSuite()
    for language in SECURING:
        name = f"{language.name.capitalize()}NetworkTests"
        suite.addTests(loader.loadTestsFromTestCase(
            type(name, (NetworkCases, TestCase), {"language": language, "__module__": __name__})))
    return suite


if __name__ == "__main__":
    unittest.main()
