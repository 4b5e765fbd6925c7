"""The sandbox of workers: its state, its settings, and what it must not disturb. `test_confined` tries system calls in it."""

import os
import re
import shutil
import signal
import socket
import struct
import unittest
from contextlib import contextmanager

from support.harness import Bus, TestCase, remove_folder, temporary_folder
from support.injection import IS_SUPPORTED, LANDLOCK, Injected
from support.origin import Origin
from support.processes import eventually

READ, CREATE = os.O_RDONLY, os.O_WRONLY | os.O_CREAT
OTHER_USER = 65534


def unix_address(path):
    return struct.pack("<H", socket.AF_UNIX) + os.fsencode(path) + b"\0"


def is_filtered(pid):
    """Whether a process has a filter of system calls."""
    return "Seccomp:\t2" in open(f"/proc/{pid}/status").read()


@unittest.skipUnless(IS_SUPPORTED, "system calls are injected on x86-64 only")
class HostileCodeTests(TestCase):
    def setUp(self):
        self.folder = temporary_folder()
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / ".ssh").mkdir()
        for name in ("secret", ".ssh/id", "other-user"):
            (self.folder / name).write_text("secret")
            (self.folder / name).chmod(0o600)
        if not os.geteuid():
            os.chown(self.folder / "other-user", OTHER_USER, OTHER_USER)

    def bus(self, *arguments):
        """A bus with a cache and durable requests."""
        folder = self.folder / "bus"
        folder.mkdir()
        stores = ["--cache-folder", self.folder / "cache", "--durable-folder", self.folder / "durable"]
        return Bus(workers=1, folder=folder, arguments=[*stores, *arguments])

    @contextmanager
    def hostile(self, bus):
        """The only worker of a bus, with injected code. A worker enters its sandbox with its first LIMITS."""
        eventually(lambda: bus.status()["workers"][0]["sandbox"] != "off", "the worker is in its sandbox")
        with Injected(bus.workers[0]) as injected:
            yield injected

    def files(self, bus):
        """Files that this user can open, and that a worker never needs."""
        found = [self.folder / name for name in ("secret", ".ssh/id", "cache/index.sqlite", "durable/requests.sqlite")]
        found += [bus.runtime / "broker.lock", f"/proc/{bus.broker}/environ", f"/proc/{bus.broker}/mem", "/etc/passwd"]
        if not os.geteuid():
            found += [self.folder / "other-user", "/etc/shadow", "/proc/1/environ", "/root/.bashrc"]
        return [path for path in found if os.access(path, os.R_OK) and self.opens(path)]

    @staticmethod
    def opens(path):
        try:
            os.close(os.open(path, READ))
            return True
        except OSError:
            return False

    def test_it_cannot_be_a_client_of_the_next_broker(self):
        with self.bus() as bus:
            first = bus.broker
            try:
                with self.hostile(bus) as worker:
                    # The worker stands still, so it does not connect as a worker.
                    os.kill(first, signal.SIGKILL)
                    eventually(lambda: bus._pids("broker") not in ([], [first]), "another broker runs")
                    # The supervisor would kill a worker that stands still.
                    os.kill(bus.supervisor, signal.SIGSTOP)
                    client = worker.call("socket", socket.AF_UNIX, socket.SOCK_STREAM, 0)
                    address = unix_address(bus.runtime / "bus")
                    eventually(lambda: worker.outcome("connect", client, address, len(address)) is None, "it is connected")
                    bus.program.await_line("a worker may not be a client")
                    worker.call("close", client)
            finally:
                os.kill(bus.supervisor, signal.SIGCONT)

    def test_without_the_sandbox_the_same_calls_succeed(self):
        with self.bus("--sandbox", "off") as bus:
            self.assertEqual(bus.status()["workers"][0]["sandbox"], "off")
            files = self.files(bus)
            with Injected(bus.workers[0]) as worker:
                for path in files:
                    self.assertIsNone(worker.outcome("open", path, READ, 0), path)
                self.assertIsNone(worker.outcome("open", self.folder / "new", CREATE, 0o600))
                self.assertIsNone(worker.outcome("chmod", self.folder / "secret", 0o640))
                self.assertIsNone(worker.outcome("kill", bus.broker, 0))
                self.assertIsNone(worker.outcome("setuid", os.getuid()))


