"""Operation as a service: notifications of `earshot serve` to a service manager, and the unit files."""

import os
import pathlib
import select
import shutil
import signal
import socket
import statistics
import subprocess
import time
import unittest

from support.client import Client
from support.harness import ROOT, TestCase, binary, temporary_folder, web
from support.origin import Origin, body
from support.processes import children, command, eventually, kill
from support.service import Service, clock_microseconds, environment

UNITS = ROOT / "examples" / "systemd"


class ServiceTests(TestCase):
    def serve(self, **options):
        service = Service(**options)
        self.addCleanup(shutil.rmtree, service.folder, ignore_errors=True)
        return self.enterContext(service.running())

    def child(self, service, role):
        return eventually(lambda: [p for p in children(service.program.pid) if role in command(p)[1:2]], role)[0]

    def test_it_is_ready_when_broker_and_workers_are(self):
        service = self.serve(workers=3)
        service.notify.expect("READY", "1")
        with Client(service.runtime) as client:
            workers = client.query("workers")["workers"]
            self.assertEqual([worker["phase"] for worker in workers], ["ready"] * 3)
        self.assertEqual([v for v in service.notify.received if "READY" in v], service.notify.received[-1:], "and not before")
        self.assertEqual(service.notify.received[-1]["STATUS"], "serving with 3 of 3 workers")

    def test_an_abstract_socket_is_spoken_to_as_well(self):
        self.serve(abstract=True).notify.expect("READY", "1")

    def test_children_do_not_know_of_the_service_manager(self):
        service = self.serve(watchdog=30)
        service.notify.expect("READY", "1")
        for pid in children(service.program.pid):
            found = environment(pid)
            self.assertEqual([v for v in found if v in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")], [])
            self.assertIn("RUNTIME_DIRECTORY", found, "the rest is theirs too")

    def test_it_uses_the_folders_of_the_service(self):
        with Origin() as origin:
            service = self.serve()
            service.notify.expect("READY", "1")
            with Client(service.runtime) as client:
                client.fetch("a", 1, f"{origin.url}/bytes/100000")
                answer = client.terminal()
                self.assertResult(answer, body(100_000))
                self.assertEqual(pathlib.Path(answer.fields["file"]).parent, service.cache / "spool")
                self.assertTrue((service.cache / "cache").is_dir())
                broker = command(self.child(service, "broker"))
                self.assertEqual(broker[broker.index("--parts-folder") + 1], str(service.cache / "parts"))

    def test_an_argument_and_the_programs_own_variable_are_stronger_than_the_services_folder(self):
        for variables, arguments in (({"EARSHOT_RUNTIME": "own"}, []), ({}, ["--runtime", "own"])):
            service = Service()
            self.addCleanup(shutil.rmtree, service.folder, ignore_errors=True)
            service.environment.update(variables)
            program = service.start("serve", "--workers", "1", *arguments)
            program.await_line("earshot: ready")
            self.assertTrue((service.folder / "own" / "bus").is_socket())
            self.assertFalse((service.folder / "run").exists())
            program.kill()
            service.await_no_survivors()
            service.notify.close()

    def test_a_reload_is_told_with_its_moment_and_its_end(self):
        service = self.serve()
        service.notify.expect("READY", "1")
        before = clock_microseconds()
        service.program.signal(signal.SIGHUP)
        moment = int(service.notify.expect("RELOADING", "1")["MONOTONIC_USEC"])
        self.assertTrue(before <= moment <= clock_microseconds(), (before, moment))
        service.notify.expect("READY", "1")

    def test_a_reload_of_a_wrong_file_ends_too(self):
        service = self.serve()
        service.notify.expect("READY", "1")
        (service.folder / "config" / "earshot").mkdir(parents=True)
        (service.folder / "config" / "earshot" / "config.toml").write_text("slots = 'many'\n")
        service.program.signal(signal.SIGHUP)
        service.notify.expect("RELOADING", "1")
        service.notify.expect("READY", "1")

    def test_its_end_is_told_with_the_time_it_may_take(self):
        service = self.serve()
        service.notify.expect("READY", "1")
        service.program.signal(signal.SIGTERM)
        stopping = service.notify.expect("STOPPING", "1")
        self.assertEqual(stopping["EXTEND_TIMEOUT_USEC"], "15000000", "drain-seconds, 3 to be killed and 2 in reserve")
        self.assertEqual(service.program.wait(), 0, service.program.describe())

    def test_the_watchdog_hears_of_life_twice_in_its_time(self):
        service = self.serve(watchdog=1)
        service.notify.expect("READY", "1")

        def pause():
            moments = []
            for _ in range(8):
                service.notify.expect("WATCHDOG", "1")
                moments.append(time.monotonic())
            # The median: a pause in which a process was not scheduled is longer, and the next ones shorter.
            return statistics.median(later - earlier for earlier, later in zip(moments, moments[1:]))
        self.assertTrue(any(0.3 < pause() < 0.8 for _ in range(5)))

    def test_the_watchdog_hears_nothing_of_a_broker_that_hangs(self):
        service = self.serve(watchdog=0.4)
        service.notify.expect("WATCHDOG", "1")
        broker = self.child(service, "broker")
        os.kill(broker, signal.SIGSTOP)
        # Notifications sent before it stopped may arrive late; then none arrives for three times its interval.
        service.notify.pending()
        self.assertTrue(any(service.notify.next(1.2) is None for _ in range(5)), service.notify.received)
        os.kill(broker, signal.SIGCONT)
        service.notify.expect("WATCHDOG", "1")

    def test_the_watchdog_of_another_process_is_not_ours(self):
        service = Service(watchdog=0.2)
        self.addCleanup(shutil.rmtree, service.folder, ignore_errors=True)
        service.environment["WATCHDOG_PID"] = "1"
        with service.running():
            service.notify.expect("READY", "1")
            self.assertIsNone(service.notify.next(0.6))

    def test_its_line_tells_of_a_worker_that_is_missing(self):
        service = self.serve()
        service.notify.expect("READY", "1")
        for _ in range(3):
            kill(self.child(service, "worker"))
            # The next one may have started before this check; after another death it starts later.
            if self.has_status(service, "serving with 1 of 2 workers"):
                break
        else:
            self.fail(f"it is not told: {service.notify.received}")
        service.notify.expect("STATUS", "serving with 2 of 2 workers")

    def test_the_first_connection_to_a_socket_of_the_service_manager_waits_for_the_bus(self):
        service = Service(workers=1)
        self.addCleanup(shutil.rmtree, service.folder, ignore_errors=True)
        service.runtime.mkdir(mode=0o700)
        listener = self.enterContext(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        listener.bind(str(service.runtime / "bus"))
        listener.listen()
        with Origin() as origin:
            # No lock is held, but a service manager listens. The command connects to it, and no private bus starts.
            service.environment["EARSHOT_RUNTIME"] = str(service.runtime)
            get = service.start("get", "--no-spawn", f"{origin.url}/bytes/9")
            self.assertTrue(select.select([listener], [], [], 60)[0], "the command connects")
            service.start_with(listener, "serve", "--workers", "1")
            self.addCleanup(service.program.kill)
            service.program.await_line("earshot: ready")
            self.assertEqual(get.wait(), 0, get.describe())
            inode = (service.runtime / "bus").stat().st_ino
            # A new broker listens with the same socket.
            kill(self.child(service, "broker"))
            service.program.await_line("starting another")
            again = service.start("get", f"{origin.url}/bytes/10")
            self.assertEqual(again.wait(), 0, again.describe())
            self.assertEqual((service.runtime / "bus").stat().st_ino, inode)
            service.program.signal(signal.SIGTERM)
            self.assertEqual(service.program.wait(), 0)
        self.assertEqual((service.runtime / "bus").stat().st_ino, inode, "it belongs to the service manager")

    def test_a_socket_elsewhere_is_wrong_configuration(self):
        service = Service(workers=1)
        self.addCleanup(shutil.rmtree, service.folder, ignore_errors=True)
        listener = self.enterContext(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        listener.bind(str(service.folder / "elsewhere"))
        listener.listen()
        service.start_with(listener, "serve", "--workers", "1")
        self.assertEqual(service.program.wait(), 78, service.program.describe())
        self.assertIn("correct ListenStream=", service.program.stderr)

    def has_status(self, service, status):
        """Returns whether it soon reports this state."""
        while (variables := service.notify.next(30)) is not None:
            if variables.get("STATUS") == status:
                return True
        return False

    def test_a_private_bus_of_a_service_does_not_speak_for_it(self):
        with Origin() as origin:
            service = Service()
            self.addCleanup(shutil.rmtree, service.folder, ignore_errors=True)
            got = service.run("get", "--runtime", service.folder / "none", f"{origin.url}/bytes/9")
            self.assertEqual(got.stdout, body(9), got.describe())
            self.assertEqual(service.notify.pending(), [])
            service.notify.close()

    def test_what_is_no_socket_is_said_so(self):
        service = Service()
        self.addCleanup(shutil.rmtree, service.folder, ignore_errors=True)
        service.notify.close()
        service.environment["NOTIFY_SOCKET"] = "vsock:2:1"
        got = service.run("serve")
        self.assertEqual(got.status, 5, got.describe())
        self.assertIn("NOTIFY_SOCKET", got.stderr)


@unittest.skipUnless(shutil.which("systemd-analyze"), "no systemd-analyze: Debian's package systemd has it")
class UnitTests(TestCase):
    def test_systemd_finds_nothing_wrong_with_the_units(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        units = sorted(UNITS.glob("*.service"))
        self.assertEqual([unit.name for unit in units],
                         ["earshot-shared.service", "earshot-web.service", "earshot-web@.service", "earshot.service", "earshot@.service"])
        for unit in units:
            text = unit.read_text()
            self.assertIn("/usr/local/bin/earshot", text)
            copy = folder / unit.name.replace("@", "@daemon")
            copy.write_text(text.replace("/usr/local/bin/earshot-web", web()).replace("/usr/local/bin/earshot", binary()))
            scope = [] if "User=" in text else ["--user"]
            found = subprocess.run(
                ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *scope, copy], text=True,
                capture_output=True, timeout=60, env={**os.environ, "XDG_RUNTIME_DIR": str(folder)})
            self.assertEqual((found.returncode, found.stdout + found.stderr), (0, ""))
