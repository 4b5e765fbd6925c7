"""Background work: submit with a directory, a worker that waits, and the commands list, wait, stop, drain and cache clear."""

import functools
import json
import os
import pathlib
import shutil
import signal
import time
import unittest

from support.harness import Bus, Commands, TestCase, binary, temporary_folder
from support.origin import Origin
from support.processes import Program, eventually, kill, marked


class ListTests(TestCase):
    def test_requests_by_handler_state_and_origin(self):
        with Origin(ports=2) as origin, Bus(workers=1, origin_limit=1) as bus:
            first, second = origin.urls
            client = bus.client()
            client.fetch("list/a", 1, f"{first}/gate/one")
            client.fetch("list/a", 2, f"{first}/bytes/1?secret=word")
            client.fetch("list/b", 1, f"{second}/gate/two", priority="high")
            origin.await_running(2)
            rows = [json.loads(line) for line in bus.run("list", "--json").stdout.splitlines()]
            found = {(row["handler"], row["request"]): row for row in rows}
            self.assertEqual({key: row["state"] for key, row in found.items()},
                             {("list/a", "1"): "running", ("list/a", "2"): "queued", ("list/b", "1"): "running"})
            self.assertEqual(found["list/a", "2"]["url"], f"{first}/bytes/1", "without its query")
            self.assertEqual(found["list/b", "1"]["class"], "high")
            self.assertIn(found["list/b", "1"]["worker"], bus.workers)

            def lines(*arguments):
                return [line.split("\t") for line in bus.run("list", *arguments).stdout.decode().splitlines()]
            self.assertEqual([row[4:] for row in lines("list/b")], [["list/b", "1", f"{second}/gate/two"]])
            self.assertEqual([row[5] for row in lines("--state", "queued", "list/")], ["2"])
            self.assertEqual([row[4] for row in lines("--origin", second)], ["list/b"])
            self.assertEqual(len(lines("--limit", "2")), 2)
            self.assertEqual(lines("nothing/"), [])
            self.assertEqual(bus.run("list", "--state", "lost").status, 64)
            handlers = {row[6]: row[0] for row in lines("--handlers", "list/")}
            self.assertEqual(handlers, {"list/a": "2", "list/b": "1"})
            client.remove("list/")

    def test_a_long_queue_comes_in_pages(self):
        with Bus(workers=1) as bus:
            client = bus.client()
            for number in range(2_500):
                client.fetch("list/long", number, f"http://127.0.0.1:1/{number}", deadline=60)
            client.query("ping")
            lines = bus.run("list", "--json", "list/long").stdout.splitlines()
            ids = {json.loads(line)["request"] for line in lines}
            self.assertEqual(len(ids), len(lines), "each once")
            client.remove("list/long")


class WaitTests(TestCase):
    def test_the_exit_code_is_that_of_the_results(self):
        with Origin() as origin, Bus(workers=1) as bus:
            submit = bus.run("submit", "--handler", "wait/a", f"{origin.url}/gate/good", f"{origin.url}/bytes/9")
            self.assertEqual(submit.status, 0)
            wait = bus.start("wait", "wait/a")
            origin.await_running(1)
            self.assertTrue(wait.running, "one request is open")
            origin.open_gate("good")
            self.assertEqual(wait.wait(), 0, wait.describe())

            bus.run("submit", "--handler", "wait/b", f"{origin.url}/status/404", f"{origin.url}/status/404?2")
            wait = bus.run("wait", "wait/")
            self.assertEqual(wait.status, 22)
            self.assertIn("(http-status)", wait.stderr)
            self.assertEqual(bus.run("wait", "wait/c").status, 66)

            bus.run("submit", "--handler", "wait/d", f"{origin.url}/gate/never")
            late = bus.run("wait", "--timeout", "3", "wait/d")
            self.assertEqual(late.status, 28)
            self.assertIn("1 request did not end", late.stderr)
            bus.run("drop", "wait/d")

    def test_durable_results_stay_for_watch(self):
        with Origin() as origin, Bus(workers=1) as bus:
            urls = [f"{origin.url}/bytes/{100 + number}" for number in range(3)]
            bus.run("submit", "--durable", "--handler", "wait/kept", *urls)
            self.assertEqual(bus.run("wait", "wait/kept").status, 0)
            watch = bus.run("watch", "-d", "out", "--count", "3", "wait/kept")
            self.assertEqual(watch.status, 0, watch.describe())
            self.assertEqual(sorted(path.stat().st_size for path in (bus.folder / "out").iterdir()), [100, 101, 102])

    def test_more_results_than_a_window_are_awaited(self):
        with Origin() as origin, Bus(workers=1, origin_limit=64) as bus:
            urls = [f"{origin.url}/bytes/1?seed={number}" for number in range(1_100)]
            bus.run("submit", "--handler", "wait/many", f"{origin.url}/status/500", "--retries", "0")
            bus.run("submit", "--handler", "wait/many", *urls)
            wait = bus.run("wait", "wait/many")
            self.assertEqual(wait.status, 2, wait.describe())
            client = bus.client()
            self.assertEqual(self.balance(client)["requests"]["answered"], 1_100)


