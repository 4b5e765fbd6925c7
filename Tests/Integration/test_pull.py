"""Bodies are read by READ and DATA: `HELLO … bodies: pull`."""

import hashlib
import os
import shutil
import time

from support.figures import tell
from support.harness import Bus, TestCase, temporary_folder
from support.nginx import Nginx
from support.origin import Origin, body
from support.parts import Version
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

    def assertError(self, message, code):
        self.assertEqual((message.verb, message.operands), ("ERROR", [code]), message)

    def assertRefused(self, client, read, code="unknown-body"):
        """Asserts that the broker refuses a READ."""
        client.say(f"READ {read}")
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

    def test_small_bodies_come_inline_and_welcome_names_no_spool(self):
        client = self.puller(hello=False)
        client.say("HELLO EAR/1", bodies="pull")
        welcome = client.expect("WELCOME")
        self.assertEqual(welcome.fields["bodies"], "pull")
        self.assertNotIn("spool", welcome.fields)
        terminal = self.held(client, 1000)
        self.assertNotIn("pull", terminal.fields)
        self.assertEqual(terminal.inline, body(1000))
        self.assertRefused(client, "1 0 1")
        empty = self.held(client, 0, request=2)
        self.assertNotIn("pull", empty.fields)
        forced = self.held(client, 1000, request=3, deliver="file", cache="no-store")
        self.assertEqual((forced.fields["pull"], pull(client, forced)), ("yes", body(1000)))

    def test_any_range_can_be_read_in_any_order_and_again(self):
        client = self.puller()
        terminal, content = self.held(client, 300_000), body(300_000)
        for offset, length in [(299_999, 1), (0, 1), (299_990, 100), (100, PIECE), (100, PIECE), (0, 7)]:
            client.say(f"READ 1 {offset} {length}")
            data = client.expect("DATA", "1", str(offset))
            self.assertEqual(data.inline, content[offset:offset + length])
            self.assertEqual(data.fields, {})
        for offset in (300_000, 300_001, (1 << 63) - 1):
            client.say(f"READ 1 {offset} 1")
            self.assertIsNone(client.expect("DATA", "1", str(offset)).inline)
        self.assertEqual(pull(client, terminal, 12_345, piece=1000), content[12_345:])

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
            narrow.say(f"ACK {terminal.fields['seq']}")
        self.balance(narrow)

    def test_a_client_that_pulls_is_given_no_file(self):
        client = self.puller()
        terminal = self.held(client, 300_000, cache="no-store")
        self.assertEqual(client.take(terminal.fields["seq"]), "unknown-body")
        self.assertEqual(pull(client, terminal), body(300_000))

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

    def test_progress_names_a_generation_and_no_path(self):
        self.origin.publish("f", 2_000_000, plan=lambda number, start: {"held": 1_000_000})
        client = self.puller()
        client.fetch("h", 1, f"{self.origin.url}/parts/f", stream="yes")
        progress = client.expect("PROGRESS")
        while "generation" not in progress.fields:
            progress = client.expect("PROGRESS")
        self.assertNotIn("file", progress.fields)
        # A READ of another generation is answered at once, without bytes.
        client.say(f"READ h 1 0 {PIECE}", generation="other")
        data = client.expect("DATA", "h", "1", "0")
        self.assertEqual((data.inline, data.fields["generation"]), (None, progress.fields["generation"]))
        client.remove("h")

    def test_a_new_version_restarts_and_a_resumed_transfer_continues(self):
        first, other = Version(2_000_000), Version(2_000_000, "other")
        self.origin.publish("f", 2_000_000, plan=lambda number, start: [
            {"held": 700_000, "gate": "first", "cut": 800_000}, {"held": 100_000, "gate": "second", "cut": 200_000},
            {"version": other, "held": 900_000, "gate": "third"}][number])
        client = self.puller()
        client.hold()
        client.fetch("h", 1, f"{self.origin.url}/parts/f", stream="yes", retries=5)
        follower = Follower(client, "h", 1)
        follower.follow(700_000)
        self.origin.open_gate("first")
        follower.follow(900_000)
        self.assertEqual(follower.content, first.content[:900_000])
        self.assertEqual(len(follower.starts), 1, "a resumed transfer has the same generation")
        self.origin.open_gate("second")
        while len(follower.starts) == 1:
            follower.take(client.receive())
        follower.follow(900_000)
        self.assertEqual(follower.content, other.content[:900_000])
        self.origin.open_gate("third")
        terminal = follower.follow()
        self.assertEqual(terminal.fields["generation"], follower.generation)
        self.assertEqual(follower.finish(terminal), other.content)

    # Sessions.

    def test_a_resumed_session_reads_on_at_its_offset(self):
        client = self.puller(lease=60)
        terminal, content = self.held(client, 2_000_000), body(2_000_000)
        read = pull(client, terminal, until=700_000)
        client.say(f"READ 1 700000 {PIECE}")
        client.cut()
        successor = client.come_back()
        self.bus._clients.append(successor)
        successor.hold()
        again = successor.terminal()
        self.assertEqual((again.fields["seq"], again.fields["pull"]), ("1", "yes"))
        self.assertEqual(read + pull(successor, again, len(read)), content)
        successor.release()
        self.assertEqual(successor.rest(), [], "the READ of the lost connection is void")
        self.balance(successor)

    def test_the_body_of_a_dead_client_is_released(self):
        client = self.puller()
        terminal = self.held(client, 300_000)
        client.say("READ 1 0 1000")
        client.cut()
        path = self.bus.spool / terminal.fields["sha-256"]
        eventually(lambda: not path.exists(), "its file is removed")
        self.balance(self.bus.client())

    def test_a_value_of_bodies_is_path_or_pull(self):
        client = self.bus.client(hello=False)
        client.say("HELLO EAR/1", bodies="push")
        self.assertError(client.expect("ERROR"), "bad-message")
        client.say("HELLO EAR/1", bodies="path")
        self.assertNotIn("bodies", client.expect("WELCOME").fields)

    # Hostile clients.

    def test_hostile_reads_are_refused_and_harm_nothing(self):
        by_path, client = self.bus.client(), self.puller()
        self.held(by_path, 300_000, "path")
        self.assertRefused(by_path, "1 0 1", "bad-message")
        self.held(client, 300_000)
        bad = ["", "1", "1 0", "1 0 0", f"1 0 {PIECE + 1}", "1 -1 1", f"1 {1 << 63} 1", "1 0 1 2 3", "x 0 1", "h/ 1 0 1",
               "1 0 99999999999999999999", "18446744073709551616 0 1"]
        for read in bad:
            client.say(f"READ {read}".rstrip())
            self.assertError(client.expect("ERROR"), "bad-message")
        unknown = ["0 0 1", "2 0 1", "18446744073709551615 0 1", "h 1 0 1", "h 2 0 1", "path 1 0 1", "none 1 0 1"]
        for read in unknown:
            self.assertRefused(client, read)
        client.say(f"READ 1 0 {PIECE}", body=b"a body")
        self.assertEqual(client.expect("DATA", "1").inline, body(300_000)[:PIECE])
        late = self.bus.client(hello=False)
        late.say("READ 1 0 1")
        self.assertError(late.expect("ERROR"), "hello-required")

    def test_the_file_of_a_removed_spool_is_reported(self):
        client = self.puller()
        terminal = self.held(client, 300_000)
        os.unlink(self.bus.spool / terminal.fields["sha-256"])
        self.assertRefused(client, "1 0 1")
        client.release()
        again = self.held(client, 300_000, request=2)
        self.assertEqual(pull(client, again), body(300_000))

    def test_a_reader_that_stops_holds_back_no_other(self):
        stopped, client = self.puller(), self.puller()
        self.held(stopped, 4 * MIB)
        terminal = self.held(client, 4 * MIB, "other")
        stopped.socket.rcvhwm = 1
        for _ in range(50):
            for offset in range(OPEN_READS):
                stopped.say(f"READ 1 {offset * PIECE} {PIECE}")
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
            tell(f"{self.SIZE // MIB} MiB were read in {spent:.2f} s, the broker grew by {grown / MIB:.2f} MiB")
            self.assertEqual(found.hexdigest(), self.sum.hexdigest())
            self.assertLess(grown, 2 * MIB)
