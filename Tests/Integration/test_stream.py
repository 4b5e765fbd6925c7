"""A body is read while it arrives, from the file that PROGRESS names."""

import json
import os
import pathlib
import signal
import statistics
import time

from support.figures import report
from support.harness import Bus, TestCase
from support.origin import Origin, body
from support.parts import Version
from support.processes import eventually, kill

MIB = 1 << 20


class Reader:
    """Reads the file named by PROGRESS as a client should: opens it once for each generation."""

    def __init__(self):
        self.generation = None
        self.file = None
        self.content = b""
        self.starts = []

    def take(self, message):
        if "file" not in message.fields:
            return
        if message.fields["generation"] != self.generation:
            self.close()
            self.generation, self.content = message.fields["generation"], b""
            self.starts.append(self.generation)
        if self.file is None:
            try:
                self.file = open(message.fields["file"], "rb")
            except FileNotFoundError:
                return
        received = int(message.operands[2].split("/")[0])
        self.content += self.file.read(max(0, received - len(self.content)))

    def finish(self, message):
        """Returns the whole body: the part read, and the rest, from the same file."""
        assert message.fields["generation"] == self.generation, message
        self.content += self.file.read(int(message.fields["length"]) - len(self.content))
        self.close()
        return self.content

    def close(self):
        if self.file:
            self.file.close()
        self.file = None


def copying_folder(path):
    """Creates a folder whose group new files get, so that `get` does not move files of the spool into it."""
    path.mkdir()
    path.chmod(0o2755)


def beside(target, program):
    """Returns the contents of the unnamed files that `program` has open in the folder of `target`."""
    found = []
    for entry in pathlib.Path(f"/proc/{program.pid}/fd").iterdir():
        try:
            path = os.readlink(entry)
            if path.startswith(f"{target.parent}/") and path != str(target):
                found.append(entry.read_bytes())
        except FileNotFoundError:
            pass  # It was closed meanwhile.
    return found


def grown(target, program):
    """Returns whether `program` has written something for `target`."""
    return any(beside(target, program))


def await_received(client, reader, count):
    """Reads until this many bytes were reported."""
    while len(reader.content) < count:
        reader.take(client.expect("PROGRESS"))


def follow(client, reader, timeout=30):
    """Reads until the terminal, which it returns."""
    while True:
        message = client.receive(timeout)
        if message is None or message.is_terminal:
            return message
        if message.verb == "PROGRESS":
            reader.take(message)