class SandboxedWorkerTests(TestCase):
    @unittest.skipUnless(LANDLOCK, "the kernel has no Landlock")
    def test_the_state_of_the_sandbox_is_reported_and_logged(self):
        with Bus(workers=1, arguments=["--log-level", "debug"]) as bus:
            eventually(lambda: re.fullmatch(r"landlock \d+ and seccomp", bus.status()["workers"][0]["sandbox"]), "it is reported")
            status = open(f"/proc/{bus.workers[0]}/status").read()
            self.assertIn("Seccomp:\t2", status)
            self.assertIn("NoNewPrivs:\t1", status)
            self.assertNotIn("sandbox of the workers is incomplete", bus.program.stderr)

    def test_a_change_of_the_setting_concerns_workers_that_start_later(self):
        with Origin() as origin, Bus(workers=1) as bus:
            first, = bus.workers
            self.assertEqual(bus.run("set", "sandbox", "off").status, 0)
            eventually(lambda: bus.status()["workers"][0]["sandbox"] != "off", "the first worker keeps its sandbox")
            os.kill(first, signal.SIGKILL)
            eventually(lambda: bus.workers != [first] and [worker for worker in bus.status()["workers"] if worker["pid"] == bus.workers[0]],
                       "another worker is connected")
            client = bus.client()
            client.fetch("h", 1, f"{origin.url}/bytes/1")
            self.assertEqual(client.terminal().verb, "RESULT")
            self.assertEqual(bus.status()["workers"][0]["sandbox"], "off")
            self.assertFalse(is_filtered(bus.workers[0]))

    @unittest.skipUnless(LANDLOCK, "the kernel has no Landlock")
    def test_a_spool_that_replaces_another_one_is_used_by_a_new_worker(self):
        with Origin() as origin, Bus(workers=1, crashes=True) as bus:
            first, = bus.workers
            client = bus.client()
            client.fetch("h", 1, f"{origin.url}/bytes/200000")
            self.assertEqual(client.terminal().verb, "RESULT")
            # A file created meanwhile would stop the removal.
            remove_folder(bus.spool.rename(bus.folder / "removed"))
            eventually(lambda: bus.workers != [first], "another worker runs")
            client.fetch("h", 2, f"{origin.url}/bytes/200001")
            self.assertEqual(client.terminal().verb, "RESULT")

    @unittest.skipUnless(IS_SUPPORTED, "system calls are injected on x86-64 only")
    def test_a_crash_in_the_sandbox_is_reported_and_ends_the_worker(self):
        with Bus(workers=1, crashes=True) as bus:
            first, = bus.workers
            with Injected(first) as worker:
                worker.crash()
            bus.program.await_line(f"worker ({first}) ended with signal {signal.SIGSEGV.value}")

    def test_the_certificates_of_the_bus_are_used_in_the_sandbox(self):
        from support import certificate
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        trusted, key = certificate.self_signed(folder)
        with Origin(certificate=(trusted, key)) as origin, Bus(workers=1, arguments=["--ca-file", trusted]) as bus:
            client = bus.client()
            client.fetch("h", 1, f"{origin.url}/bytes/5")
            self.assertEqual(client.terminal().verb, "RESULT")
            trusted.unlink()
            client.fetch("h", 2, f"{origin.url}/bytes/6")
            self.assertEqual(client.terminal().verb, "RESULT")

    @unittest.skipIf(os.geteuid(), "only root can mount")
    def test_a_replaced_hosts_file_counts(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        etc = shutil.copytree("/etc", folder / "etc", symlinks=True, ignore_dangling_symlinks=True)
        hosts = etc / "hosts"
        hosts.write_text("127.0.0.1 first.test\n")
        mount = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc && exec "$@"', etc]
        with Origin() as origin, Bus(workers=1, prefix=mount, arguments=["--dns-server", "127.0.0.1:9"]) as bus:
            client = bus.client()

            def fetch(name):
                client.fetch("h", name, f"http://{name}:{origin.url.rpartition(':')[2]}/bytes/5", retries=0)
                return client.terminal(timeout=30).verb

            self.assertEqual(fetch("first.test"), "RESULT")
            # The worker keeps the answer for a name that it did not find, so each look-up is for another one. The broker looks at
            # the file once a second, in which some hundred fail.
            for replacement in ("second", "third"):
                names = [f"{replacement}-{number}.test" for number in range(4_000)]
                lines = "".join(f"127.0.0.1 {name}\n" for name in names)
                (etc / "hosts.new").write_text(f"127.0.0.1 other.test # a comment\n{lines}")
                os.replace(etc / "hosts.new", hosts)
                eventually(lambda: fetch(names.pop()) == "RESULT", f"a name of the {replacement} file is found")

    def test_a_changed_certificate_file_counts_for_the_next_request(self):
        from support import certificate
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        (folder / "a").mkdir()
        (folder / "b").mkdir()
        right, key = certificate.self_signed(folder / "a")
        wrong, _ = certificate.self_signed(folder / "b")
        trusted = folder / "trusted.pem"
        with Origin(certificate=(right, key)) as origin, Bus(workers=1) as bus:
            client = bus.client()

            def fetch(number):
                client.fetch("h", number, f"{origin.url}/bytes/{number}", ca_file=trusted, retries=0)
                answer = client.terminal()
                return answer.verb if answer.verb == "RESULT" else answer.operands[2]

            self.assertEqual(fetch(1), "tls", "it is missing")
            for number, (source, end) in enumerate(((right, "RESULT"), (wrong, "tls"), (right, "RESULT")), 2):
                # In place, and with the same length.
                with open(trusted, "wb") as file:
                    file.write(source.read_bytes().ljust(4096, b"\n"))
                self.assertEqual(fetch(number), end)
            os.replace(shutil.copy(wrong, folder / "new.pem"), trusted)
            self.assertEqual(fetch(9), "tls")
            # More files than a worker keeps.
            for number in range(10, 50):
                trusted = shutil.copy(right, folder / f"{number}.pem")
                self.assertEqual(fetch(number), "RESULT")
            trusted = folder / "10.pem"
            self.assertEqual(fetch(51), "RESULT")


if __name__ == "__main__":
    unittest.main()
