"""The command reads bodies over its connection: `EARSHOT_BODIES=pull`."""

import hashlib
import json
import os
import pathlib
import signal

from support.harness import Bus, TestCase
from support.origin import Origin, body
from support.processes import eventually

MIB = 1 << 20


class PullCommandTests(TestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.bus = self.pulling_bus()
        self.out = self.bus.folder / "out"

    def pulling_bus(self):
        bus = self.enterContext(Bus(workers=1))
        bus.environment["EARSHOT_BODIES"] = "pull"
        return bus

    def done(self, *arguments, **options):
        """Runs `earshot get`, which succeeds, and returns its standard output."""
        program = self.bus.run("get", "--no-spawn", *arguments, **options)
        self.assertEqual(program.status, 0, program.describe())
        return program.stdout

    def leftovers(self, folder=None):
        """Files of the command that have no final name."""
        return [path for path in (folder or self.bus.folder).iterdir() if path.name.startswith(".earshot")]

    def test_bodies_go_to_standard_output_a_file_and_a_folder(self):
        url = f"{self.origin.url}/bytes/1000000"
        self.assertEqual(self.done("-o", "-", url), body(1_000_000))
        target = self.bus.folder / "file"
        target.write_text("an older file")
        target.chmod(0o640)
        self.done("-o", target, url)
        self.assertEqual((target.read_bytes(), target.stat().st_mode & 0o777), (body(1_000_000), 0o640))
        sizes = [0, 10, 65_536, 65_537, 300_000, 2_000_000]
        self.done("-d", self.out, *(f"{self.origin.url}/bytes/{size}" for size in sizes))
        for size in sizes:
            self.assertEqual((self.out / str(size)).read_bytes(), body(size))
        # A second run replaces them.
        self.done("-d", self.out, f"{self.origin.url}/bytes/300000")
        self.assertEqual((self.out / "300000").read_bytes(), body(300_000))
        mask = os.umask(0)
        os.umask(mask)
        self.assertEqual({path.stat().st_mode & 0o777 for path in self.out.iterdir()}, {0o666 & ~mask})
        self.assertEqual(self.leftovers() + self.leftovers(self.out), [])
        self.balance(self.bus.client())

    def test_checksums_failures_and_json(self):
        url = f"{self.origin.url}/bytes/300000"
        digest = hashlib.sha256(body(300_000)).hexdigest()
        self.done("--checksum", f"sha256={digest}", "-o", self.out, url)
        self.assertEqual(self.out.read_bytes(), body(300_000))
        lines = self.done("--json", url, f"{url}?2").splitlines()
        self.assertEqual([json.loads(line)["sha256"] for line in lines], [digest] * 2)
        failed = self.bus.run("get", "--no-spawn", "-o", self.bus.folder / "none", f"{self.origin.url}/status/404")
        self.assertEqual(failed.status, 22, failed.describe())
        self.assertFalse((self.bus.folder / "none").exists())

    def test_an_interrupted_file_is_continued(self):
        size = 4 * MIB
        self.origin.publish("f", size, plan=lambda number, start: {"held": 2 * MIB} if number == 0 else {})
        target = self.bus.folder / "file"
        get = self.bus.start("get", "--no-spawn", "--continue", "-o", target, f"{self.origin.url}/parts/f")
        # The unnamed file in the folder of the destination has the first half.
        eventually(lambda: sum(self.unnamed(get)) >= 2 * MIB, "the first half has arrived")
        os.kill(get.pid, signal.SIGINT)
        get.wait()
        self.assertEqual(target.read_bytes(), body(size)[:target.stat().st_size])
        self.assertGreaterEqual(target.stat().st_size, MIB, "reports of the last pass may be lost")
        self.origin.open_gate("f")
        self.done("--continue", "-o", target, f"{self.origin.url}/parts/f")
        self.assertEqual(target.read_bytes(), body(size))

    def unnamed(self, program):
        """Sizes of the unnamed files that a program has open in the folder of the bus."""
        found = []
        for entry in pathlib.Path(f"/proc/{program.pid}/fd").iterdir():
            try:
                if os.readlink(entry).startswith(f"{self.bus.folder}/#"):
                    found.append(entry.stat().st_size)
            except FileNotFoundError:
                pass  # It was closed meanwhile.
        return found

    def test_watch_writes_the_bodies_of_submitted_requests(self):
        submitted = self.bus.run("submit", "--durable", "--handler", "night/1", f"{self.origin.url}/bytes/300000")
        self.assertEqual(submitted.status, 0, submitted.describe())
        watched = self.bus.run("watch", "-d", self.out, "--count", 1, "night/1")
        self.assertEqual(watched.status, 0, watched.describe())
        self.assertEqual((self.out / "300000").read_bytes(), body(300_000))

    def test_a_restart_of_the_broker_repeats_the_request(self):
        size = 4 * MIB
        self.origin.publish("f", size, plan=lambda number, start: {"held": 2 * MIB} if number == 0 else {})
        target = self.bus.folder / "file"
        get = self.bus.start("get", "--no-spawn", "-o", target, f"{self.origin.url}/parts/f")
        eventually(lambda: sum(self.unnamed(get)) >= 2 * MIB, "the first half has arrived")
        os.kill(self.bus.broker, signal.SIGKILL)
        self.origin.open_gate("f")
        self.assertEqual(get.wait(), 0, get.describe())
        self.assertEqual(target.read_bytes(), body(size))
