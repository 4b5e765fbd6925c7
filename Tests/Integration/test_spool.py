"""The spool is bounded, and only requests that exceed it fail."""

import shutil

from support.disks import MIB, SmallDisk
from support.harness import Bus, TestCase, temporary_folder
from support.origin import Origin, body, kept_seed
from support.processes import eventually


class SpoolTests(TestCase):
    def test_what_is_beyond_the_spools_size_fails_and_an_acknowledgement_makes_room(self):
        with Origin() as origin, Bus(workers=1, arguments=["--spool-size", str(4 * MIB)]) as bus:
            client = bus.client(window=8)
            client.hold()
            client.fetch("file", 1, f"{origin.url}/bytes/{3 * MIB}?seed=1")
            self.assertResult(client.terminal(), body(3 * MIB, "1"))
            client.fetch("file", 2, f"{origin.url}/bytes/{3 * MIB}?seed=2")
            self.assertFailed(client.terminal(), "spool-full")
            client.fetch("file", 3, f"{origin.url}/bytes/1000")
            self.assertResult(client.terminal(), body(1000))
            client.release()
            client.hold()
            client.fetch("file", 4, f"{origin.url}/bytes/{3 * MIB}?seed=4")
            self.assertResult(client.terminal(), body(3 * MIB, "4"))
            self.balance(client)

    def test_a_disk_with_too_little_left_takes_no_files_and_the_setting_holds_at_once(self):
        with Origin() as origin, Bus(workers=1) as bus:
            client = bus.client()
            self.assertEqual(client.set(f"spool-free {1 << 50}").verb, "CHANGED")
            client.fetch("file", 1, f"{origin.url}/bytes/{MIB}")
            self.assertFailed(client.terminal(), "spool-full")
            client.fetch("file", 2, f"{origin.url}/bytes/1000")
            self.assertResult(client.terminal(), body(1000))
            client.set("spool-free 0")
            client.fetch("file", 3, f"{origin.url}/bytes/{MIB}")
            self.assertResult(client.terminal(), body(MIB))

    def test_a_disk_with_too_little_left_is_reported_when_the_bus_starts(self):
        with Bus(workers=1, arguments=["--spool-free", str(1 << 50)]) as bus:
            line = bus.program.await_line("less free space than the setting spool-free")
            self.assertIn("free disk space, or lower spool-free", line)
            self.assertIn(f"spool-free={1 << 50}", line)
        with Bus(workers=1, arguments=["--spool-free", "0"]) as bus:
            bus.client().query("ledger")
            self.assertNotIn("free space", bus.program.stderr)

    def test_a_disk_that_is_full_fails_what_is_large_and_nothing_else(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder)
        SmallDisk(self, folder, 4)
        arguments = ["--spool", folder / "spool", "--cache-folder", folder / "cache", "--spool-free", "0"]
        with Origin() as origin, Bus(workers=1, arguments=arguments) as bus:
            client = bus.client(window=64)

            def fetch(handler, number):
                """Correct, or clearly absent: the cache is on the full disk too."""
                client.fetch(handler, number, f"{origin.url}/kept/{number}?cc=max-age%3D1000&bytes={MIB}", retries=0)
                message = client.terminal()
                if message.verb == "RESULT":
                    self.assertResult(message, body(MIB, kept_seed(number)))
                else:
                    self.assertFailed(message, "spool-full")
                return message.verb

            verbs = set()
            for turn in range(3):
                client.fetch("large", turn, f"{origin.url}/bytes/{8 * MIB}?seed={turn}", retries=0)
                self.assertFailed(client.terminal(), "spool-full")
                verbs |= {fetch("fits", f"{turn}-{number}") for number in range(5)}
                client.fetch("small", turn, f"{origin.url}/bytes/1000?seed={turn}")
                self.assertResult(client.terminal(), body(1000, str(turn)))
            verbs |= {fetch("again", f"{turn}-{number}") for turn in range(3) for number in range(5)}
            self.assertEqual(verbs, {"RESULT", "FAILED"})
            # Evicting from the cache frees space.
            client.set("cache-size 0")
            eventually(lambda: fetch("room", "0-0") == "RESULT", "there is room again")
            self.assertEqual(bus.run("cache", "verify", "--cache-folder", folder / "cache").status, 0)
            self.balance(client)

    def test_a_bomb_of_a_gib_is_stopped_by_its_decoded_bytes(self):
        def most_memory(pid):
            """Returns the peak memory of a process in bytes."""
            with open(f"/proc/{pid}/status") as status:
                return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))

        with Origin() as origin, Bus(workers=1) as bus:
            client = bus.client()
            worker = bus.workers[0]
            before = most_memory(worker)
            path = f"/gzip-bomb/{1 << 30}"
            client.fetch("bomb", 1, f"{origin.url}{path}?gate=never", max_bytes=2 * MIB)
            self.assertFailed(client.terminal(), "too-large")
            origin.await_aborts(path)
            self.assertLess(most_memory(worker) - before, 32 * MIB)
            self.assertEqual(bus.spooled(".part", ".kept"), [])
