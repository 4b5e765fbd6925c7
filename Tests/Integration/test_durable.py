"""Durable requests: they outlive client and broker, and their results wait until a client claims them.

`EARSHOT_DURABLE=10000` runs the test of the killed broker with that many requests and 20 kills.
"""

import contextlib
import os
import shutil
import signal
import sqlite3
import struct
import time

from support.figures import report
from support.harness import Bus, Commands, TestCase, temporary_folder
from support.origin import Origin, body
from support.processes import children, command, eventually, kill

LONG = bool(os.environ.get("EARSHOT_LONG"))

COUNT = int(os.environ.get("EARSHOT_DURABLE", 500))
KILLS = 20 if COUNT >= 10_000 else 3
#: One in this many is a file of the spool.
FILES = 50


def size(number):
    return 100_000 if number % FILES == 0 else 100


class DurableTests(TestCase):
    def submit(self, client, url, numbers):
        for number in numbers:
            client.fetch("durable/all", number, f"{url}/bytes/{size(number)}?seed={number}", durable="yes",
                         subscribe="no")

    def accepted(self, client, count, timeout=60):
        """Returns the numbers of the next `count` accepted requests."""
        return {int(client.expect("ACCEPTED", timeout=timeout).operands[1]) for _ in range(count)}

    def kill_broker(self, bus):
        """Sends SIGKILL to the broker, and waits for its successor."""
        kill(bus.broker)
        # The supervisor's pause grows with the number of deaths.
        eventually(lambda: bus._pids("broker"), "another broker")

    def claim(self, bus, pattern, count, timeout=120):
        """Returns the waiting results, received by a separate client."""
        client = bus.client()
        client.send(f"SUBSCRIBE {pattern}")
        return client, client.terminals(count, timeout)

    def test_a_killed_broker_loses_none_that_it_accepted_and_no_client_has_to_run(self):
        with Origin() as origin, Bus(workers=2, origin_limit=32) as bus:
            chunk = COUNT // KILLS
            kept, left = set(), list(range(COUNT))
            for _ in range(KILLS):
                client = bus.client()
                self.submit(client, origin.url, left[:chunk])
                kept |= self.accepted(client, chunk // 2)
                client.socket.close()
                self.kill_broker(bus)
                left = [number for number in left if number not in kept]
            client = bus.client()
            self.submit(client, origin.url, left)
            kept |= self.accepted(client, len(left), timeout=120)
            self.assertEqual(len(kept), COUNT)
            client.close()
            self.kill_broker(bus)
            other, answers = self.claim(bus, "durable/", COUNT)
            self.assertEqual({int(m.id[1]) for m in answers}, kept, "each is there")
            for message in answers:
                number = int(message.id[1])
                self.assertResult(message, body(size(number), str(number)))
            self.assertEqual([m for m in other.rest() if m.is_terminal], [], "each once")
            self.assertEqual(self.balance(other)["requests"]["pending"], 0)
            # After the reply, earlier acknowledgements are written to disk before anything else.
            other.fetch("durable/last", 1, f"{origin.url}/bytes/1", durable="yes", subscribe="no")
            other.expect("ACCEPTED")
            self.kill_broker(bus)
            last, answers = self.claim(bus, "durable/", 1)
            self.assertEqual(answers[0].id, ("durable/last", "1"))
            self.assertEqual(self.balance(last)["requests"]["submitted"], 1, "what was acknowledged is gone")
            self.assertEqual(list((bus.runtime / "durable/bodies").iterdir()), [])

    def test_a_file_that_was_named_is_there_after_the_broker_was_killed(self):
        with Origin() as origin, Bus(workers=1) as bus:
            client = bus.client()
            client._acknowledge = lambda: None
            client.fetch("file", 1, f"{origin.url}/bytes/200000?seed=5", durable="yes")
            client.expect("ACCEPTED", "file", "1")
            path = client.terminal().fields["file"]
            self.kill_broker(bus)
            bus.client()
            with open(path, "rb") as file:
                self.assertTrue(file.read() == body(200_000, "5"))
            other, (message,) = self.claim(bus, "file", 1)
            self.assertResult(message, body(200_000, "5"))
            self.assertEqual(message.fields["file"], path)
            self.assertEqual(origin.total, 1, "it was not fetched again")
            other.query("ping")
            eventually(lambda: not os.path.exists(path), "the file goes with the acknowledgement")

    def test_one_that_runs_while_its_broker_is_killed_goes_on(self):
        with Origin() as origin, Bus(workers=1) as bus:
            client = bus.client()
            client.fetch("run", 1, f"{origin.url}/gate/late?bytes=10", durable="yes")
            client.expect("ACCEPTED")
            origin.await_running(1)
            client.socket.close()
            self.kill_broker(bus)
            origin.await_total(2)
            origin.open_gate("late")
            _, (message,) = self.claim(bus, "run", 1)
            self.assertResult(message, body(10))
            self.assertEqual((origin.total, origin.most_at_once), (2, 1), "its transfer was repeated")

    def test_a_result_waits_through_a_restart_of_the_whole_bus(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        with Origin() as origin:
            with Bus(workers=1, folder=folder) as bus:
                client = bus.client()
                client.fetch("gone", 1, f"{origin.url}/bytes/70000?seed=1", durable="yes", subscribe="no")
                client.fetch("gone", 2, f"{origin.url}/status/404", durable="yes", subscribe="no")
                client.fetch("gone", 3, f"{origin.url}/bytes/10", durable="yes", subscribe="no", warm="yes")
                for number in "123":
                    client.expect("ACCEPTED", "gone", number)
                eventually(lambda: all(client.query(f"why gone {n}")["state"] == "held" for n in (1, 2, 3)),
                           "all have ended")
            shutil.rmtree(folder / "spool")
            with Bus(workers=1, folder=folder) as bus:
                _, answers = self.claim(bus, "gone", 3)
                answers = {m.id[1]: m for m in answers}
                self.assertResult(answers["1"], body(70_000, "1"))
                self.assertFailed(answers["2"], "http-status")
                self.assertEqual((answers["3"].fields["length"], answers["3"].body), ("10", None))
                self.assertEqual(origin.total, 3)

    def durable_folder(self, origin):
        """Returns the folder of a bus that has ended, with a result in a file, and the file's bytes."""
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        with Bus(workers=1, folder=folder) as bus:
            client = bus.client()
            client.fetch("kept", 1, f"{origin.url}/bytes/100000", durable="yes", subscribe="no")
            client.expect("ACCEPTED")
            eventually(lambda: client.query("why kept 1")["state"] == "held", "it has ended")
        return folder, body(100_000)

    def test_a_damaged_table_is_moved_aside_with_the_bodies_that_it_named(self):
        with Origin() as origin:
            folder, content = self.durable_folder(origin)
            durable = folder / "run/durable"
            (durable / "requests.sqlite").write_bytes(b"nonsense" * 1000)
            for suffix in ("-wal", "-shm"):
                (durable / f"requests.sqlite{suffix}").unlink(missing_ok=True)
            with Bus(workers=1, folder=folder) as bus:
                line = bus.program.await_line("damaged-")
                damaged, = durable.glob("damaged-*")
                self.assertIn(str(damaged), line)
                self.assertEqual((damaged / "requests.sqlite").read_bytes(), b"nonsense" * 1000)
                kept, = (damaged / "bodies").iterdir()
                self.assertEqual(kept.read_bytes(), content)
                client = bus.client()
                client.fetch("new", 1, f"{origin.url}/bytes/10", durable="yes")
                self.assertResult(client.terminal(), body(10))

    def test_a_table_of_a_newer_version_is_refused_for_good_and_left_as_it_is(self):
        with Origin() as origin:
            folder, _ = self.durable_folder(origin)
            durable = folder / "run/durable"
            with contextlib.closing(sqlite3.connect(durable / "requests.sqlite")) as table:
                table.execute("PRAGMA user_version = 4")
            before = {path.name: path.read_bytes() for path in (durable / "bodies").iterdir()}
            commands = Commands(folder / "run", folder)
            for role in ("serve", "broker"):
                with self.subTest(role=role):
                    refused = commands.run(role, "--runtime", folder / "run", "--spool", folder / "spool", timeout=30)
                    self.assertEqual(refused.status, 78, refused.describe())
                    self.assertIn(str(durable / "requests.sqlite"), refused.stderr)
                    self.assertIn("newer", refused.stderr)
            self.assertEqual({path.name: path.read_bytes() for path in (durable / "bodies").iterdir()}, before)
            self.assertEqual(list(durable.glob("damaged-*")), [])
            with contextlib.closing(sqlite3.connect(durable / "requests.sqlite")) as table:
                self.assertEqual(table.execute("SELECT count(*) FROM request").fetchone(), (1,))
                table.execute("PRAGMA user_version = 3")
            with Bus(workers=1, folder=folder) as bus:
                client = bus.client()
                client.send("SUBSCRIBE kept")
                self.assertResult(client.terminal(), body(100_000))

    def test_nor_does_a_bus_that_served_try_for_ever(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        commands = Commands(folder / "run", folder)
        serve = commands.start("serve", "--runtime", folder / "run", "--spool", folder / "spool", "--workers", "1")
        self.addCleanup(serve.kill)
        serve.await_line("earshot: ready")
        with contextlib.closing(sqlite3.connect(folder / "run/durable/requests.sqlite")) as table:
            table.execute("PRAGMA user_version = 4")
        kill([pid for pid in children(serve.pid) if command(pid)[1:2] == ["broker"]][0])
        self.assertEqual(serve.wait(), 78, serve.describe())
        commands.await_no_survivors()

    def test_submit_and_watch_claim_over_a_kill(self):
        with Origin() as origin, Bus(workers=1) as bus:
            program = bus.run("submit", "--durable", "--handler", "shell/a", f"{origin.url}/bytes/10",
                              f"{origin.url}/bytes/20")
            self.assertEqual((program.status, len(program.stdout.splitlines())), (0, 2), program.describe())
            refused = bus.run("submit", "--durable", "--alone", "-X", "POST", "--data", "a", f"{origin.url}/bytes/1")
            self.assertEqual(refused.status, 43, refused.describe())
            self.assertIn("unsupported-method", refused.stderr)
            self.kill_broker(bus)
            received = bus.run("watch", "shell/", "--count", "2", "-d", bus.folder / "out")
            self.assertEqual(received.status, 0, received.describe())
            self.assertEqual(sorted(line.split()[2] for line in received.stdout.splitlines()), [b"200", b"200"])
            for size in (10, 20):
                self.assertEqual((bus.folder / "out" / str(size)).read_bytes(), body(size))

    def test_watch_leaves_what_it_was_not_asked_to_hear(self):
        with Origin() as origin, Bus(workers=1) as bus:
            urls = [f"{origin.url}/bytes/{count}" for count in range(1, 6)]
            self.submitted(bus, "shell/b", *urls)
            received = []
            for count in (1, 3, 1):
                watch = bus.run("watch", "shell/b", "--count", str(count), "--discard")
                self.assertEqual((watch.status, len(watch.stdout.splitlines())), (0, count), watch.describe())
                received += [line.split()[3].decode() for line in watch.stdout.splitlines()]
            self.assertEqual(sorted(received), urls)

    def submitted(self, bus, handler, *urls, options=()):
        """Returns completed durable requests of the command."""
        program = bus.run("submit", "--durable", "--handler", handler, *options, *urls)
        self.assertEqual(program.status, 0, program.describe())
        client = bus.client()
        for line in program.stdout.decode().splitlines():
            eventually(lambda: client.query(f"why {line}")["state"] == "held", f"{line} has ended")
        client.close()

    def test_watch_acknowledges_no_body_that_it_was_not_told_to_keep_or_to_discard(self):
        with Origin() as origin, Bus(workers=1) as bus:
            for size in (100, 200_000):
                self.submitted(bus, "kept", f"{origin.url}/bytes/{size}")
                for options in ([], ["--json"]):
                    watch = bus.run("watch", "kept", "--count", "1", *options)
                    self.assertEqual((watch.status, watch.stdout), (64, b""), watch.describe())
                    self.assertIn("--discard", watch.stderr)
                other, (message,) = self.claim(bus, "kept", 1)
                self.assertResult(message, body(size))
                self.assertEqual(message.fields["durable"], "yes")
                other.close()

    def test_watch_needs_no_folder_for_results_without_a_body(self):
        with Origin() as origin, Bus(workers=1) as bus:
            for path, options in (("/bytes/0", ()), ("/bytes/9", ("-X", "HEAD")), ("/bytes/9", ("--warm",))):
                self.submitted(bus, "empty", origin.url + path, options=options)
                watch = bus.run("watch", "empty", "--count", "1")
                self.assertEqual(watch.status, 0, watch.describe())
            self.submitted(bus, "empty", f"{origin.url}/status/404")
            watch = bus.run("watch", "empty", "--count", "1")
            self.assertEqual(watch.status, 22, watch.describe())
            client = bus.client()
            # Otherwise the command that has just ended may still be a subscriber, and get the result.
            eventually(lambda: not any(each["subscribers"] for each in client.query("handlers")["handlers"]), "the command has left")
            client.fetch("empty", 1, f"{origin.url}/bytes/9", subscribe="no")
            watch = bus.run("watch", "empty", "--count", "1")
            self.assertEqual(watch.status, 0, "what is not durable is nobody's loss")
            self.await_requests(client, pending=0)

    def test_get_takes_no_durable_result_of_its_handler(self):
        with Origin() as origin, Bus(workers=1) as bus:
            for size in (100, 200_000):
                self.submitted(bus, "shared", f"{origin.url}/bytes/{size}")
                got = bus.run("get", "--handler", "shared", f"{origin.url}/slow/1")
                self.assertEqual((got.status, got.stdout), (64, b""), got.describe())
                self.assertIn("earshot watch -d DIR shared", got.stderr)
                other, (message,) = self.claim(bus, "shared", 1)
                self.assertResult(message, body(size))
                other.close()

    def test_an_interrupted_get_cancels_its_own_requests_alone(self):
        with Origin() as origin, Bus(workers=1) as bus:
            client = bus.client()
            client.fetch("shared", "theirs", f"{origin.url}/gate/theirs?bytes=10", durable="yes", subscribe="no")
            client.expect("ACCEPTED", "shared", "theirs")
            get = bus.start("get", "--handler", "shared", "-d", bus.folder / "out", f"{origin.url}/hang",
                            f"{origin.url}/hang?2")
            origin.await_running(3)
            get.signal(signal.SIGINT)
            self.assertEqual(get.wait(), 130, get.describe())
            self.await_requests(client, removed=2, pending=1)
            origin.await_aborts("/hang", 2)
            origin.open_gate("theirs")
            _, (message,) = self.claim(bus, "shared", 1)
            self.assertResult(message, body(10))

    def test_accepting_many_costs_few_flushes(self):
        # Each pause of the test costs another flush.
        self.assertTrue(any(self.flushes(2_000) < 100 for _ in range(3)))

    def flushes(self, count):
        with Bus(workers=1) as bus:
            client = bus.client(window=4096)
            before = self.commits(bus)
            start = time.monotonic()
            for number in range(count):
                client.fetch("many", number, "http://127.0.0.1:9/", durable="yes", subscribe="no", retries=0)
            self.accepted(client, count, timeout=120)
            spent, flushes = time.monotonic() - start, self.commits(bus) - before
            report(f"{count} durable requests accepted with {flushes} flushes in {spent:.2f} s, {count / spent:.0f}/s")
            client.remove("many")
            return flushes

    def commits(self, bus):
        """Returns the number of transactions in the write-ahead log of the table since its start. SQLite flushes the log once
        for each."""
        log = (bus.runtime / "durable/requests.sqlite-wal").read_bytes()
        page, checkpoints, *salts = struct.unpack_from(">4I", log, 8)
        self.assertEqual(checkpoints, 0, "more transactions than one log holds")
        frames = [struct.unpack_from(">4I", log, at) for at in range(32, len(log) - page - 23, page + 24)]
        # The second field is the size of the database after a transaction, in its last frame only.
        return sum(size > 0 for _, size, *salt in frames if salt == salts)


class LoadTests(TestCase):
    """Rows of an earlier broker, which the next one loads while it serves."""

    ROWS = 100_000 if LONG else 40_000
    #: Rows of the handler whose results the test claims.
    CLAIMED = 10_000 if LONG else 4_000

    def folder_with_rows(self, origin):
        """Returns the folder of a bus that has ended, with results of `many/a` and `many/b` in its table."""
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        with Bus(workers=1, folder=folder) as bus:
            client = bus.client()
            client.fetch("many/a", 1, f"{origin.url}/bytes/3", durable="yes", subscribe="no")
            client.expect("ACCEPTED")
            eventually(lambda: client.query("why many/a 1")["state"] == "held", "it has ended")
        with contextlib.closing(sqlite3.connect(self.table(folder))) as table, table:
            first, head, ended = table.execute("SELECT id, head, ended FROM request").fetchone()
            names = [b"many/%s %d " % (b"a" if number <= self.CLAIMED else b"b", number)
                     for number in range(2, self.ROWS + 1)]
            table.executemany(
                "INSERT INTO request (principal, accepted, head, ended, length, sha256, body) "
                "SELECT principal, accepted, ?, ?, length, sha256, body FROM request WHERE id = ?",
                ((head.replace(b"many/a 1 ", name), ended.replace(b"many/a 1 ", name), first) for name in names))
        return folder

    @staticmethod
    def table(folder):
        return folder / "run/durable/requests.sqlite"

    def rows(self, folder):
        with contextlib.closing(sqlite3.connect(self.table(folder))) as table:
            return table.execute("SELECT count(*) FROM request").fetchone()[0]

    def loading(self, bus):
        """Returns a client of a broker that still loads rows. On a busy machine a broker may have loaded all before the client's query:
        then the next one has to be seen."""
        for _ in range(5):
            client = bus.client()
            if client.query("status").get("durable") == "loading":
                return client
            kill(bus.broker)
            eventually(lambda: bus._pids("broker"), "another broker")
        self.fail("the bus is ready before they are loaded")

    def test_the_bus_serves_meanwhile_and_a_kill_loses_and_doubles_none(self):
        with Origin() as origin:
            folder = self.folder_with_rows(origin)
            began = time.monotonic()
            with Bus(workers=1, folder=folder) as bus:
                ready = time.monotonic() - began
                client = self.loading(bus)
                pauses, last = [], time.monotonic()
                while client.query("status").get("durable") == "loading":
                    last, pauses = time.monotonic(), [*pauses, time.monotonic() - last]
                report(f"ready in {ready:.2f} s, loaded after {last - began:.2f} s; a query meanwhile took at most "
                       f"{1_000 * max(pauses, default=0):.0f} ms")
                for _ in range(2):
                    kill(bus.broker)
                    eventually(lambda: bus._pids("broker"), "another broker")
                    self.loading(bus)
                kill(bus.broker)
                eventually(lambda: bus._pids("broker"), "another broker")
                plain, other = bus.client(), bus.client()
                other.send("QUERY why many/b %d" % self.ROWS)
                plain.fetch("plain", 1, f"{origin.url}/bytes/10")
                self.assertResult(plain.terminal(), body(10))
                answer = other.expect("ANSWER", "why")
                self.assertIn(b'"held"', answer.body, "it is answered after its row was loaded")
                self.await_requests(other, pending=self.ROWS)
                claimer = bus.client(window=4096)
                claimer.send("SUBSCRIBE many/a")
                received = [m.id[1] for m in claimer.terminals(self.CLAIMED, 120)]
                self.assertEqual(sorted(map(int, received)), list(range(1, self.CLAIMED + 1)), "each once")
                self.assertEqual([m for m in claimer.rest() if m.is_terminal], [])
                self.assertEqual(origin.total, 2)
                # The end of the `with` would soon send another one, after which the broker stores nothing.
                bus.program.signal(signal.SIGTERM)
                self.assertEqual(bus.program.wait(), 0)
            self.assertEqual(self.rows(folder), self.ROWS - self.CLAIMED)
