"""Partial bodies outlive their request, their bus and its crash: each next request goes on where the last one ended."""

import os
import re
import shutil
import signal

from support.disks import SmallDisk
from support.harness import Bus, Commands, TestCase, remove_folder, temporary_folder
from support.origin import Origin
from support.parts import Version
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

    def test_two_buses_do_not_get_the_same_part(self):
        published = self.publish()
        with self.bus() as bus:
            client = bus.client()
            self.begin(bus, client)
            client.remove("file")
            eventually(lambda: bodies(self.parts), "the part is stored")
            # Its cache is beside the same folder of parts.
            other = Bus(workers=1, arguments=("--cache-folder", self.folder / "run" / "other", "--no-durable"))
            with other:
                clients = [bus.client(), other.client()]
                for client in clients:
                    client.fetch("race", 1, self.url())
                sources = []
                for client in clients:
                    message = client.terminal()
                    self.assertResult(message, published.version.content)
                    sources.append(message.fields["source"])
            self.assertEqual(sorted(sources), ["network", "resumed"])

    # MARK: Keys

    def test_a_part_is_not_used_for_other_credentials(self):
        published = self.publish()
        with self.bus() as bus:
            client = bus.client()
            self.begin(bus, client, headers=[("authorization", "one")])
            client.remove("file")
            eventually(lambda: bodies(self.parts), "the part is stored")
            host = self.origin.url.removeprefix("http://")
            for number, (url, headers) in enumerate([
                    (self.url(), []), (self.url(), [("authorization", "two")]), (self.url(), [("cookie", "a=b")]),
                    (f"http://user:word@{host}/parts/file", [])]):
                client.fetch("other", number, url, headers=headers)
                self.assertEqual(client.terminal().fields["source"], "network", (url, headers))
            self.assertEqual(published.ranges, [None] * 5)
            client.fetch("same", 1, self.url(), headers=[("authorization", "one")])
            self.assertEqual(client.terminal().fields["source"], "resumed")
            text = "".join(path.read_text(errors="replace") for path in self.parts.rglob("*.head"))
            self.assertNotIn("authorization", text)

    def test_a_redirect_to_a_url_that_is_signed_each_time_goes_on(self):
        published = self.publish()
        signatures = iter(range(100))
        self.origin.publish("first", 10, plan=lambda number, start: {
            "redirect": f"{self.url()}?signature={next(signatures)}"})
        with self.bus() as bus:
            client = bus.client()
            self.begin(bus, client, name="first")
            client.remove("file")
            eventually(lambda: bodies(self.parts), "the part is stored")
            client.fetch("file", 2, self.url("first"))
            message = client.terminal()
            self.assertResult(message, published.version.content)
            self.assertEqual(message.fields["source"], "resumed")
            self.assertLess(published.sent, 1.05 * SIZE)

    # MARK: Other contents

    def test_another_version_is_fetched_from_its_first_byte(self):
        newer = Version(SIZE, "newer")
        published = self.publish(plan=lambda number, start: [
            {"held": 2 * MIB, "gate": "never"}, {"version": newer}][min(number, 1)])
        with self.bus("--drain-seconds", 0) as bus:
            self.begin(bus, bus.client())
        with self.bus() as bus:
            client = bus.client()
            client.fetch("again", 1, self.url())
            message = client.terminal()
            self.assertResult(message, newer.content)
            self.assertEqual(message.fields["source"], "network")
            self.assertIsNotNone(published.ranges[1])

    def test_what_lies_behind_the_checkpoint_of_another_boot_is_not_used(self):
        """The description gets another boot ID, and the body a checkpoint and wrong bytes behind or before it."""
        import hashlib
        for place in ("behind", "before", "truncated", "without"):
            with self.subTest(place):
                published = self.publish()
                with self.bus("--drain-seconds", 0) as bus:
                    client = bus.client()
                    self.begin(bus, client)
                    client.remove("file")
                    part, = eventually(lambda: bodies(self.parts), "the part is stored")
                head = part.with_suffix(".head")
                content = bytearray(part.read_bytes())
                checkpoint = MIB + 5
                text = re.sub(rb"boot: .*", b"boot: another", head.read_bytes())
                if place != "without":
                    digest = hashlib.sha256(content[:checkpoint]).hexdigest()
                    text = text.replace(b"boot:", f"checkpoint: {checkpoint} {digest}\nboot:".encode(), 1)
                head.write_bytes(text)
                with open(part, "r+b") as file:
                    if place in ("behind", "before"):
                        file.seek(checkpoint if place == "behind" else 0)
                        file.write(b"wrong")
                    if place == "truncated":
                        file.truncate(checkpoint - 1)
                with self.bus() as bus:
                    client = bus.client()
                    client.fetch("again", 1, self.url())
                    message = client.terminal()
                    self.assertResult(message, published.version.content)
                    expected = f"bytes={checkpoint}-{SIZE - 1}" if place == "behind" else None
                    self.assertEqual(published.ranges[-1], expected)
                    begun = str(checkpoint) if place == "behind" else None
                    self.assertEqual(message.fields.get("resumed-bytes"), begun)
                    self.assertEqual(bodies(self.parts), [])

    # MARK: The folder

    def test_a_folder_that_is_lost_or_not_to_be_trusted_costs_parts_and_nothing_else(self):
        for fault in ("removed", "writable", "file", "link"):
            with self.subTest(fault):
                published = self.publish()
                shutil.rmtree(self.parts, ignore_errors=True)
                if self.parts.exists() or self.parts.is_symlink():
                    self.parts.unlink()
                (self.folder / "run").mkdir(mode=0o700, exist_ok=True)
                if fault == "writable":
                    self.parts.mkdir()
                    os.chmod(self.parts, 0o777)
                elif fault == "file":
                    self.parts.write_text("")
                elif fault == "link":
                    self.parts.symlink_to(self.folder)
                with self.bus() as bus:
                    client = bus.client()
                    client.fetch("file", 1, self.url())
                    if fault == "removed":
                        eventually(lambda: growing(self.parts), "the body is recorded")
                        shutil.rmtree(self.parts)
                    else:
                        self.assertIn("cannot open the folder of partial bodies", bus.program.stderr)
                        eventually(lambda: published.sent == 2 * MIB, "the origin has sent its bytes")
                    client.remove("file")
                    client.fetch("again", 1, self.url())
                    self.assertResult(client.terminal(), published.version.content)

    def test_a_folder_that_is_removed_is_created_again_with_the_descriptions(self):
        self.assert_created_again(self.parts)

    def test_the_folder_of_descriptions_is_created_again_with_them(self):
        self.assert_created_again(self.parts / "growing")

    def assert_created_again(self, folder):
        published = self.publish()
        with self.bus("--drain-seconds", 0) as bus:
            client = bus.client()
            self.begin(bus, client)
            shutil.rmtree(folder)
            # The broker checks the folder while it has something to do.
            eventually(lambda: client.query("settings") and growing(self.parts), "the body is recorded again")
            self.assertIn("the folder of partial bodies was removed, and is created again", bus.program.stderr)
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

    def test_parts_have_a_maximum_size_and_can_be_switched_off(self):
        for size, kept in ((0, 0), (2 * MIB - 1, 0), (3 * MIB, 1)):
            with self.subTest(size):
                self.publish()
                with self.bus("--drain-seconds", 0) as bus:
                    bus.run("set", "parts-size", str(size))
                    client = bus.client()
                    client.fetch("file", 1, self.url(), progress=50)
                    while int(client.expect("PROGRESS").operands[2].split("/")[0]) < 2 * MIB:
                        pass
                    client.remove("file")
                    eventually(lambda: not bus.spooled(".kept", ".part"), "the spool is empty")
                    self.assertEqual(len(bodies(self.parts)), kept)
                    if kept:
                        bus.run("set", "parts-size", str(MIB))
                        eventually(lambda: not bodies(self.parts), "the bound is kept")

    def test_a_request_that_is_not_to_be_stored_leaves_nothing(self):
        self.publish()
        with self.bus() as bus:
            client = bus.client()
            client.fetch("file", 1, self.url(), cache="no-store", progress=50)
            while int(client.expect("PROGRESS").operands[2].split("/")[0]) < 2 * MIB:
                pass
            client.remove("file")
            eventually(lambda: not bus.spooled(".kept", ".part"), "the spool is empty")
            self.assertEqual((bodies(self.parts), growing(self.parts)), ([], []))

    def test_a_private_bus_that_is_killed_leaves_its_part_to_the_next_one(self):
        published = self.publish()
        commands = Commands(self.folder / "run", self.folder)
        self.parts = commands.user_cache / "parts"
        for ending in (signal.SIGINT, signal.SIGKILL):
            get = commands.start("get", "--no-cache", "-o", "out", self.url())
            eventually(lambda: growing(self.parts) or len(published.ranges) > 1, "the body is recorded")
            if ending == signal.SIGKILL:
                break
            get.signal(ending)
            get.wait()
            self.assertFalse((self.folder / "out").exists())
            eventually(lambda: bodies(self.parts), "the part is stored")
            self.assertEqual(list(commands.user_cache.glob("private-*")), [])
        get.kill()
        commands.await_no_survivors()
        self.assertEqual(commands.run("get", "--no-cache", "-o", "out", self.url()).status, 0)
        self.assertEqual((self.folder / "out").read_bytes(), published.version.content)
        self.assertLess(published.sent, 1.05 * SIZE)