class RetryTests(TestCase):
    def test_failures_without_a_subscriber_are_repeated_and_no_other_request(self):
        with Origin() as origin, Bus(workers=1) as bus:
            urls = [f"{origin.url}/flaky/1?status=404&n={number}" for number in range(2)] + [f"{origin.url}/bytes/7"]
            submit = bus.run("submit", "--durable", "--retries", "0", "--handler", "retry/a", *urls)
            failed, other, done = [line.split()[1] for line in submit.stdout.decode().splitlines()]
            wait = bus.run("wait", "retry/a")
            self.assertEqual(wait.status, 2, wait.describe())
            lines = bus.run("list", "--state", "failed", "retry/").stdout.decode().splitlines()
            self.assertEqual({(line.split("\t")[0], line.split("\t")[5]) for line in lines},
                             {("failed:http-status", failed), ("failed:http-status", other)})
            none = bus.run("retry", "--code", "timeout", "retry/")
            self.assertEqual((none.status, none.stdout), (1, b"repeated 0 requests of retry/\n"), none.describe())
            self.assertIn("nothing matched: no failure of retry/ has the code timeout", none.stderr)
            repeated = bus.run("retry", "retry/a", failed, done)
            self.assertEqual(repeated.status, 66, repeated.describe())
            self.assertEqual(repeated.stdout, b"repeated 1 request of retry/a\n")
            self.assertIn(f"retry/a {done}: ", repeated.stderr)
            kill(bus.broker)
            eventually(lambda: bus._pids("broker"), "another broker")
            repeated = bus.run("retry", "--code", "http-status", "--json", "retry/")
            self.assertEqual(json.loads(repeated.stdout), {"handler": "retry/", "repeated": 1}, repeated.describe())
            self.assertEqual(bus.run("wait", "retry/a").status, 0)
            self.assertEqual(bus.run("list", "--state", "failed", "retry/").stdout, b"")
            watch = bus.run("watch", "--json", "-d", "out", "--count", "3", "retry/a")
            results = [json.loads(line) for line in watch.stdout.splitlines()]
            self.assertEqual(sorted(result["request"] for result in results), sorted([failed, other, done]))
            self.assertEqual(bus.run("retry", "retry/a").stdout, b"repeated 0 requests of retry/a\n")

    def test_usage(self):
        with Bus(workers=1) as bus:
            for arguments in (["a/", "1"], ["--code", "timeout", "a", "1"], ["a", "x" * 65], []):
                self.assertEqual(bus.run("retry", *arguments).status, 64, arguments)


