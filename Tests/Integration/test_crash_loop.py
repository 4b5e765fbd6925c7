"""Crash loops: restarts back off, the state is reported, and it ends by itself."""

import json
import re

from support.harness import Bus, TestCase
from support.origin import Origin, body
from support.processes import eventually, kill

RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
QUICK_DEATHS = 5
GOOD_LIFE = 10


class CrashLoopTests(TestCase):
    def failing(self, client):
        return client.query("workers")["failing"]

    def await_failing(self, client, deaths):
        def found():
            failing = self.failing(client)
            return failing if [f["deaths"] for f in failing] == [deaths] else None
        return eventually(found, lambda: f"{deaths} deaths are told: {self.failing(client)}")[0]

    def test_workers_that_die_quickly_are_told_of_once_and_forgotten_when_one_lives(self):
        with Bus(workers=1) as bus, Origin() as origin:
            client = bus.client()
            self.assertEqual(self.failing(client), [])
            for _ in range(QUICK_DEATHS):
                self.assertEqual(self.failing(client), [])
                kill(bus.workers[0])
            failure = self.await_failing(client, QUICK_DEATHS)
            self.assertEqual((failure["role"], failure["last-end"]), ("worker", "signal 9"))
            self.assertRegex(failure["since"], RFC3339)
            kill(bus.workers[0])
            again = self.await_failing(client, QUICK_DEATHS + 1)
            self.assertEqual(again["since"], failure["since"])
            self.assertEqual(json.loads(bus.await_status("--json"))["failing"], [again])
            self.assertIn("role worker, deaths 6, last-end signal 9", bus.await_status().decode())

            self.assertTrue(bus.workers, "it goes on trying")
            bus.program.await_line("a worker has recovered", timeout=GOOD_LIFE + 60)
            eventually(lambda: not self.failing(client), "the failure is forgotten")
            self.assertFalse((bus.runtime / "failing").exists())
            client.fetch("a", 1, f"{origin.url}/bytes/9")
            self.assertResult(client.terminal(), body(9))
            lines = [line for line in bus.program.stderr.splitlines() if "in a row" in line]
            self.assertEqual(len(lines), 1, lines)
            deaths = [line for line in bus.program.stderr.splitlines() if "ended with signal 9" in line]
            self.assertEqual(len(deaths), QUICK_DEATHS, "the sixth death is not told")

    def test_a_broker_that_cannot_serve_is_told_of_though_nobody_answers(self):
        with Bus(workers=1) as bus, Origin() as origin:
            kept = bus.spool.rename(bus.folder / "kept")
            bus.spool.write_text("no folder")
            kill(bus.broker)
            bus.program.await_line("in a row")
            # The state is reported there shortly after it is logged.
            eventually(lambda: (bus.runtime / "failing").exists(), "there is word of it")
            status = bus.run("status")
            self.assertEqual(status.status, 69, status.describe())
            self.assertRegex(status.stderr, rf"the broker ended \d+ times in a row since {RFC3339.pattern}, last with "
                                            "exit code")
            bus.spool.unlink()
            kept.rename(bus.spool)
            # At once: a broker that has lived for some seconds is no longer reported.
            status = json.loads(bus.await_status("--json"))
            self.assertEqual([f["role"] for f in status["failing"]], ["broker"])
            self.assertEqual(bus.run("get", "--no-spawn", f"{origin.url}/bytes/9").stdout, body(9))
