"""Partial bodies outlive their request, their bus and its crash: each next request goes on where the last one ended."""

import os
import shutil
import signal

from support.disks import SmallDisk
from support.harness import Bus, Commands, TestCase, remove_folder, temporary_folder
from support.origin import Origin
from support.processes import eventually, kill

MIB = 1 << 20
SIZE = 6 * MIB


def growing(folder):
    """Returns the descriptions of growing bodies."""
    return list((folder / "growing").glob("*.part")) + list((folder / "growing").glob("*.kept"))


def bodies(folder):
    return list(folder.glob("*.body"))


class PartsTests(TestCase):
    def setUp(self):
        self.folder = temporary_folder()
        self.addCleanup(remove_folder, self.folder)
        self.parts = self.folder / "run" / "parts"
        self.origin = self.enterContext(Origin())

    def bus(self, *arguments):
        """A bus without a cache, which would answer repetitions."""
        return Bus(folder=self.folder, workers=1, arguments=("--no-cache", *arguments))

    def publish(self, name="file", held=2 * MIB, plan=None, **options):
        """Publishes a file whose first response stops after `held` bytes."""
        held_once = lambda number, start: {"held": held, "gate": "never"} if number == 0 else {}
        return self.origin.publish(name, SIZE, name, plan=plan or held_once, **options)

    def url(self, name="file"):
        return f"{self.origin.url}/parts/{name}"

    def begin(self, bus, client, handler="file", name="file", **options):
        """Starts a request and waits until the bus has the description of its body."""
        client.fetch(handler, 1, self.url(name), **options)
        eventually(lambda: growing(self.parts), "the body is recorded")

    def assert_continued(self, published, content=None, source="resumed"):
        """Asserts that another request gets the whole body, of which the origin sent at most a twentieth twice."""
        with self.bus() as bus:
            client = bus.client()
            client.fetch("again", 1, self.url())
            message = client.terminal()
            self.assertResult(message, content or published.version.content)
            self.assertEqual(message.fields["source"], source)
            self.assertLess(published.sent, 1.05 * SIZE)
            begun = int(message.fields["resumed-bytes"])
            self.assertGreaterEqual(begun, MIB)
            self.assertRegex(published.ranges[-1], f"^bytes={begun}-")
            self.assertEqual((bodies(self.parts), bus.spooled(".kept", ".part")), ([], []))

    # MARK: Ends of processes

    def test_a_request_goes_on_after_the_bus_was_stopped(self):
        published = self.publish()
        with self.bus("--drain-seconds", 0) as bus:
            self.begin(bus, bus.client())
        self.assert_continued(published)

    def test_a_request_goes_on_after_the_supervisor_was_killed_with_all_processes(self):
        published = self.publish()
        with self.bus() as bus:
            self.begin(bus, bus.client())
            bus.kill()
        self.assertEqual(bodies(self.parts), [])
        self.assert_continued(published)

    def test_a_request_goes_on_after_a_crash_of_the_broker_and_of_the_worker(self):
        for process in ("broker", "worker"):
            with self.subTest(process):
                published = self.publish()
                with self.bus() as bus:
                    client = bus.stubborn_client()
                    client.fetch("file", 1, self.url())
                    eventually(lambda: growing(self.parts), "the body is recorded")
                    kill(bus.broker if process == "broker" else bus.workers[0])
                    if process == "broker":
                        client.await_next_broker()
                    message = client.terminal(30)
                    self.assertResult(message, published.version.content)
                    self.assertEqual(message.fields["source"], "resumed")
                self.assertLess(published.sent, 1.05 * SIZE)

    def test_a_body_goes_on_over_several_interruptions(self):
        published = self.publish(plan=lambda number, start: {"held": 3 * MIB // 2, "gate": "never"} if number < 3 else {})
        for ending in ("stop", "kill"):
            with self.bus("--drain-seconds", 0) as bus:
                client = bus.client()
                seen = published.sent
                client.fetch("file", 1, self.url(), progress=50)
                eventually(lambda: published.sent >= seen + 3 * MIB // 2, "the origin has sent more")
                while int(client.expect("PROGRESS").operands[2].split("/")[0]) < published.sent:
                    pass
                eventually(lambda: growing(self.parts), "the body is recorded")
                if ending == "kill":
                    bus.kill()
        self.assertEqual(published.ranges[1], f"bytes={3 * MIB // 2}-{SIZE - 1}")
        with self.bus() as bus:
            client = bus.client()
            client.fetch("file", 1, self.url(), progress=50)
            while int(client.expect("PROGRESS").operands[2].split("/")[0]) < 3 * 3 * MIB // 2:
                pass
            client.remove("file")
            eventually(lambda: bodies(self.parts), "the part is stored")
        self.assert_continued(published)

    # MARK: Keys

    # MARK: Other contents

    # MARK: The folder

    def test_a_removed_folder_is_created_again_with_the_descriptions(self):
        for folder in (self.parts, self.parts / "growing"):
            with self.subTest(folder.name):
                published = self.publish()
                with self.bus("--drain-seconds", 0) as bus:
                    client = bus.client()
                    self.begin(bus, client)
                    shutil.rmtree(folder)
                    # The broker checks the folder while it has something to do.
                    eventually(lambda: client.query("settings") and growing(self.parts), "the body is recorded again")
                    # The broker logs it after it wrote the descriptions.
                    bus.program.await_line("the folder of partial bodies was removed, and is created again")
                self.assert_continued(published)

    def test_a_description_that_a_full_disk_refused_is_written_when_there_is_room(self):
        self.folder = self.folder / "disk"
        # Larger than the setting spool-free.
        disk = SmallDisk(self, self.folder, 1_024)
        self.parts = self.folder / "run" / "parts"
        published = self.publish()
        with self.bus() as bus:
            client = bus.client()
            client.fetch("warm", 1, f"{self.origin.url}/bytes/300000")
            client.terminal()
            eventually(lambda: not bus.spooled(), "the spool is empty")
            status = os.statvfs(self.folder)
            disk.limit_files(status.f_files - status.f_ffree + 1)
            client.fetch("file", 1, self.url(), progress=50)
            while int(client.expect("PROGRESS").operands[2].split("/")[0]) < 2 * MIB:
                pass
            self.assertEqual(growing(self.parts), [])
            disk.limit_files(1_000)
            eventually(lambda: growing(self.parts), "the body is recorded")
            bus.kill()
        self.assert_continued(published)

    def test_a_private_bus_that_is_killed_leaves_its_part_to_the_next_one(self):
        # The second response holds its bytes back as well: it must not race with the death of its program.
        published = self.publish(plan=lambda number, start: {"held": (2 * MIB, 1)[number], "gate": "never"} if number < 2 else {})
        commands = Commands(self.folder / "run", self.folder)
        self.parts = commands.user_cache / "parts"
        get = commands.start("get", "--no-cache", "-o", "out", self.url())
        eventually(lambda: growing(self.parts), "the body is recorded")
        get.signal(signal.SIGINT)
        get.wait()
        self.assertFalse((self.folder / "out").exists())
        eventually(lambda: bodies(self.parts), "the part is stored")
        self.assertEqual(list(commands.user_cache.glob("private-*")), [])
        get = commands.start("get", "--no-cache", "-o", "out", self.url())
        eventually(lambda: len(published.ranges) > 1, "the rest is requested")
        get.kill()
        commands.await_no_survivors()
        self.assertEqual(commands.run("get", "--no-cache", "-o", "out", self.url()).status, 0)
        self.assertEqual((self.folder / "out").read_bytes(), published.version.content)
        self.assertLess(published.sent, 1.05 * SIZE)
