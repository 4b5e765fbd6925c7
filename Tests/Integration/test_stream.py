"""A body is read while it arrives, from the file that PROGRESS names."""

import json
import signal
import time

from figures import tell
from harness import Bus, TestCase
from origin import Origin, body
from parts import Version
from processes import eventually, kill

MIB = 1 << 20


class Reader:
    """Reads what PROGRESS tells of, as a client should: the file is opened once for each generation."""

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
        """The whole body: what was read, and the rest, from the same file."""
        assert message.fields["generation"] == self.generation, message
        self.content += self.file.read(int(message.fields["length"]) - len(self.content))
        self.close()
        return self.content

    def close(self):
        if self.file:
            self.file.close()
        self.file = None


def grown(target):
    """Whether a file with something in it is beside `target`."""
    return any(path != target and path.stat().st_size for path in target.parent.iterdir())


def follow(client, reader, timeout=30):
    """Reads until the terminal, which it returns."""
    while True:
        message = client.receive(timeout)
        if message is None or message.is_terminal:
            return message
        if message.verb == "PROGRESS":
            reader.take(message)


class StreamTests(TestCase):
    def test_a_subscriber_reads_a_body_while_it_arrives(self):
        size = 8 * MIB
        with Origin() as origin, Bus(workers=1) as bus:
            origin.publish("file", size, plan=lambda n, start: {"rate": 8 * MIB})
            client, reader = bus.client(), Reader()
            client.fetch("file", 1, f"{origin.url}/parts/file", stream="yes", progress=50)
            first = client.expect("PROGRESS")
            reader.take(first)
            self.assertGreater(len(reader.content), 0)
            self.assertLess(len(reader.content), size)
            self.assertEqual(first.operands[2].split("/")[1], str(size))
            message = follow(client, reader)
            self.assertGreater(len(reader.content), MIB, "read before the end")
            self.assertTrue(reader.finish(message) == message.content() == body(size))
            self.assertEqual(len(reader.starts), 1)

    def test_who_comes_half_way_has_the_first_half_at_once(self):
        with Origin() as origin, Bus(workers=1) as bus:
            url = f"{origin.url}/stall/3000000"
            first = bus.client()
            first.fetch("one", 1, url, stream="yes", progress=50)
            while int(first.expect("PROGRESS").operands[2].split("/")[0]) < 3_000_000:
                pass
            # Nothing more comes from the origin.
            second, reader = bus.client(), Reader()
            second.fetch("two", 1, url, stream="yes")
            reader.take(second.expect("PROGRESS", timeout=5))
            self.assertTrue(reader.content == body(3_000_000))
            reader.close()
            self.assertEqual(origin.count("/stall/3000000"), 1)
            third = bus.client()
            third.fetch("three", 1, url, progress=50)
            self.assertNotIn("file", third.expect("PROGRESS", timeout=5).fields, "only who streams is told where")

    def test_who_comes_half_way_reads_within_20_ms_and_ends_with_the_same_bytes(self):
        seconds, rate = 1.8, 4 * MIB
        size = int(seconds * rate)
        delays = []
        with Origin() as origin, Bus(workers=1) as bus:
            for turn in range(5):
                origin.publish(f"file{turn}", size, plan=lambda n, start: {"rate": rate})
                url = f"{origin.url}/parts/file{turn}"
                first, second, reader = bus.client(), bus.client(), Reader()
                first.fetch(f"one{turn}", 1, url, stream="yes", progress=50)
                while int(first.expect("PROGRESS").operands[2].split("/")[0]) < size // 2:
                    pass
                began = time.monotonic()
                second.fetch(f"two{turn}", 1, url, stream="yes", progress=50)
                reader.take(second.expect("PROGRESS", timeout=5))
                self.assertGreater(len(reader.content), size // 3)
                delays.append(time.monotonic() - began)
                message = follow(second, reader)
                self.assertTrue(reader.finish(message) == body(size))
                self.assertEqual(message.fields["sha-256"], first.terminal().fields["sha-256"])
                self.assertEqual(origin.count(f"/parts/file{turn}"), 1)
        tell(f"who came half-way had {size // 3} bytes and more after"
             f" {'/'.join(f'{1000 * delay:.1f}' for delay in sorted(delays))} ms")
        self.assertLess(sorted(delays)[len(delays) // 2], 0.020)

    def test_a_resumed_body_is_read_on_and_another_version_from_its_start(self):
        size = 4 * MIB
        with Origin() as origin, Bus(workers=1) as bus:
            origin.publish("same", size, plan=lambda n, start: {"rate": 8 * MIB, "cut": 2 * MIB} if n == 0 else {})
            client, reader = bus.client(), Reader()
            client.fetch("same", 1, f"{origin.url}/parts/same", stream="yes", progress=50)
            message = follow(client, reader)
            self.assertGreater(len(reader.content), MIB)
            self.assertTrue(reader.finish(message) == body(size))
            self.assertEqual(len(reader.starts), 1)
            newer = Version(size, "newer")
            origin.publish("changed", size, "older", plan=lambda n, start: [
                {"rate": 8 * MIB, "cut": 2 * MIB}, {"rate": 8 * MIB, "version": newer}][n])
            reader = Reader()
            client.fetch("changed", 1, f"{origin.url}/parts/changed", stream="yes", progress=50)
            message = follow(client, reader)
            self.assertTrue(reader.finish(message) == newer.content)
            self.assertEqual(len(reader.starts), 2)

    def test_a_reader_goes_on_over_a_workers_death(self):
        size = 16 * MIB
        with Origin() as origin, Bus(workers=1) as bus:
            origin.publish("file", size, plan=lambda n, start: {"rate": 8 * MIB})
            client, reader = bus.client(), Reader()
            client.fetch("file", 1, f"{origin.url}/parts/file", stream="yes", progress=50)
            while len(reader.content) < 3 * MIB:
                reader.take(client.expect("PROGRESS"))
            kill(bus.workers[0])
            message = follow(client, reader)
            self.assertTrue(reader.finish(message) == body(size))
            self.assertEqual(len(reader.starts), 1)

    def test_a_small_slow_body_is_streamed_too(self):
        with Origin() as origin, Bus(workers=1) as bus:
            client, reader = bus.client(), Reader()
            client.fetch("drip", 1, f"{origin.url}/drip?bytes=1000&seconds=1", stream="yes", progress=50)
            message = follow(client, reader)
            self.assertGreater(len(reader.content), 300)
            self.assertTrue(reader.finish(message) == body(1000))
            client.fetch("quick", 1, f"{origin.url}/bytes/1000", stream="yes")
            self.assertNotIn("file", client.terminal().fields, "what comes at once stays in memory")

    def test_get_writes_to_its_output_while_the_body_arrives(self):
        size = 100 * MIB
        with Origin() as origin, Bus(workers=1) as bus:
            origin.publish("big", size, plan=lambda n, start: {"rate": 40 * MIB})
            began = time.monotonic()
            program = bus.start("get", f"{origin.url}/parts/big")
            eventually(lambda: program.stdout, "a first byte")
            first = time.monotonic() - began
            self.assertEqual(program.wait(60), 0, program.describe())
            whole = time.monotonic() - began
            self.assertTrue(program.stdout == body(size))
            self.assertLess(first, 1.0)
            self.assertGreater(whole, 2.0)

    def test_get_says_so_when_the_body_changed_after_a_part_was_written(self):
        with Origin() as origin, Bus(workers=1) as bus:
            newer = Version(4 * MIB, "newer")
            origin.publish("file", 4 * MIB, "older", plan=lambda n, start: [
                {"rate": 8 * MIB, "cut": 2 * MIB}, {"version": newer, "rate": 8 * MIB}][n])
            program = bus.run("get", f"{origin.url}/parts/file")
            self.assertNotEqual(program.status, 0)
            self.assertIn("changed at its origin", program.stderr)
            self.assertTrue(body(4 * MIB, "older").startswith(program.stdout))

    def test_get_writes_its_file_while_the_body_arrives(self):
        size = 40 * MIB
        with Origin() as origin, Bus(workers=1) as bus:
            origin.publish("big", size, plan=lambda n, start: {"rate": 20 * MIB})
            target = bus.folder / "out" / "big"
            target.parent.mkdir()
            program = bus.start("get", "-o", target, f"{origin.url}/parts/big")
            eventually(lambda: grown(target), "a part of the file beside it")
            self.assertFalse(target.exists(), "it has its name when it is whole")
            self.assertEqual(program.wait(60), 0, program.describe())
            self.assertTrue(target.read_bytes() == body(size))
            self.assertEqual(list(target.parent.iterdir()), [target])

    def test_a_file_of_a_body_that_changed_begins_anew(self):
        with Origin() as origin, Bus(workers=1) as bus:
            newer = Version(4 * MIB, "newer")
            origin.publish("file", 4 * MIB, "older", plan=lambda n, start: [
                {"rate": 8 * MIB, "cut": 3 * MIB}, {"version": newer, "rate": 8 * MIB}][n])
            target = bus.folder / "out" / "file"
            target.parent.mkdir()
            program = bus.start("get", "--json", "-o", target, f"{origin.url}/parts/file")
            eventually(lambda: grown(target), "a part of the file beside it")
            self.assertEqual(program.wait(60), 0, program.describe())
            self.assertTrue(target.read_bytes() == newer.content)
            self.assertEqual(json.loads(program.stdout)["path"], str(target))
            self.assertEqual(list(target.parent.iterdir()), [target])

    def test_nothing_is_left_of_a_file_that_was_not_finished(self):
        with Origin() as origin, Bus(workers=1) as bus:
            for name, plan, end, status in (
                    ("cut", {"rate": 8 * MIB, "cut": 3 * MIB}, None, 18),
                    ("slow", {"rate": 4 * MIB}, signal.SIGINT, 130)):
                with self.subTest(name):
                    origin.publish(name, 16 * MIB, plan=lambda n, start: plan)
                    target = bus.folder / name / "file"
                    target.parent.mkdir()
                    target.write_bytes(b"what was there")
                    program = bus.start("get", "--retries", "0", "-o", target, f"{origin.url}/parts/{name}")
                    eventually(lambda: grown(target), "a part of the file beside it")
                    if end:
                        program.signal(end)
                    self.assertEqual(program.wait(60), status, program.describe())
                    self.assertEqual(target.read_bytes(), b"what was there")
                    self.assertEqual(list(target.parent.iterdir()), [target])
