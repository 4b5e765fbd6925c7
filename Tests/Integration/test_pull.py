"""Bodies are read by READ and DATA: `HELLO … bodies: pull`."""

import hashlib
import os
import shutil
import time

from support.figures import report
from support.harness import Bus, TestCase, temporary_folder
from support.nginx import Nginx
from support.origin import Origin, body
from support.processes import eventually, reset_peak, resident, resident_peak
from support.puller import OPEN_READS, PIECE, Follower, pull

MIB = 1 << 20
IS_LONG = bool(os.environ.get("EARSHOT_LONG"))


class PullTests(TestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.bus = self.enterContext(Bus(workers=1))

    def puller(self, **options):
        return self.bus.client(bodies="pull", **options)

    def held(self, client, size, handler="h", request=1, **fields):
        """Returns the terminal of a new request for `size` bytes, which is not acknowledged."""
        client.hold()
        client.fetch(handler, request, f"{self.origin.url}/bytes/{size}", **fields)
        return client.terminal()

    def assertRefused(self, client, read, code="unknown-body"):
        """Asserts that the broker refuses a READ."""
        client.send(f"READ {read}")
        operands = read.split(" ")[:-1]
        message = client.expect("DATA", *operands)
        self.assertEqual((message.operands, message.fields.get("error")), (operands, code), message)
        self.assertIsNone(message.inline)

    # Complete bodies.

    def test_a_body_is_read_whole_and_released_by_its_ack(self):
        client = self.puller()
        terminal = self.held(client, 3_000_000)
        self.assertEqual(terminal.fields["pull"], "yes")
        self.assertNotIn("file", terminal.fields)
        self.assertIsNone(terminal.inline)
        content = pull(client, terminal)
        self.assertEqual(content, body(3_000_000))
        self.assertEqual(hashlib.sha256(content).hexdigest(), terminal.fields["sha-256"])
        spooled = [path for path in self.bus.spool.iterdir() if path.name == terminal.fields["sha-256"]]
        self.assertEqual(len(spooled), 1)
        client.release()
        client.query("ping")
        eventually(lambda: not spooled[0].exists(), "the file of an acknowledged body is removed")
        self.assertRefused(client, f"{terminal.fields['seq']} 0 1")
        self.balance(client)

    def test_a_reader_by_path_and_one_that_pulls_share_a_body(self):
        by_path, client = self.bus.client(), self.puller()
        url = f"{self.origin.url}/bytes/400000"
        for each, handler in ((by_path, "path"), (client, "pull")):
            each.hold()
            each.fetch(handler, 1, url)
        first, second = by_path.terminal(), client.terminal()
        self.assertEqual(first.body, body(400_000))
        self.assertNotIn("pull", first.fields)
        by_path.release()
        self.assertEqual(pull(client, second), body(400_000))
        # Over a full window.
        narrow = self.puller(window=1)
        narrow.hold()
        for request in range(1, 60):
            narrow.fetch("n", request, f"{self.origin.url}/bytes/{70_000 + request}")
        for request in range(1, 60):
            terminal = narrow.terminal()
            self.assertEqual((terminal.fields["pull"], "file" in terminal.fields), ("yes", False))
            length = 70_000 + int(terminal.operands[1])
            self.assertEqual(pull(narrow, terminal), body(length))
            narrow.send(f"ACK {terminal.fields['seq']}")
        self.balance(narrow)

    # Growing bodies.

    def test_a_body_is_read_while_it_arrives(self):
        content = body(2_000_000)
        self.origin.publish("f", 2_000_000, plan=lambda number, start: {"held": 1_000_000})
        client = self.puller()
        client.hold()
        client.fetch("h", 1, f"{self.origin.url}/parts/f", stream="yes")
        follower = Follower(client, "h", 1)
        self.assertIsNone(follower.follow(1_000_000))
        self.assertEqual(follower.content, content[:1_000_000])
        self.origin.open_gate("f")
        terminal = follower.follow()
        self.assertEqual(follower.finish(terminal), content)
        self.assertEqual(follower.starts, [terminal.fields["generation"]])
        # The last READ may have crossed the terminal: the broker refuses it, because the request has ended.
        rest = client.rest()
        for message in rest:
            self.assertEqual((message.operands[:2], message.fields.get("error")), (["h", "1"], "unknown-body"))
        self.assertLessEqual(len(rest), 1)

    # Sessions.

    # Hostile clients.

    def test_a_reader_that_stops_holds_back_no_other(self):
        stopped, client = self.puller(), self.puller()
        self.held(stopped, 4 * MIB)
        terminal = self.held(client, 4 * MIB, "other")
        stopped.socket.rcvhwm = 1
        for _ in range(50):
            for offset in range(OPEN_READS):
                stopped.send(f"READ 1 {offset * PIECE} {PIECE}")
        self.assertEqual(pull(client, terminal), body(4 * MIB))
        self.assertEqual(client.query("ping")["broker"], client.broker)


class LargePullTests(TestCase):
    """64 MiB, 1 GiB with EARSHOT_LONG=1."""

    SIZE = (1 << 30) if IS_LONG else 64 * MIB

    def setUp(self):
        self.folder = temporary_folder()
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "root").mkdir()
        piece, self.sum = os.urandom(MIB), hashlib.sha256()
        with open(self.folder / "root/large", "wb") as file:
            for _ in range(self.SIZE // MIB):
                file.write(piece)
                self.sum.update(piece)
        self.nginx = self.enterContext(Nginx(self.folder / "nginx", self.folder / "root"))

    def test_the_broker_grows_by_at_most_two_mebibytes(self):
        # Large buffers are mapped one by one, so that resident memory is memory in use.
        environment = {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=131072"}
        with Bus(workers=1, environment=environment) as bus:
            client = bus.client(bodies="pull")
            client.hold()
            client.fetch("large", 1, f"{self.nginx.url}/large")
            terminal = client.terminal(240)
            before = resident(bus.broker)
            reset_peak(bus.broker)
            found = hashlib.sha256()
            start = time.monotonic()
            pull(client, terminal, take=found.update)
            spent = time.monotonic() - start
            grown = resident_peak(bus.broker) - before
            report(f"{self.SIZE // MIB} MiB were read in {spent:.2f} s, the broker grew by {grown / MIB:.2f} MiB")
            self.assertEqual(found.hexdigest(), self.sum.hexdigest())
            self.assertLess(grown, 2 * MIB)
