"""Folders and sockets removed or moved beneath a running bus: it recreates them, and reports that."""

import itertools
import socket
import subprocess

from support.client import Client
from support import zmtp
from support.harness import Bus, TestCase, remove_folder
from support.origin import Origin, body
from support.processes import eventually, kill

LARGE = 200_000


class Case(TestCase):
    counter = itertools.count(1)

    def faults(self, client):
        return {fault["place"]: fault for fault in client.query("status").get("faults", [])}

    def remove(self, bus, folder):
        # A file created meanwhile would stop the removal.
        remove_folder(folder.rename(bus.folder / "removed"))

    def await_fault(self, client, subject, state):
        def found():
            fault = self.faults(client).get(subject)
            return fault if fault and fault["state"] == state else None
        return eventually(found, lambda: f"{subject} is {state}; status tells {self.faults(client)}")

    def fetch(self, client, origin, count=LARGE, **fields):
        """Makes a new request of this client alone. Returns its terminal."""
        seed = next(self.counter)
        client.fetch(f"handler/{seed}", 1, f"{origin.url}/bytes/{count}?seed={seed}", **fields)
        return client.terminal(), body(count, str(seed))

    def assertFetches(self, client, origin, count=LARGE):
        self.assertResult(*self.fetch(client, origin, count))


