"""Workers and brokers die during transfers; every request gets one result."""

import json
import os
import shutil
import signal

from support.harness import Bus, TestCase, temporary_folder
from support.origin import Origin, body
from support.processes import Watched, eventually, kill, started_at


#: Signal of a worker that crashes, as opposed to one that is killed from outside. No handler of it prints a backtrace.
CRASH = signal.SIGSYS


class WorkerDeathTests(TestCase):
    def test_50_transfers_of_a_killed_worker_are_all_answered_once(self):
        origins, each = 10, 5
        with Origin(ports=origins) as origin, Bus(workers=1, slots=80) as bus:
            client = bus.client()
            for index in range(origins * each):
                client.fetch("held", index, f"{origin.urls[index % origins]}/gate/held?bytes=900&seed={index}")
            origin.await_running(50)
            worker = bus.workers[0]
            kill(worker)
            origin.await_aborts("/gate/held", 50)
            origin.open_gate("held")
            answers = client.terminals(50)
            successor = bus.workers[0]
            self.assertNotEqual(successor, worker)
            self.assertEqual({m.id[1] for m in answers}, {str(i) for i in range(50)})
            for message in answers:
                self.assertResult(message, body(900, message.id[1]))
            self.assertEqual(client.rest(), [], "each once")
            # They must not wait for a heartbeat of the dead worker, or for a pause as after a failure of their own.
            self.assertEqual({message.fields["attempts"] for message in answers}, {"2"})
            if os.environ.get("EARSHOT_LONG"):
                self.assertLess(answers[-1].at - started_at(successor), 1.0, "seconds after the restart")
            self.assertEqual(origin.count("/gate/held"), 100)
            ledger = self.balance(client)
            self.assertEqual(ledger["deliveries"]["due"], 50)

    def test_a_url_that_kills_workers_is_given_up(self):
        with Origin() as origin, Bus(workers=1) as bus:
            client = bus.client()
            client.fetch("poison", 1, f"{origin.url}/hang", retries=10)
            for death in (1, 2, 3):
                origin.await_count("/hang", death)
                kill(bus.workers[0], CRASH)
            self.assertFailed(client.terminal(), "poisonous")
            client.fetch("poison", 2, f"{origin.url}/bytes/4")
            self.assertResult(client.terminal(), body(4))
            self.assertEqual(origin.count("/hang"), 3)

    def test_of_50_flights_only_the_one_that_kills_its_workers_is_poisonous(self):
        origins, each = 10, 5
        with Origin(ports=origins) as origin, Bus(workers=1, slots=80) as bus:
            client = bus.client()
            for index in range(origins * each - 1):
                client.fetch("held", index, f"{origin.urls[index % origins]}/gate/held?bytes=900&seed={index}")
            client.fetch("held", "killer", f"{origin.urls[-1]}/hang")
            for death in (1, 2, 3, 4):
                origin.await_count("/hang", death)
                if death == 1:
                    origin.await_running(50)
                elif death == 2:
                    origin.await_count("/gate/held", 98)
                kill(bus.workers[0], CRASH)
                if death == 2:
                    origin.open_gate("held")
            for answer in client.terminals(50):
                if answer.id[1] == "killer":
                    self.assertFailed(answer, "poisonous")
                else:
                    self.assertResult(answer, body(900, answer.id[1]))
            self.assertEqual(client.rest(), [], "each once")
            self.balance(client)

    def test_a_request_whose_worker_is_killed_from_outside_four_times_is_answered(self):
        with Origin() as origin, Bus(workers=1) as bus:
            client = bus.client()
            client.fetch("held", 1, f"{origin.url}/gate/held?bytes=900")
            for death in (1, 2, 3, 4):
                origin.await_count("/gate/held", death)
                kill(bus.workers[0])
            origin.await_count("/gate/held", 5)
            origin.open_gate("held")
            self.assertResult(client.terminal(), body(900))
            self.assertEqual(client.query("requests")["requests"], [])

    def test_a_kill_of_all_workers_at_once_fails_no_request(self):
        with Origin() as origin, Bus(workers=2) as bus:
            client = bus.client()
            for death in range(5):
                client.fetch("held", death, f"{origin.url}/gate/{death}?bytes=900&seed={death}")
                origin.await_running(1)
                workers = [Watched(pid) for pid in bus.workers]
                for worker in workers:
                    worker.signal(signal.SIGKILL)
                for worker in workers:
                    self.assertTrue(worker.await_death())
                    worker.close()
                origin.await_aborts(f"/gate/{death}", 1)
                origin.open_gate(str(death))
                self.assertResult(client.terminal(timeout=60), body(900, str(death)))
            self.balance(client)

    def test_no_half_file_stays_after_a_worker_or_all_of_them_were_killed(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)

        def files(bus):
            """Returns the files in the spool except its lock."""
            return sorted(str(p.relative_to(bus.spool)) for p in bus.spooled())

        with Origin() as origin:
            with Bus(workers=1, folder=folder) as bus:
                client = bus.client()
                client.fetch("half", 1, f"{origin.url}/stall/3000000", timeout=60)
                first = eventually(lambda: files(bus), "a file grows in the spool")
                kill(bus.workers[0])
                origin.await_count("/stall/3000000", 2)
                second = eventually(lambda: set(files(bus)) - set(first), "the next attempt writes its own")
                eventually(lambda: set(files(bus)) == second, lambda: f"the dead one's is gone: {files(bus)}")
                client.cancel("half", 1)
                eventually(lambda: not files(bus), lambda: f"an empty spool after the cancel: {files(bus)}")
                client.fetch("half", 2, f"{origin.url}/stall/4000000", timeout=60)
                eventually(lambda: files(bus), "a file grows in the spool")
                bus.kill()
            self.assertTrue(files(bus), "the kill left something to sweep")
            with Bus(workers=1, folder=folder) as bus:
                got = bus.run("get", f"{origin.url}/bytes/100000")
                self.assertTrue(got.stdout == body(100_000))
                eventually(lambda: not [f for f in files(bus) if f.endswith(".part")], "the next start sweeps it")
                self.assertLessEqual(len(files(bus)), 1, "only what was fetched whole")


