"""Disks of 1 MiB beneath each folder: a clear error, nothing hangs, nothing lost is acknowledged, and everything works once
there is room again."""

import shutil

from support.disks import MIB, SmallDisk
from support.harness import Bus, TestCase, temporary_folder
from support.origin import Origin, body, kept_seed
from support.processes import eventually

LARGE = 4 * MIB


class FullDiskTests(TestCase):
    def setUp(self):
        self.folder = temporary_folder()
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.disk = SmallDisk(self, self.folder / "small")
        self.origin = self.enterContext(Origin())

    def url(self, size=LARGE, seed=""):
        return f"{self.origin.url}/bytes/{size}?seed={seed}"

    def bus(self, *arguments, **options):
        return self.enterContext(Bus(workers=1, arguments=["--spool-free", "0", *map(str, arguments)], **options))

    def names(self):
        return sorted(path.name for path in self.disk.path.rglob("*") if path.is_file())

    def submit(self, bus, handler, *urls):
        """Returns the IDs of completed durable requests that are not delivered yet."""
        program = bus.run("submit", "--durable", "--handler", handler, *urls)
        self.assertEqual(program.status, 0, program.describe())
        client = bus.client()
        requests = program.stdout.decode().splitlines()
        for request in requests:
            eventually(lambda: client.query(f"why {request}")["state"] == "held", f"{request} has ended")
        client.close()
        return requests

    def assertNoRoom(self, program):
        self.assertEqual(program.status, 23, program.describe())
        self.assertIn("No space left on device", program.stderr)


