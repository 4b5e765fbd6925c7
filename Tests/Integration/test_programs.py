"""`earshot work`: URLs of custom schemes, served by a program; and users' workers across a broker's end."""

import os
import shutil
import signal
import time

from support.harness import Bus, Commands, TestCase, temporary_folder
from support.processes import Watched, command, eventually, kill

UPPER = 'printf %s "$1" | tr a-z A-Z'
# Reports that it runs, and continues when a line is written to the pipe named like its URL.
HELD = ': >"run-$$"; IFS= read -r line <"gate-${1#x:}"; rm "run-$$"; echo "$line"'


class ProgramTests(TestCase):
    def setUp(self):
        self.bus = self.enterContext(Bus(workers=1))
        self.client = self.bus.client()

    def serve(self, script, *options):
        """Starts a worker that runs a shell script, whose first argument is the URL, and waits until it serves."""
        worker = self.bus.start("work", "--scheme", "x", *options, "--", "sh", "-c", script, "sh")
        self.addCleanup(self.stop, worker)
        worker.await_line("serving x:")
        return worker

    def stop(self, worker):
        if worker.running:
            worker.signal(signal.SIGTERM)
        try:
            status = worker.wait()
        finally:
            if worker.running:
                worker.kill()
        self.assertFalse(worker.crash_lines, worker.describe())
        return status

    def pipe(self, name):
        os.mkfifo(self.bus.folder / name)

    def open_gate(self, name, line="open"):
        with open(self.bus.folder / f"gate-{name}", "w") as gate:
            gate.write(line + "\n")

    def runs(self):
        return [int(path.name.removeprefix("run-")) for path in self.bus.folder.glob("run-*")]

    def await_runs(self, count):
        return eventually(lambda: len(self.runs()) == count and self.runs(),
                          lambda: f"{count} programs run: {self.runs()}")

    def test_what_a_program_writes_is_the_answer(self):
        self.serve(UPPER, "--content-type", "text/plain")
        self.client.fetch("h", 1, "x:abc?d%20e&f;g$(h)")
        answer = self.client.terminal()
        self.assertResult(answer, b"X:ABC?D%20E&F;G$(H)")
        self.assertEqual([(name, value.strip()) for name, value in answer.headers], [("content-type", "text/plain")])

    def test_a_program_is_told_of_the_request_and_reads_its_body(self):
        self.serve('echo "$EARSHOT_URL $EARSHOT_METHOD $EARSHOT_PRIORITY $EARSHOT_MAX_BYTES $EARSHOT_RUNTIME";'
                   ' echo "$EARSHOT_HEADERS"; wc -c')
        self.client.fetch("h", 1, "x:y", headers=[("accept", "text/x")], body=bytes(100_000), method="POST",
                          coalesce="no", priority="high", max_bytes=500)
        output = self.client.terminal().content().decode().split("\n")
        self.assertEqual(output[0], f"x:y POST high 500 {self.bus.runtime}")
        self.assertIn("accept: text/x", output)
        self.assertEqual(output[-2].strip(), "100000")

    def test_a_large_body_is_a_file(self):
        self.serve("head -c 3000000 /dev/zero")
        self.client.fetch("h", 1, "x:y")
        answer = self.client.terminal()
        self.assertIn("file", answer.fields)
        self.assertResult(answer, bytes(3_000_000))

    def test_a_body_that_is_larger_than_allowed_ends_its_program(self):
        self.serve('echo $$ >pid; exec yes')
        self.client.fetch("h", 1, "x:y", max_bytes=1_000_000)
        self.assertFailed(self.client.terminal(), "too-large")
        pid = int((self.bus.folder / "pid").read_text())
        eventually(lambda: not command(pid), "the program is gone")

    def test_a_failure_has_the_last_words_and_the_code(self):
        worker = self.serve('echo first >&2; echo "no picture" >&2; echo >&2; exit ${1#x:}')
        for number, code in ((1, "worker-failed"), (28, "timeout"), (6, "unknown-host")):
            self.client.fetch("h", number, f"x:{number}", retries=0)
            failure = self.client.terminal()
            self.assertFailed(failure, code)
        self.client.fetch("h", "again", "x:1", retries=0)
        self.assertEqual(self.client.terminal().fields["detail"], "no picture")
        self.assertTrue(worker.running)

    def test_a_failure_that_may_pass_is_tried_again(self):
        self.serve('echo run >>runs; test $(wc -l <runs) -gt 1 || exit 56; echo done')
        self.client.fetch("h", 1, "x:y")
        self.assertResult(self.client.terminal(), b"done\n")

    def test_twenty_who_want_one_URL_share_one_run(self):
        self.pipe("gate-1")
        self.serve('echo run >>runs; ' + HELD)
        clients = [self.bus.client() for _ in range(20)]
        for number, client in enumerate(clients):
            client.fetch(f"h{number}", 1, "x:1")
        self.await_requests(self.client, pending=20)
        self.open_gate(1)
        for client in clients:
            self.assertResult(client.terminal(), b"open\n")
        self.assertEqual((self.bus.folder / "runs").read_text(), "run\n")

    def test_no_more_programs_run_than_there_are_slots(self):
        for number in range(6):
            self.pipe(f"gate-{number}")
        self.serve('echo "${1#x:}" >"now-$$"; ' + HELD + '; rm "now-$$"', "--slots", "2")
        for number in range(6):
            self.client.fetch("h", number, f"x:{number}")
        for left in range(6, 0, -1):
            pid = self.await_runs(min(2, left))[0]
            name = eventually(lambda: (self.bus.folder / f"now-{pid}").read_text().strip(), "its URL")
            self.open_gate(name)
            self.assertResult(self.client.terminal(), b"open\n")
            self.assertLessEqual(len(self.runs()), 2)

    def test_a_program_that_nobody_wants_any_more_ends_with_all_it_started(self):
        # It is asked to end before it would be killed.
        self.serve('sleep 1000 & echo $! >child; trap ": >trapped; exit" TERM; : >"run-$$"; wait')
        trapped = self.bus.folder / "trapped"
        for number in range(5):
            self.client.fetch("h", number, f"x:{number}")
            program = Watched(self.await_runs(1)[0])
            child = Watched(int((self.bus.folder / "child").read_text()))
            self.client.cancel("h", number)
            for process in (program, child):
                self.assertTrue(process.await_death(), f"{process.pid} lives")
                process.close()
            (self.bus.folder / f"run-{program.pid}").unlink()
            if trapped.exists():
                break
        self.assertTrue(trapped.exists())

    def test_a_program_that_will_not_end_is_killed_and_its_slot_is_taken_until_then(self):
        self.pipe("gate-1")
        self.pipe("gate-2")
        self.serve('trap "" TERM; for run in run-*; do kill -0 "${run#run-}" && : >both; done; ' + HELD, "--slots", "1")
        self.client.fetch("h", 1, "x:1")
        program = Watched(self.await_runs(1)[0])
        self.client.cancel("h", 1)
        self.client.fetch("h", 2, "x:2")
        self.assertTrue(program.await_death(), "it lives")
        program.close()
        eventually(lambda: len(self.runs()) == 2, "the next program runs")
        self.assertFalse((self.bus.folder / "both").exists())
        self.client.cancel("h", 2)

    def test_what_a_program_leaves_behind_is_killed_and_not_waited_for(self):
        self.serve('sleep 1000 & echo $! >child; echo done')
        self.client.fetch("h", 1, "x:y")
        self.assertResult(self.client.terminal(), b"done\n")
        pid = int((self.bus.folder / "child").read_text())
        eventually(lambda: not command(pid), "what it left is gone")

    def test_progress_is_told_while_a_program_writes(self):
        self.pipe("gate-1")
        self.serve('echo early; ' + HELD)
        self.client.fetch("h", 1, "x:1", progress=50, stream="yes")
        progress = self.client.expect("PROGRESS", "h", "1")
        self.assertEqual(progress.operands[2], "6/-")
        self.open_gate(1)
        self.assertResult(self.client.terminal(), b"early\nopen\n")

    def test_another_worker_goes_on_for_one_that_is_killed(self):
        self.pipe("gate-1")
        workers = {self.serve('echo $PPID >"parent"; ' + HELD).pid for _ in range(2)}
        self.client.fetch("h", 1, "x:1")
        first = self.await_runs(1)[0]
        parent = int((self.bus.folder / "parent").read_text())
        self.assertIn(parent, workers)
        os.kill(parent, signal.SIGKILL)
        kill(first)
        (self.bus.folder / f"run-{first}").unlink()
        second = self.await_runs(1)[0]
        self.assertNotEqual(first, second)
        self.open_gate(1)
        self.assertResult(self.client.terminal(), b"open\n")

    def test_a_worker_that_is_told_to_end_finishes_what_runs(self):
        self.pipe("gate-1")
        worker = self.serve(HELD)
        self.client.fetch("h", 1, "x:1")
        self.await_runs(1)
        worker.signal(signal.SIGTERM)
        self.open_gate(1)
        self.assertResult(self.client.terminal(), b"open\n")
        self.assertEqual(worker.wait(), 0)

    def test_a_second_signal_ends_what_runs(self):
        self.pipe("gate-1")
        worker = self.serve('trap "" TERM; ' + HELD)
        self.client.fetch("h", 1, "x:1")
        program = Watched(self.await_runs(1)[0])
        worker.signal(signal.SIGTERM)
        worker.signal(signal.SIGINT)
        self.assertEqual(worker.wait(), 0)
        self.assertTrue(program.await_death(), "it lives")
        program.close()

    def test_what_cannot_be_served_is_said_at_once(self):
        for arguments, status, words in (
                ((), 64, "--scheme"),
                (("--scheme", "x"), 64, "PROGRAM"),
                (("--scheme", "https", "--", "true"), 64, "reserved for the bus"),
                (("--scheme", "X", "--", "true"), 64, "invalid scheme"),
                (("--scheme", "x", "--slots", "0", "--", "true"), 64, "--slots"),
                (("--scheme", "x", "--", "no-such-program"), 66, "no-such-program"),
                (("--scheme", "x", "--runtime", self.bus.folder, "--", "true"), 69, "earshot serve")):
            with self.subTest(arguments):
                ended = self.bus.run("work", *arguments)
                self.assertEqual(ended.status, status, ended.describe())
                self.assertIn(words, ended.stderr)

    def test_after_a_broker_s_death_the_worker_serves_the_next_one(self):
        self.pipe("gate-1")
        worker = self.serve(HELD)
        client = self.bus.stubborn_client()
        client.fetch("h", "1", "x:1")
        first = Watched(self.await_runs(1)[0])
        kill(self.bus.broker)
        client.await_next_broker()
        # It abandons its work for the dead broker, and repeats it for the next one.
        self.assertTrue(first.await_death(), "the first run goes on")
        (self.bus.folder / f"run-{first.pid}").unlink()
        first.close()
        self.await_runs(1)
        self.open_gate(1)
        [answer] = client.collect()["h", "1"]
        self.assertResult(answer, b"open\n")
        self.assertTrue(worker.running)


class OutlivingTests(TestCase):
    def test_an_own_worker_outlives_serve_and_serves_the_next_one_before_it_is_back(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        with Bus(workers=1, folder=folder):
            outside = Commands(folder / "run", folder)
            worker = outside.start("work", "--scheme", "x", "--", "sh", "-c", UPPER, "sh")
            self.addCleanup(worker.kill)
            worker.await_line("serving x:")
        self.assertTrue(worker.running)
        began = time.monotonic()
        with Bus(workers=1, folder=folder) as bus:
            # The worker retries every 100 ms; a client connects as soon as there is a broker, which awaits the worker for
            # three seconds.
            client = bus.client()
            client.fetch("h", 1, "x:abc")
            answer = client.terminal()
            if answer.verb == "FAILED" and time.monotonic() - began > 0.5:
                self.assertFailed(answer, "unsupported-scheme")
                eventually(lambda: any(row["schemes"] == ["x"] for row in client.query("workers")["workers"]),
                           "it is back after all")
                client.fetch("h", 2, "x:abc")
                answer = client.terminal()
            self.assertResult(answer, b"X:ABC")
            worker.signal(signal.SIGTERM)
            self.assertEqual(worker.wait(), 0)