class StreamTests(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.bus = cls.enterClassContext(Bus(workers=1))

    def setUp(self):
        self.client = self.enterContext(self.bus.client())

    def test_a_subscriber_reads_a_body_while_it_arrives(self):
        size = 8 * MIB
        with Origin() as origin:
            origin.publish("file", size, plan=lambda n, start: {"held": 2 * MIB})
            client, reader = self.client, Reader()
            client.fetch("file", 1, f"{origin.url}/parts/file", stream="yes", progress=50)
            first = client.expect("PROGRESS")
            reader.take(first)
            self.assertGreater(len(reader.content), 0)
            self.assertEqual(first.operands[2].split("/")[1], str(size))
            await_received(client, reader, 2 * MIB)
            origin.open_gate("file")
            message = follow(client, reader)
            self.assertTrue(reader.finish(message) == message.content() == body(size))
            self.assertEqual(len(reader.starts), 1)

    def test_who_comes_half_way_reads_what_is_there_and_ends_with_the_same_bytes(self):
        size = 8 * MIB
        delays = []
        with Origin() as origin:
            for turn in range(5):
                origin.publish(f"file{turn}", size, plan=lambda n, start: {"held": size // 2})
                url = f"{origin.url}/parts/file{turn}"
                first, second, reader = self.bus.client(), self.bus.client(), Reader()
                first.fetch(f"one{turn}", 1, url, stream="yes", progress=50)
                while int(first.expect("PROGRESS").operands[2].split("/")[0]) < size // 2:
                    pass
                began = time.monotonic()
                second.fetch(f"two{turn}", 1, url, stream="yes", progress=50)
                reader.take(second.expect("PROGRESS"))
                delays.append(time.monotonic() - began)
                self.assertEqual(len(reader.content), size // 2)
                origin.open_gate(f"file{turn}")
                message = follow(second, reader)
                self.assertTrue(reader.finish(message) == body(size))
                self.assertEqual(message.fields["sha-256"], first.terminal().fields["sha-256"])
                self.assertEqual(origin.count(f"/parts/file{turn}"), 1)
        report(f"who came half-way had the first half after"
               f" {'/'.join(f'{1000 * delay:.1f}' for delay in sorted(delays))} ms")
        if os.environ.get("EARSHOT_LONG"):
            self.assertLess(statistics.median(delays), 0.020)

    def test_a_reader_goes_on_over_a_workers_death(self):
        size = 16 * MIB
        with Origin() as origin:
            origin.publish("file", size, plan=lambda n, start: {"held": 4 * MIB} if n == 0 else {})
            client, reader = self.client, Reader()
            client.fetch("file", 1, f"{origin.url}/parts/file", stream="yes", progress=50)
            await_received(client, reader, 4 * MIB)
            kill(self.bus.workers[0])
            message = follow(client, reader)
            self.assertTrue(reader.finish(message) == body(size))
            self.assertEqual(len(reader.starts), 1)

    def test_a_small_slow_body_is_streamed_too(self):
        with Origin() as origin:
            client, reader = self.client, Reader()
            client.fetch("slow", 1, f"{origin.url}/steps/rest?bytes=1000", stream="yes", progress=50)
            await_received(client, reader, 500)
            origin.open_gate("rest")
            message = follow(client, reader)
            self.assertTrue(reader.finish(message) == body(1000))
            # A body that arrives at once stays in memory; on a busy machine not all do.
            for number in range(20):
                client.fetch("quick", number, f"{origin.url}/bytes/1000", stream="yes")
                if "file" not in client.terminal().fields:
                    break
            else:
                self.fail("each is a file")

    def test_get_writes_to_its_output_while_the_body_arrives(self):
        size = 20 * MIB
        with Origin() as origin:
            origin.publish("big", size, plan=lambda n, start: {"held": 10 * MIB})
            program = self.bus.start("get", f"{origin.url}/parts/big")
            eventually(lambda: program.stdout, "a first byte")
            origin.open_gate("big")
            self.assertEqual(program.wait(60), 0, program.describe())
            self.assertTrue(program.stdout == body(size))

    def publish_changing(self, origin, name):
        """Publishes a file that breaks off with another content first, and returns the final content. If it is called `reported`,
        it waits at the gate `then` after a part. Otherwise it arrives at once, without a report before its end."""
        newer = Version(4 * MIB, "newer")
        then = {"version": newer, "held": MIB, "gate": "then"} if name == "reported" else {"version": newer}
        origin.publish(name, 4 * MIB, "older", plan=lambda n, start: [{"held": 3 * MIB, "cut": 3 * MIB}, then][n])
        return newer.content

    def test_get_says_so_when_the_body_changed_after_a_part_was_written(self):
        with Origin() as origin:
            for name in ("reported", "at-once"):
                with self.subTest(name):
                    self.publish_changing(origin, name)
                    program = self.bus.start("get", f"{origin.url}/parts/{name}")
                    eventually(lambda: program.stdout, "a first byte")
                    origin.open_gate(name)
                    self.assertNotEqual(program.wait(60), 0)
                    self.assertIn("started over after a part was written", program.stderr)
                    self.assertTrue(body(4 * MIB, "older").startswith(program.stdout))

    def test_get_writes_its_file_while_the_body_arrives(self):
        size = 20 * MIB
        with Origin() as origin:
            origin.publish("big", size, plan=lambda n, start: {"held": 10 * MIB})
            target = self.bus.folder / "out" / "big"
            copying_folder(target.parent)
            program = self.bus.start("get", "-o", target, f"{origin.url}/parts/big")
            eventually(lambda: grown(target, program), "a part of the file")
            self.assertFalse(target.exists(), "it has its name when it is whole")
            origin.open_gate("big")
            self.assertEqual(program.wait(60), 0, program.describe())
            self.assertTrue(target.read_bytes() == body(size))
            self.assertEqual(list(target.parent.iterdir()), [target])

    def test_a_file_of_a_body_that_changed_begins_anew(self):
        with Origin() as origin:
            for name in ("reported", "at-once"):
                with self.subTest(name):
                    content = self.publish_changing(origin, name)
                    target = self.bus.folder / name / "file"
                    copying_folder(target.parent)
                    program = self.bus.start("get", "--json", "-o", target, f"{origin.url}/parts/{name}")
                    eventually(lambda: grown(target, program), "a part of the file")
                    origin.open_gate(name)
                    if name == "reported":
                        eventually(lambda: any(begun[:99] == content[:99] for begun in beside(target, program)),
                                   "it begins anew")
                        origin.open_gate("then")
                    self.assertEqual(program.wait(60), 0, program.describe())
                    self.assertTrue(target.read_bytes() == content)
                    self.assertEqual(json.loads(program.stdout)["path"], str(target))
                    self.assertEqual(list(target.parent.iterdir()), [target])

    def test_nothing_is_left_of_a_file_that_was_not_finished(self):
        with Origin() as origin:
            for name, plan, end, status in (
                    ("cut", {"held": 3 * MIB, "cut": 3 * MIB}, None, 18),
                    ("slow", {"held": 3 * MIB}, signal.SIGINT, 130)):
                with self.subTest(name):
                    origin.publish(name, 16 * MIB, plan=lambda n, start: plan)
                    target = self.bus.folder / name / "file"
                    copying_folder(target.parent)
                    target.write_bytes(b"what was there")
                    program = self.bus.start("get", "--retries", "0", "-o", target, f"{origin.url}/parts/{name}")
                    eventually(lambda: grown(target, program), "a part of the file")
                    if end:
                        program.signal(end)
                    else:
                        origin.open_gate(name)
                    self.assertEqual(program.wait(60), status, program.describe())
                    self.assertEqual(target.read_bytes(), b"what was there")
                    self.assertEqual(list(target.parent.iterdir()), [target])