class OutputTests(FullDiskTests):
    def test_get_leaves_no_part_of_a_file_and_ends_with_23(self):
        bus = self.bus()
        for output in (["-o", self.disk.path / "file"], ["-d", self.disk.path]):
            program = bus.run("get", *output, self.url())
            self.assertNoRoom(program)
            self.assertEqual(self.names(), [])
        program = bus.run("get", "-d", self.disk.path, self.url(1000), self.url())
        self.assertEqual(program.status, 2, program.describe())
        self.assertEqual((self.disk.path / "1000").read_bytes(), body(1000))
        self.assertEqual(self.names(), ["1000"])
        self.disk.grow(16)
        program = bus.run("get", "-d", self.disk.path, self.url())
        self.assertEqual(program.status, 0, program.describe())
        self.assertTrue((self.disk.path / str(LARGE)).read_bytes() == body(LARGE))

    def test_a_private_bus_is_no_different(self):
        bus = self.bus()
        program = bus.run("get", "--runtime", self.folder / "none", "--no-cache", "-o", self.disk.path / "file",
                          self.url())
        self.assertNoRoom(program)
        self.assertEqual(self.names(), [])

    def test_a_durable_result_that_watch_cannot_write_waits_for_the_next_watch(self):
        bus = self.bus()
        for size in (LARGE, MIB // 2):
            # As a file of the spool, and within a message.
            if size != LARGE:
                bus.client().set(f"inline-bytes {LARGE}")
            handler = f"full/{size}"
            (request,) = self.submit(bus, handler, self.url(size))
            filler = self.disk.path / "filler"
            filler.write_bytes(bytes(MIB - 65536))
            for options in ([], ["--json"]):
                program = bus.run("watch", handler, "--count", "1", "-d", self.disk.path, *options)
                self.assertNoRoom(program)
                self.assertIn(request, program.stderr)
                self.assertIn("stays on the broker's disk", program.stderr)
                self.assertEqual(program.stdout, b"")
                self.assertEqual(self.names(), ["filler"])
            filler.unlink()
            self.disk.grow(16)
            program = bus.run("watch", handler, "--count", "1", "-d", self.disk.path)
            self.assertEqual(program.status, 0, program.describe())
            self.assertTrue((self.disk.path / str(size)).read_bytes() == body(size))
            (self.disk.path / str(size)).unlink()
            self.disk.grow(1)
        client = bus.client()
        self.await_requests(client, pending=0)
        self.balance(client)

    def test_watch_acknowledges_those_before_the_one_that_it_cannot_write(self):
        bus = self.bus()
        self.submit(bus, "some", self.url(1000))
        self.submit(bus, "some", self.url())
        first = bus.run("watch", "some", "-d", self.disk.path)
        self.assertNoRoom(first)
        written = [line.split()[-1] for line in first.stdout.decode().splitlines()]
        self.disk.grow(16)
        rest = bus.run("watch", "some", "--count", str(2 - len(written)), "-d", self.disk.path)
        self.assertEqual(rest.status, 0, rest.describe())
        self.assertEqual(self.names(), ["1000", str(LARGE)])
        client = bus.client()
        self.await_requests(client, answered=2, pending=0)

    def test_an_ordinary_result_that_watch_cannot_write_ends_it_with_23(self):
        bus = self.bus()
        client = bus.client()
        watch = bus.start("watch", "plain", "-d", self.disk.path)
        watch.await_line("listening")
        client.fetch("plain", 1, self.url(), subscribe="no")
        watch.status = watch.wait()
        self.assertNoRoom(watch)
        self.assertIn("plain 1", watch.stderr)


class BrokerFolderTests(FullDiskTests):
    def test_a_full_spool_fails_large_bodies_alone(self):
        bus = self.bus("--no-cache", "--spool", self.disk.path / "spool")
        program = bus.run("get", "-d", self.folder / "out", self.url())
        self.assertEqual(program.status, 23, program.describe())
        self.assertIn("spool-full", program.stderr)
        program = bus.run("get", self.url(1000))
        self.assertEqual((program.status, program.stdout), (0, body(1000)), program.describe())
        self.disk.grow(16)
        program = bus.run("get", "-d", self.folder / "out", self.url())
        self.assertEqual(program.status, 0, program.describe())
        self.assertTrue((self.folder / "out" / str(LARGE)).read_bytes() == body(LARGE))

    def test_a_full_cache_costs_nothing_but_its_use(self):
        cache = self.disk.path / "cache"
        bus = self.bus("--cache-folder", cache)

        def get(number):
            path = f"/kept/{number}?cc=max-age%3D1000&bytes={MIB // 2}"
            program = bus.run("get", self.origin.url + path)
            self.assertEqual(program.status, 0, program.describe())
            self.assertTrue(program.stdout == body(MIB // 2, kept_seed(number)))

        for number in range(6):
            get(number)
        self.assertEqual(bus.run("cache", "verify", "--cache-folder", cache).status, 0)
        self.disk.grow(16)

        def is_used():
            get("again")
            return bus.client().query("ledger")["cache"]["used"] > used
        used = bus.client().query("ledger")["cache"]["used"]
        eventually(is_used, "the cache keeps again")

    def test_a_full_durable_folder_refuses_and_loses_nothing_that_it_accepted(self):
        bus = self.bus("--durable-folder", self.disk.path / "durable")
        kept, status = [], 0
        while status == 0 and len(kept) < 400:
            urls = [self.url(20_000 + len(kept) + number) for number in range(8)]
            program = bus.run("submit", "--durable", "--handler", "store", *urls)
            kept += [line.split()[1] for line in program.stdout.decode().splitlines()]
            status = program.status
            if status == 0:
                # Its results fill the disk.
                client = bus.client()
                eventually(lambda: all(client.query(f"why store {name}")["state"] == "held" for name in kept),
                           "all have ended", 30)
                client.close()
        self.assertIn("not-stored", program.stderr)
        self.assertIn(status, (2, 5), program.describe())
        self.disk.grow(32)
        program = bus.run("submit", "--durable", "--handler", "store", self.url(100))
        self.assertEqual(program.status, 0, program.describe())
        kept += [line.split()[1] for line in program.stdout.decode().splitlines()]
        # Requests whose results found no room are fetched again by the next broker.
        bus.kill()
        (self.folder / "second").mkdir()
        with Bus(workers=1, folder=self.folder / "second",
                 arguments=["--durable-folder", str(self.disk.path / "durable"), "--spool-free", "0"]) as second:
            out = self.folder / "out"
            program = second.run("watch", "store", "--count", str(len(kept)), "-d", out)
            self.assertEqual(program.status, 0, program.describe())
            self.assertEqual({line.split()[1].decode() for line in program.stdout.splitlines()}, set(kept))
            for path in out.iterdir():
                self.assertTrue(path.read_bytes() == body(int(path.name)))