class BrokerDeathTests(TestCase):
    COUNT = 1000
    FIRST = 300
    """Number of requests that complete without waiting: the broker dies in between, however late that is."""

    def urls(self, origin):
        return [f"{origin.url}/first/{self.FIRST}/rest?bytes=700&seed={index}" for index in range(self.COUNT)]

    def kill_after(self, bus, origin, requests):
        origin.await_total(requests)
        broker = bus.broker
        kill(broker)
        origin.open_gate("rest")
        return broker

    def test_a_client_that_asks_again_gets_all_1000_once(self):
        with Origin() as origin, Bus(workers=2, slots=32, origin_limit=32) as bus:
            client = bus.stubborn_client(window=2 * self.COUNT)  # It reads nothing until the broker was killed.
            for index, url in enumerate(self.urls(origin)):
                client.fetch("stubborn", index, url)
            workers = bus.workers
            first = client.broker
            killed = self.kill_after(bus, origin, self.FIRST)
            answers = client.collect()
            self.assertNotEqual(client.broker, first, "another broker instance")
            self.assertNotEqual(bus.broker, killed)
            self.assertEqual(bus.workers, workers, "the workers outlive a broker")
            self.assertEqual(sorted(int(request) for _, request in answers), list(range(self.COUNT)))
            for (_, request), messages in answers.items():
                self.assertEqual(len(messages), 1, messages)
                self.assertResult(messages[0], body(700, request))
            self.assertEqual([m for m in client.rest() if m.is_terminal], [])
            self.balance(client)

    def test_get_gets_all_1000_once(self):
        with Origin() as origin, Bus(workers=2, slots=32, origin_limit=32) as bus:
            urls = self.urls(origin)
            (bus.folder / "list").write_text("\n".join(urls) + "\n")
            out = bus.folder / "out"
            program = bus.start("get", "-i", bus.folder / "list", "-d", out, "--json")
            self.kill_after(bus, origin, self.FIRST)
            self.assertEqual(program.wait(60), 0, program.describe())
            written = [json.loads(line)["url"] for line in program.stdout.splitlines()]
            self.assertEqual(sorted(written), sorted(urls), "one line for each")
            found = {p.read_bytes() for p in out.iterdir()}
            self.assertEqual(len(list(out.iterdir())), self.COUNT)
            self.assertTrue(found == {body(700, index) for index in range(self.COUNT)}, "all bytes right")

    def test_a_transfer_is_not_run_twice_at_once_over_a_brokers_death(self):
        with Origin() as origin, Bus(workers=1) as bus:
            client = bus.stubborn_client()
            client.fetch("once", 1, f"{origin.url}/gate/once?bytes=50000")
            self.kill_after(bus, origin, 1)
            client.await_next_broker()
            origin.await_total(2)
            origin.open_gate("once")
            answers = client.collect()
            self.assertResult(answers[("once", "1")][0], body(50_000))
            self.assertEqual(origin.most_at_once, 1, "never two attempts at once")