class SpoolTests(Case):
    def test_a_removed_spool_is_made_again_before_anybody_needs_it(self):
        with Origin() as origin, Bus(workers=2) as bus:
            client = bus.client()
            self.assertEqual(self.faults(client), {})
            self.assertFetches(client, origin)
            self.remove(bus, bus.spool)
            line = bus.program.await_line("removed or replaced")
            self.assertIn("warning", line)
            self.assertIn(str(bus.spool), line)
            fault = self.await_fault(client, "spool", "restored")
            self.assertEqual((fault["path"], fault["count"]), (str(bus.spool), 1))
            self.assertRegex(fault["last"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
            self.assertEqual(bus.spool.stat().st_mode & 0o777, 0o700)
            for _ in range(8):
                self.assertFetches(client, origin)
            self.assertIn("spool", bus.run("status").stdout.decode())

    def test_a_body_that_arrives_while_the_spool_is_removed_comes_all_the_same(self):
        with Origin() as origin, Bus(workers=1) as bus:
            client = bus.client()
            origin.publish("slow", LARGE, plan=lambda n, start: {"held": LARGE // 2} if n == 0 else {})
            client.fetch("slow", 1, f"{origin.url}/parts/slow")
            eventually(lambda: bus.spooled(".part"), "the body is a file")
            self.remove(bus, bus.spool)
            self.await_fault(client, "spool", "restored")
            origin.open_gate("slow")
            message = client.terminal()
            self.assertEqual((message.verb, len(message.content())), ("RESULT", LARGE), message)

    def test_a_spool_that_was_moved_away_is_made_again(self):
        with Origin() as origin, Bus(workers=1) as bus:
            client = bus.client()
            self.assertFetches(client, origin)
            bus.spool.rename(bus.folder / "elsewhere")
            self.await_fault(client, "spool", "restored")
            self.assertFetches(client, origin)

    def test_a_spool_that_cannot_be_made_again_is_a_failure_of_its_own(self):
        with Origin() as origin, Bus(workers=1) as bus:
            client = bus.client()
            # At once, like a folder that is moved away and replaced.
            subprocess.run(["sh", "-c", f"rm -r {bus.spool} && echo no folder > {bus.spool}"], check=True)
            fault = self.await_fault(client, "spool", "lost")
            self.assertIn("is not a folder", fault["reason"])
            self.assertFailed(self.fetch(client, origin, retries=0)[0], "spool-failed")
            self.assertFetches(client, origin, count=100)
            got = bus.run("get", "--no-spawn", f"{origin.url}/bytes/{LARGE}")
            self.assertEqual(got.status, 23, got.describe())
            self.assertIn("spool-failed", got.stderr)
            bus.spool.unlink()
            # The next body that needs it finds it repaired.
            self.assertFetches(client, origin)
            self.await_fault(client, "spool", "restored")

    def test_a_kept_body_comes_from_the_cache_after_the_spool_was_removed(self):
        with Origin() as origin, Bus(workers=1) as bus:
            url = f"{origin.url}/kept/1?cc=max-age%3D1000&bytes={LARGE}"
            client = bus.client()
            client.fetch("kept", 1, url)
            self.assertEqual(client.terminal().verb, "RESULT")
            eventually(lambda: list((bus.runtime / "cache" / "bodies").iterdir()), "it is kept")
            self.remove(bus, bus.spool)
            self.await_fault(client, "spool", "restored")
            client.fetch("kept", 2, url, cache="only-if-cached")
            message = client.terminal()
            self.assertEqual((message.verb, len(message.content())), ("RESULT", LARGE), message)

    def test_a_durable_result_is_put_into_the_new_spool(self):
        with Origin() as origin, Bus(workers=1) as bus:
            client = bus.client()
            client.fetch("durable", 1, f"{origin.url}/bytes/{LARGE}", durable="yes", subscribe="no")
            client.expect("ACCEPTED")
            eventually(lambda: client.query("why durable 1")["state"] == "held", "it has ended")
            self.remove(bus, bus.spool)
            self.await_fault(client, "spool", "restored")
            client.send("SUBSCRIBE durable")
            self.assertResult(client.terminal(), body(LARGE))

    def test_a_folder_of_durable_requests_that_is_gone_is_a_fault_until_it_is_back(self):
        with Origin() as origin, Bus(workers=1) as bus:
            client, folder = bus.client(), bus.runtime / "durable"
            eventually((folder / "requests.sqlite-wal").exists, "the table is open")
            for victim in (folder, folder / "requests.sqlite", folder / "durable.lock"):
                with self.subTest(victim=victim.name):
                    victim.rename(bus.folder / "elsewhere")
                    fault = self.await_fault(client, "durable", "lost")
                    self.assertEqual(fault["path"], str(folder))
                    self.assertIn("restore it, or restart", fault["reason"])
                    self.assertFetches(client, origin, count=100)
                    (bus.folder / "elsewhere").rename(victim)
                    self.await_fault(client, "durable", "restored")
            client.fetch("durable", 1, f"{origin.url}/bytes/100", durable="yes", subscribe="no")
            client.expect("ACCEPTED")


class RuntimeFolderTests(Case):
    def assertReachable(self, bus, origin, old):
        """New clients and workers can connect, and existing ones continue."""
        with Client(bus.runtime) as new:
            self.assertFetches(new, origin, count=100)
        self.assertFetches(old, origin, count=100)
        kill(bus.workers[0])
        eventually(lambda: len(old.query("workers")["workers"]) == 1 and bus._pids("worker"), "another worker")
        self.assertFetches(old, origin, count=100)

    def test_a_removed_socket_is_bound_again(self):
        for name in ("bus", "work"):
            with self.subTest(socket=name), Origin() as origin, Bus(workers=1) as bus:
                client = bus.client()
                client.query("ping")
                (bus.runtime / name).unlink()
                self.assertIn("warning", bus.program.await_line(f"path={bus.runtime / name} "))
                self.assertEqual(self.await_fault(client, name, "restored")["path"], str(bus.runtime / name))
                self.assertEqual((bus.runtime / name).stat().st_mode & 0o777, 0o600)
                self.assertReachable(bus, origin, client)

    def test_a_removed_runtime_folder_is_made_again_with_all_that_was_in_it(self):
        with Origin() as origin, Bus(workers=1) as bus:
            client = bus.client()
            client.query("ping")
            # Cache and durable storage create their files beside the loop.
            names = ["cache/cache.lock", "cache/index.sqlite-wal", "cache/index.sqlite-shm", "cache/salt", "cache/bodies",
                     "durable/durable.lock", "durable/requests.sqlite-wal", "durable/requests.sqlite-shm", "durable/bodies"]
            eventually(lambda: all((bus.runtime / name).exists() for name in names), "the stores are open")
            self.remove(bus, bus.runtime)
            self.await_fault(client, "bus", "restored")
            self.await_fault(client, "work", "restored")
            self.assertEqual(bus.runtime.stat().st_mode & 0o777, 0o700)
            self.assertReachable(bus, origin, client)
            again = bus.run("serve", "--runtime", bus.runtime, "--spool", bus.folder / "another")
            self.assertEqual(again.status, 73, again.describe())
            # The next time as well.
            bus.runtime.rename(bus.folder / "moved")
            eventually(lambda: self.faults(client)["bus"]["count"] == 2, "it is told of twice")
            self.assertReachable(bus, origin, client)

    def test_a_place_that_another_took_meanwhile_is_left_to_it(self):
        with Bus(workers=1) as bus:
            client = bus.client()
            client.query("ping")
            bus.runtime.rename(bus.folder / "moved")
            bus.runtime.mkdir(0o755)
            fault = self.await_fault(client, "runtime", "lost")
            self.assertIn("chmod 700", fault["reason"])
            self.assertEqual(list(bus.runtime.iterdir()), [])
            bus.runtime.rmdir()
            self.await_fault(client, "bus", "restored")

    def test_callers_that_waited_at_the_old_socket_are_served(self):
        with Bus(workers=1) as bus:
            with socket.socket(socket.AF_UNIX) as caller:
                caller.connect(str(bus.runtime / "bus"))
                (bus.runtime / "bus").unlink()
                caller.settimeout(60)
                self.assertEqual(caller.recv(1), zmtp.GREETING[:1])