class SubmitTests(TestCase):
    def test_bodies_come_into_the_directory_without_the_command(self):
        with Origin() as origin, Bus(workers=1) as bus:
            (bus.folder / "list").write_text(f"# two\n{origin.url}/gate/first\n{origin.url}/bytes/50\n{origin.url}/status/404\n")
            before = set(marked(bus.mark))
            submit = bus.run("submit", "-i", "list", "-d", "out", "--log", "log", "--handler", "submit/a")
            self.assertEqual(submit.status, 0, submit.describe())
            self.assertEqual(len(submit.stdout.splitlines()), 3)
            mover = set(marked(bus.mark)) - before
            self.assertEqual(len(mover), 1, "one process in the background")
            origin.open_gate("first")
            eventually(lambda: not mover & set(marked(bus.mark)), "the process ends after the last result")
            self.assertEqual(len(list((bus.folder / "out").iterdir())), 2)
            results = [json.loads(line) for line in (bus.folder / "log").read_text().splitlines()]
            self.assertEqual(results.pop(0), {"message": "listening to submit/a"})
            self.assertEqual(sorted(result.get("code", "") for result in results), ["", "", "http-status"])
            states = [line.split(b"\t")[0] for line in bus.run("list", "submit/a").stdout.splitlines()]
            self.assertEqual(states, [b"failed:http-status"], "only the failure stays")

    def test_retry_writes_the_bodies_of_failed_requests_into_the_directory(self):
        with Origin() as origin, Bus(workers=1) as bus:
            failing = [f"{origin.url}/flaky/2?status=404&seed={number}" for number in range(40)]
            (bus.folder / "list").write_text("\n".join([*failing, f"{origin.url}/bytes/50"]))
            out, log, records = bus.folder / "out", bus.folder / "log", bus.folder / "state" / "earshot" / "background"
            before = set(marked(bus.mark))
            ended = functools.partial(eventually, lambda: set(marked(bus.mark)) <= before, "the process ends", 60)
            submit = bus.run("submit", "--retries", "0", "-i", "list", "-d", "out", "--log", "log", "--handler", "submit/f",
                             "--exec", "true {}")
            self.assertEqual(submit.status, 0, submit.describe())
            ended()
            self.assertEqual((len(list(out.iterdir())), len(list(records.iterdir()))), (1, 1))

            # From another directory, first one of them, which fails once more, and then all.
            requests = [line.split()[1].decode() for line in submit.stdout.splitlines()]
            again = Program([binary(), "retry", "submit/f", requests[0]], bus.environment, out)
            self.assertEqual(again.wait(), 0, again.describe())
            self.assertIn(f"writes the bodies to {out}\n", again.stderr)
            ended()
            self.assertEqual(len(list(out.iterdir())), 1)
            for expected, files in ((40, 2), (39, 41)):
                repeated = bus.run("retry", "submit/f")
                self.assertEqual(repeated.stdout, f"repeated {expected} requests of submit/f\n".encode(), repeated.describe())
                ended()
                self.assertEqual(len(list(out.iterdir())), files)
            self.assertEqual(bus.run("list", "submit/f").stdout, b"")
            self.assertEqual(list(records.iterdir()), [], "nothing is left to repeat")
            done = [line for line in log.read_text().splitlines() if '"status":200' in line]
            self.assertEqual(len(done), 41, "each body once")

    def test_failures_that_another_subscriber_has_do_not_end_the_process(self):
        """The broker does not count a failure as pending while `wait` has it."""
        with Origin() as origin, Bus(workers=1) as bus:
            before = set(marked(bus.mark))
            failing = [f"{origin.url}/gate/failed?bytes=200&n={number}" for number in range(2)]
            (bus.folder / "list").write_text("\n".join([*failing, f"{origin.url}/gate/last"]))
            submit = bus.run("submit", "-i", "list", "-d", "out", "--log", "log", "--max-bytes", "150", "--handler", "submit/h")
            requests = [line.split()[1].decode() for line in submit.stdout.splitlines()]
            process = set(marked(bus.mark)) - before
            wait = bus.start("wait", "submit/h")
            eventually(lambda: b"\t2\tsubmit/h\n" in bus.run("list", "--handlers").stdout, "both have subscribed")
            origin.open_gate("failed")
            for request in requests[:2]:
                wait.await_line(f"submit/h {request} ")
            eventually(lambda: (bus.folder / "log").read_text().count('"code":"too-large"') == 2, "the process has them, too")
            # The process asks the broker before this command does.
            bus.run("list", "submit/h")
            self.assertEqual(process & set(marked(bus.mark)), process)
            origin.open_gate("last")
            self.assertEqual(wait.wait(), 2, wait.describe())
            eventually(lambda: set(marked(bus.mark)) <= before, "the process ends")
            self.assertEqual(len(list((bus.folder / "out").iterdir())), 1)

    def test_one_more_process_at_most_waits_for_that_which_writes_the_bodies(self):
        with Origin() as origin, Bus(workers=1) as bus:
            before = set(marked(bus.mark))
            submit = ("submit", "-d", "out", "--handler", "submit/g")
            for number in range(5):
                bus.run(*submit, f"{origin.url}/gate/g?n={number}")
            eventually(lambda: len(set(marked(bus.mark)) - before) == 2, "the others have ended")
            origin.open_gate("g")
            eventually(lambda: set(marked(bus.mark)) <= before, "all end")
            self.assertEqual(len(list((bus.folder / "out").iterdir())), 5)

    def test_a_killed_process_leaves_the_results_for_watch(self):
        with Origin() as origin, Bus(workers=1) as bus:
            before = set(marked(bus.mark))
            bus.run("submit", "-d", "out", "--handler", "submit/b", f"{origin.url}/gate/last")
            for pid in set(marked(bus.mark)) - before:
                os.kill(pid, signal.SIGKILL)
            eventually(lambda: set(marked(bus.mark)) <= before, "it is gone")
            origin.open_gate("last")
            watch = bus.run("watch", "-d", "out", "--until-done", "submit/b")
            self.assertEqual(watch.status, 0, watch.describe())
            self.assertEqual(len(list((bus.folder / "out").iterdir())), 1)

    def test_a_name_that_exists_and_a_directory_that_is_gone(self):
        with Origin() as origin, Bus(workers=1) as bus:
            out = bus.folder / "out"
            out.mkdir()
            (out / "one").write_text("kept")
            before = set(marked(bus.mark))
            bus.run("submit", "-d", out, "--log", "log", "--handler", "submit/c", f"{origin.url}/gate/one")
            origin.open_gate("one")
            eventually(lambda: set(marked(bus.mark)) <= before, "it ends")
            self.assertEqual(sorted(path.name for path in out.iterdir()), ["one", "one-2"])
            self.assertEqual((out / "one").read_text(), "kept")

            bus.run("submit", "-d", out, "--log", "log", "--handler", "submit/d", f"{origin.url}/gate/two")
            eventually(lambda: "listening to submit/d" in (bus.folder / "log").read_text(), "it has opened the directory")
            origin.await_count("/gate/two", 1)
            shutil.rmtree(out)
            origin.open_gate("two")
            eventually(lambda: set(marked(bus.mark)) <= before, "it ends")
            self.assertIn("stays on the broker's disk", (bus.folder / "log").read_text())
            watch = bus.run("watch", "-d", out, "--until-done", "submit/d")
            self.assertEqual(watch.status, 0, watch.describe())
            self.assertEqual([path.name for path in out.iterdir()], ["two"])

    def test_the_process_outlives_a_broker(self):
        with Origin() as origin, Bus(workers=1) as bus:
            before = set(marked(bus.mark))
            bus.run("submit", "-d", "out", "--handler", "submit/e", f"{origin.url}/gate/late")
            origin.await_count("/gate/late", 1)
            os.kill(bus.broker, signal.SIGKILL)
            mover = set(marked(bus.mark)) - before
            origin.open_gate("late")
            eventually(lambda: (bus.folder / "out" / "late").exists(), "the next broker delivers the result")
            eventually(lambda: not mover & self.watches(), "it ends")

    def watches(self):
        """Returns the processes that run `earshot watch`."""
        found = set()
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and b"\0--until-done\0" in (entry / "cmdline").read_bytes():
                    found.add(int(entry.name))
            except OSError:
                continue  # It has ended.
        return found

    def test_usage(self):
        with Bus(workers=1) as bus:
            self.assertEqual(bus.run("submit").status, 64)
            self.assertEqual(bus.run("submit", "--log", "log", "http://127.0.0.1:1/").status, 64)
            (bus.folder / "empty").write_text("# nothing\n")
            self.assertEqual(bus.run("submit", "-i", "empty").status, 66)
            (bus.folder / "file").write_text("")
            self.assertEqual(bus.run("submit", "-d", "file/out", "http://127.0.0.1:1/").status, 23)


