"""`earshot serve`: its children are started, die and are restarted as expected; it ends cleanly and sleeps when idle."""

import os
import pathlib
import resource
import select
import signal
import stat
import time

from support.harness import Bus, TestCase
from support.origin import Origin, body
from support.processes import Watched, eventually, kill, wakeups


class SupervisorTests(TestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin())

    def test_all_die_with_a_killed_supervisor(self):
        with Bus() as bus:
            family = [Watched(pid) for pid in bus.family()]
            self.assertEqual(len(family), 4)
            bus.program.kill()
            for process in family:
                self.assertTrue(process.await_death(), f"{process.pid} outlived its supervisor")
                process.close()

    def test_a_dead_worker_is_replaced(self):
        with Bus() as bus:
            client = bus.client()
            first, second = bus.workers
            kill(first)
            eventually(lambda: first not in bus.workers, "another worker")
            self.assertIn(second, bus.workers)
            wanted = sorted(bus.workers)
            eventually(lambda: sorted(w["pid"] for w in client.query("status")["workers"]) == wanted,
                       lambda: f"the broker knows {wanted}: {client.query('status')['workers']}")

    def test_a_dead_broker_is_replaced_and_finds_the_workers(self):
        def finds(number):
            workers, broker = bus.workers, bus.broker
            kill(broker)
            eventually(lambda: bus.broker != broker, "another broker")
            got = bus.run("get", "--no-spawn", f"{self.origin.url}/bytes/70000?{number}")
            self.assertTrue(got.stdout == body(70_000), got.describe())
            if bus.workers != workers:
                self.assertIn("a worker of the earlier broker does not answer: it is killed", bus.program.stderr)
            return bus.workers == workers

        with Bus() as bus:
            # The broker has a worker killed that stands still for a second after its start.
            self.assertTrue(any(finds(number) for number in range(5)), "the same workers")

    def test_a_second_serve_on_the_same_folder_is_refused_and_harms_nothing(self):
        with Bus() as bus:
            broker = bus.broker
            second = bus.run("serve", "--runtime", bus.runtime, "--spool", bus.spool, "--workers", "1")
            self.assertNotEqual(second.status, 0)
            self.assertGreater(second.status, 0, second.describe())
            self.assertNotIn("ready", second.stderr)
            self.assertTrue(second.stderr)
            self.assertEqual(bus.broker, broker)
            self.assertEqual(bus.run("get", "--no-spawn", f"{self.origin.url}/bytes/8").stdout, body(8))

    def test_SIGTERM_lets_running_work_finish(self):
        with Bus(arguments=["--drain-seconds", "600"]) as bus:
            client = bus.client()
            client.fetch("drain", 1, f"{self.origin.url}/gate/drain?bytes=90000")
            self.origin.await_count("/gate/drain", 1)
            bus.program.signal(15)
            self.assertEqual(client.expect("GOODBYE").fields["reason"], "draining")
            self.assertTrue(bus.program.running)
            self.origin.open_gate("drain")
            self.assertResult(client.terminal(), body(90_000))
            self.assertEqual(bus.program.wait(), 0, bus.program.describe())
            bus.await_no_survivors()

    def test_a_second_SIGTERM_stops_now(self):
        with Bus(arguments=["--drain-seconds", "600"]) as bus:
            client = bus.client()
            client.fetch("stop", 1, f"{self.origin.url}/hang")
            self.origin.await_count("/hang", 1)
            bus.program.signal(15)
            client.expect("GOODBYE")
            # The first one alone would let it run for ten minutes.
            bus.program.signal(15)
            self.assertEqual(bus.program.wait(), 0, bus.program.describe())
            bus.await_no_survivors()
            self.origin.await_aborts("/hang")

    def test_a_child_that_does_not_end_is_killed(self):
        with Bus(workers=1, arguments=["--drain-seconds", "0.5"]) as bus:
            worker = Watched(bus.workers[0])
            worker.signal(signal.SIGSTOP)
            began = time.monotonic()
            bus.program.signal(signal.SIGTERM)
            self.assertEqual(bus.program.wait(), 0, bus.program.describe())
            self.assertTrue(worker.await_death(0))
            # drain-seconds and the 3 s in which processes may end after SIGTERM.
            seconds = time.monotonic() - began
            self.assertGreater(seconds, 3.4, "it has the time that is stated")
            if os.environ.get("EARSHOT_LONG"):
                self.assertLess(seconds, 12, "drain-seconds is 10 by default")
            worker.close()

    def test_a_broker_that_does_not_end_is_killed(self):
        with Bus(workers=1, arguments=["--drain-seconds", "0.5"]) as bus:
            broker = Watched(bus.broker)
            broker.signal(signal.SIGSTOP)
            bus.program.signal(signal.SIGTERM)
            self.assertEqual(bus.program.wait(), 0, bus.program.describe())
            self.assertTrue(broker.await_death(0))
            broker.close()
            bus.await_no_survivors()

    def test_what_waits_at_its_end_is_not_answered(self):
        with Bus(workers=1, slots=1, arguments=["--drain-seconds", "600"]) as bus:
            client = bus.client()
            client.fetch("drain", "runs", f"{self.origin.url}/gate/drain?bytes=10")
            self.origin.await_count("/gate/drain", 1)
            client.fetch("drain", "waits", f"{self.origin.url}/bytes/10")
            client.query("ping")
            bus.program.signal(signal.SIGTERM)
            self.assertEqual(client.expect("GOODBYE").fields["reason"], "draining")
            client.fetch("drain", "late", f"{self.origin.url}/bytes/11")
            self.assertFailed(client.terminal(), "stopping")
            self.origin.open_gate("drain")
            self.assertEqual(client.terminal().id, ("drain", "runs"))
            self.assertEqual(bus.program.wait(), 0, bus.program.describe())
            self.assertIsNone(client.receive(0), "nothing of what waited")
            self.assertEqual(self.origin.count("/bytes/10"), 0)

    def test_its_processes_have_names_and_no_more_than_they_need(self):
        with Bus(workers=1) as bus:
            client = bus.client()
            eventually(lambda: client.query("workers")["workers"], "the worker has begun")
            names = {pid: pathlib.Path(f"/proc/{pid}/comm").read_text().strip() for pid in bus.family()}
            self.assertEqual(list(names.values()), ["earshot", "earshot-broker", "earshot-worker"])
            for pid in (bus.broker, bus.workers[0]):
                self.assertEqual(resource.prlimit(pid, resource.RLIMIT_CORE), (0, 0))
                self.assertIn("NoNewPrivs:\t1", pathlib.Path(f"/proc/{pid}/status").read_text())

    def test_a_worker_that_is_no_child_says_why_it_ends(self):
        with Bus(workers=1) as bus:
            worker = bus.run("worker", "--runtime", bus.runtime)
            self.assertEqual(worker.status, 73, worker.describe())
            self.assertIn("takes only workers that its supervisor started", worker.stderr)

    def test_its_folder_and_sockets_are_the_users_alone(self):
        with Bus() as bus:
            self.assertEqual(stat.S_IMODE(os.stat(bus.runtime).st_mode), 0o700)
            self.assertEqual(stat.S_IMODE(os.stat(bus.spool).st_mode), 0o700)
            for endpoint in ("bus", "work"):
                self.assertEqual(stat.S_IMODE(os.stat(bus.runtime / endpoint).st_mode), 0o600)

    def test_a_path_too_long_for_a_socket_is_said_so(self):
        with Bus() as bus:
            got = bus.run("serve", "--runtime", bus.folder / ("long" * 40), "--workers", "1")
            self.assertGreater(got.status, 0, got.describe())
            self.assertIn("107", got.stderr)


class IdleTests(TestCase):
    SECONDS = 2
    LIMIT = 2 * SECONDS

    def test_an_idle_bus_sleeps(self):
        with Bus(workers=2) as bus, Origin() as origin:
            # Used first, so that the effects of use (a connection, a timer) are measured too.
            self.assertEqual(bus.run("get", f"{origin.url}/bytes/9").stdout, body(9))
            family = bus.family()
            supervisor = os.pidfd_open(bus.supervisor)
            # The client's disconnection is not idleness: a second for its connection to close.
            select.select([supervisor], [], [], 1)
            windows = []
            # A window in which this process was not scheduled is longer.
            while len(windows) < 3 and not (windows and max(windows[-1]) <= self.LIMIT):
                before = [wakeups(pid) for pid in family]
                self.assertEqual(select.select([supervisor], [], [], self.SECONDS)[0], [], "the supervisor died")
                windows.append([wakeups(pid) - count for pid, count in zip(family, before)])
            os.close(supervisor)
            self.assertLessEqual(max(windows[-1]), self.LIMIT, f"supervisor, broker and workers in {self.SECONDS} s: {windows}")