class WorkerTests(TestCase):
    def test_a_worker_without_a_broker_reports_once_that_it_waits(self):
        folder = temporary_folder()
        commands = Commands(folder / "run", folder)
        worker = commands.start("worker")
        self.assertIn(str(folder / "run"), worker.await_line("waiting for a broker"))
        broker = commands.start("broker")
        eventually(lambda: b'"ready":true' in commands.run("status", "--json").stdout, "the worker is connected")
        second = commands.start("worker")
        eventually(lambda: commands.run("status", "--json").stdout.count(b'"pid"') >= 2, "the second one too")
        for program in (second, worker, broker):
            program.signal(signal.SIGTERM)
            program.wait()
        self.assertEqual(worker.stderr.count("waiting for a broker"), 1, worker.describe())
        self.assertNotIn("waiting", second.stderr)


class StopTests(TestCase):
    def test_stop_waits_for_the_running_transfer(self):
        with Origin() as origin, Bus(workers=1) as bus:
            client = bus.client()
            client.fetch("stop", 1, f"{origin.url}/gate/end")
            origin.await_running(1)
            stop = bus.start("stop")
            client.expect("GOODBYE")
            self.assertTrue(stop.running)
            origin.open_gate("end")
            client.terminal()
            self.assertEqual(stop.wait(), 0, stop.describe())
            self.assertEqual(bus.program.wait(), 0)
            missing = bus.run("stop")
            self.assertEqual(missing.status, 69)
            self.assertIn("no broker runs", missing.stderr)

    def test_stop_now_aborts_the_running_transfer(self):
        with Origin() as origin, Bus(workers=1, arguments=("--drain-seconds", "600")) as bus:
            client = bus.client()
            client.fetch("stop", 1, f"{origin.url}/gate/never")
            origin.await_running(1)
            late = bus.run("stop", "--timeout", "0.2")
            self.assertEqual(late.status, 28)
            self.assertIn("still stopping", late.stderr)
            self.assertEqual(bus.run("stop", "--now").status, 0)
            self.assertEqual(bus.program.wait(), 0)

    def test_stop_does_not_end_a_broker_whose_supervisor_it_cannot_find(self):
        with Bus(workers=1) as bus:
            broker = bus.broker
            lock = bus.runtime / "serve.lock"
            named = lock.read_bytes()
            lock.write_bytes(b"")
            stop = bus.run("stop")
            self.assertEqual(stop.status, 5, stop.describe())
            self.assertIn("cannot find the process that serves", stop.stderr)
            self.assertEqual(bus.broker, broker)
            lock.write_bytes(named)

    def test_drain_aborts_its_transfers_at_the_limit(self):
        with Origin() as origin, Bus(workers=1, arguments=("--drain-seconds", "600")) as bus:
            bus.client().fetch("drain", 1, f"{origin.url}/gate/never")
            origin.await_running(1)
            drain = bus.run("drain", "--timeout", "3")
            self.assertEqual(drain.status, 28, drain.describe())
            self.assertIn("the bus stopped with 1 unfinished transfers", drain.stderr)
            self.assertEqual(bus.program.wait(), 0)

    def test_stop_ends_a_broker_without_a_supervisor(self):
        folder = temporary_folder()
        commands = Commands(folder / "run", folder)
        broker = commands.start("broker", "--spool", folder / "spool", "--no-cache", "--ready-fd", "1")
        broker.await_line("ready", "stdout")
        self.assertEqual(commands.run("stop").status, 0)
        self.assertEqual(broker.wait(), 0)
        commands.await_no_survivors()

    def test_drain_finishes_the_queue_and_refuses_new_requests(self):
        with Origin() as origin, Bus(workers=1, origin_limit=1) as bus:
            client = bus.client()
            client.fetch("drain", 1, f"{origin.url}/gate/first")
            client.fetch("drain", 2, f"{origin.url}/bytes/7")
            origin.await_running(1)
            drain = bus.start("drain")
            eventually(lambda: client.settings()["admission"][0] == "closed", "admission is closed")
            client.fetch("drain", 3, f"{origin.url}/bytes/8")
            self.assertFailed(client.terminal(), "stopping")
            self.assertTrue(drain.running)
            for command in (["get"], ["submit", "--durable"]):
                held = bus.start(*command, f"{origin.url}/bytes/9")
                held.await_line("the bus accepts no new requests; they wait until")
                held.signal(signal.SIGINT)
                self.assertEqual(held.wait(), 130)
            refused = bus.run("submit", f"{origin.url}/bytes/9")
            self.assertEqual((refused.status, refused.stdout), (69, b""))
            self.assertIn("the bus accepts no new requests and may have refused these; repeat the command after", refused.stderr)
            origin.open_gate("first")
            self.assertEqual({message.operands[1:3] == ["2", "200"] for message in client.terminals(2)}, {True, False})
            self.assertEqual(drain.wait(), 0, drain.describe())
            self.assertEqual(bus.program.wait(), 0)

    def test_get_says_at_once_that_the_bus_drains(self):
        with Origin() as origin, Bus(workers=1) as bus:
            client = bus.client()
            client.fetch("drain", 1, f"{origin.url}/gate/first")
            origin.await_running(1)
            started = time.monotonic()
            self.assertEqual(bus.run("get", f"{origin.url}/bytes/9").status, 0)
            limit = time.monotonic() - started + 0.8
            drain = bus.start("drain")
            eventually(lambda: client.settings()["admission"][0] == "closed", "admission is closed")
            delays = []
            # A busy machine may delay some of them.
            while len(delays) < 20 and min(delays, default=limit) >= limit:
                started = time.monotonic()
                held = bus.start("get", f"{origin.url}/bytes/9")
                held.await_line("the bus accepts no new requests; they wait until")
                delays.append(time.monotonic() - started)
                held.signal(signal.SIGINT)
                self.assertEqual(held.wait(), 130, held.describe())
            self.assertLess(min(delays), limit, "not after the second that a broker has to answer")
            origin.open_gate("first")
            client.terminal()
            self.assertEqual(drain.wait(), 0, drain.describe())
            self.assertEqual(bus.program.wait(), 0)

    def test_a_submission_that_a_draining_bus_refuses_reaches_the_next_one(self):
        folder = temporary_folder()
        with Origin() as origin:
            with Bus(workers=1, folder=folder) as bus:
                client = bus.client()
                client.fetch("drain", 1, f"{origin.url}/gate/first")
                origin.await_running(1)
                drain = bus.start("drain")
                eventually(lambda: client.settings()["admission"][0] == "closed", "admission is closed")
                held = bus.start("submit", "--durable", f"{origin.url}/bytes/9")
                held.await_line("the bus accepts no new requests; they wait until")
                origin.open_gate("first")
                client.terminal()
                self.assertEqual(drain.wait(), 0, drain.describe())
                self.assertEqual(bus.program.wait(), 0)
                self.assertTrue(held.running)
                with Bus(workers=1, folder=folder):
                    self.assertEqual(held.wait(), 0, held.describe())
                    eventually(lambda: origin.total == 2, "the server has got the request")

    def test_an_interrupted_drain_leaves_admission_closed(self):
        with Origin() as origin, Bus(workers=1) as bus:
            client = bus.client()
            client.fetch("drain", 1, f"{origin.url}/gate/never")
            origin.await_running(1)
            drain = bus.start("drain")
            eventually(lambda: client.settings()["admission"][0] == "closed", "admission is closed")
            drain.signal(signal.SIGINT)
            self.assertEqual(drain.wait(), 130)
            self.assertIn("set admission open", drain.stderr)
            self.assertEqual(bus.run("set", "admission", "open").status, 0)
            client.fetch("drain", 2, f"{origin.url}/bytes/8")
            self.assertEqual(client.terminal().operands, ["drain", "2", "200"])
            client.remove("drain")
            late = bus.start("drain", "--timeout", "60")
            self.assertEqual(late.wait(), 0, "nothing was left")


class CacheClearTests(TestCase):
    def test_a_running_bus_empties_its_cache_and_goes_on_storing(self):
        with Origin() as origin:
            folder = temporary_folder()
            with Bus(workers=1, folder=folder, arguments=("--cache-folder", folder / "run" / "cache")) as bus:
                client = bus.client()
                size = client.settings()["cache-size"][0]

                def stored():
                    return json.loads(bus.run("cache", "stat", "--runtime", bus.runtime, "--json").stdout)["answers"]
                for number in range(2):
                    client.fetch("cache", number, f"{origin.url}/kept/{number}?cc=max-age=1000")
                client.terminals(2)
                eventually(lambda: stored() == 2, "both are stored")
                clear = bus.run("cache", "clear", "--runtime", bus.runtime)
                self.assertEqual((clear.status, clear.stderr), (0, "earshot: removed 2 responses and 0 parts\n"))
                self.assertEqual(stored(), 0)
                self.assertEqual(client.settings()["cache-size"][0], size)
                client.fetch("cache", 3, f"{origin.url}/kept/0?cc=max-age=1000")
                self.assertEqual(client.terminal().fields["source"], "network")
                eventually(lambda: stored() == 1, "the next one is stored")


if __name__ == "__main__":
    unittest.main()
