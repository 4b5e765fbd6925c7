"""Transfers outlive the broker that requested them: the next one adopts them."""

import os
import shutil
import signal
import threading
import time
import unittest

from support.client import Client, StubbornClient
from support.figures import milliseconds, tell
from support.harness import Bus, Commands, TestCase, temporary_folder
from support.origin import Origin, body
from support.processes import eventually, kill
from test_stream import Reader, follow

MIB = 1 << 20
LONG = os.environ.get("EARSHOT_LONG") == "1"


class Parts(Commands):
    """Broker and workers without a supervisor: the test starts and ends them."""

    def __init__(self, workers=2, slots=32, arguments=()):
        folder = temporary_folder()
        super().__init__(folder / "run", folder)
        self.spool = folder / "spool"
        self._arguments = arguments
        self._clients = []
        self.broker = None
        self.workers = []
        self._plan = (workers, slots)

    def __enter__(self):
        self.start_broker()
        count, slots = self._plan
        for _ in range(count):
            self.workers.append(self.start("worker", "--runtime", self.runtime, "--slots", slots))
        return self

    def __exit__(self, *_):
        for client in self._clients:
            client.close()
        try:
            for program in [self.broker, *self.workers]:
                if program.running:
                    program.kill()
                if program.crash_lines:
                    raise AssertionError(program.describe())
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def start_broker(self):
        self.broker = self.start("broker", "--runtime", self.runtime, "--spool", self.spool, *self._arguments)
        eventually(lambda: (self.runtime / "bus").exists(), "the broker binds its endpoint")

    def client(self, kind=Client, **options):
        client = kind(self.runtime, **options)
        self._clients.append(client)
        return client

    def files(self):
        return sorted(name for _, _, names in os.walk(self.spool) for name in names if not name.endswith(".lock"))


class RunningTests(TestCase):
    def test_a_slow_transfer_and_its_reader_go_on_over_a_brokers_death(self):
        size = 16 * MIB
        with Origin() as origin, Bus(workers=1) as bus:
            origin.publish("film", size, plan=lambda n, start: {"held": 4 * MIB})
            url, reader = f"{origin.url}/parts/film", Reader()
            first = bus.client()
            first.fetch("film", 1, url, stream="yes", progress=50)
            while len(reader.content) < 2 * MIB:
                reader.take(first.expect("PROGRESS"))
            kill(bus.broker)
            began = time.monotonic()
            second = self.next_client(bus, 1)
            second.fetch("film", 1, url, stream="yes", progress=50)
            again = second.expect("PROGRESS")
            tell(f"progress is told again {1000 * (again.at - began):.0f} ms after the death")
            reader.take(again)
            origin.open_gate("film")
            message = follow(second, reader)
            self.assertTrue(reader.finish(message) == message.content() == body(size))
            self.assertEqual(len(reader.starts), 1, "one generation")
            self.assertEqual(origin.count("/parts/film"), 1)
            self.assertEqual(message.fields["source"], "network")
            ledger = self.balance(second)
            self.assertEqual((ledger["flights"]["adopted"], ledger["flights"]["assigned"]), (1, 0))

    def test_who_allows_more_than_the_first_has_the_attempt_raised(self):
        with Origin() as origin, Bus(workers=1) as bus:
            url = f"{origin.url}/gate/larger?bytes=300000"
            bus.client().fetch("small", 1, url, max_bytes=1000)
            origin.await_total(1)
            kill(bus.broker)
            client = self.next_client(bus, 1)
            client.fetch("large", 1, url, max_bytes=400_000)
            client.fetch("small", 1, url, max_bytes=2_000)
            self.await_adopted(client, 1)
            # The worker reads the higher limit before the next job.
            other = bus.client()
            other.fetch("other", 1, f"{origin.url}/bytes/10")
            self.assertResult(other.terminal(), body(10))
            origin.open_gate("larger")
            answers = {message.id[0]: message for message in client.terminals(2)}
            self.assertResult(answers["large"], body(300_000))
            self.assertFailed(answers["small"], "too-large")
            self.assertEqual(origin.count("/gate/larger"), 1)

    def test_a_removal_cuts_an_adopted_transfer_off(self):
        with Origin() as origin, Bus(workers=1) as bus:
            bus.client().fetch("one", 1, f"{origin.url}/hang")
            origin.await_total(1)
            kill(bus.broker)
            client = self.next_client(bus, 1)
            client.fetch("one", 1, f"{origin.url}/hang")
            self.await_adopted(client, 1)
            client.remove("one")
            origin.await_aborts("/hang")
            self.assertEqual(origin.total, 1)

    def test_an_adopted_transfer_whose_worker_dies_goes_on_where_it_broke(self):
        size = 8 * MIB
        with Origin() as origin, Bus(workers=1) as bus:
            published = origin.publish("file", size, plan=lambda n, start: {"held": 3 * MIB} if n == 0 else {})
            url, reader = f"{origin.url}/parts/file", Reader()
            bus.client().fetch("file", 1, url, stream="yes", progress=50)
            origin.await_total(1)
            kill(bus.broker)
            client = self.next_client(bus, 1)
            client.fetch("file", 1, url, stream="yes", progress=50)
            while len(reader.content) < 2 * MIB:
                reader.take(client.expect("PROGRESS"))
            kill(bus.workers[0])
            message = follow(client, reader)
            self.assertTrue(reader.finish(message) == message.content() == body(size))
            self.assertEqual(message.fields["source"], "resumed")
            self.assertEqual(len(published.ranges), 2)
            self.assertGreaterEqual(int(published.ranges[1].removeprefix("bytes=").split("-")[0]), 2 * MIB)

    def test_what_nobody_asks_for_again_is_cut_off_and_its_file_removed(self):
        with Origin() as origin, Bus(workers=1) as bus:
            bus.client().fetch("nobody", 1, f"{origin.url}/stall/3000000", timeout=60)
            eventually(lambda: bus.spooled(".part"), "a file grows")
            kill(bus.broker)
            began = time.monotonic()
            ended = origin.await_aborts("/stall/3000000", timeout=20)[0]
            self.assertGreater(ended - began, 5, "clients have their time")
            eventually(lambda: not bus.spooled(".part"), "the file is gone")
            client = bus.client()
            eventually(lambda: client.query("workers")["workers"][0]["running"] == 0, "its place is free")

    def test_what_others_may_not_share_is_neither_adopted_nor_asked_twice(self):
        with Origin() as origin, Bus(workers=1) as bus:
            client = bus.client()
            client.fetch("post", 1, f"{origin.url}/gate/post", method="POST", coalesce="no", body=b"x")
            client.fetch("alone", 1, f"{origin.url}/gate/alone", coalesce="no")
            client.fetch("secret", 1, f"{origin.url}/gate/secret", headers=[("authorization", "Bearer a")])
            origin.await_total(3)
            kill(bus.broker)
            client = bus.client()
            client.fetch("secret", 1, f"{origin.url}/gate/secret", headers=[("authorization", "Bearer b")])
            origin.await_aborts("/gate/post")
            origin.await_aborts("/gate/alone")
            origin.await_count("/gate/secret", 2)
            self.assertEqual(self.balance(client)["flights"]["adopted"], 0)
            client.fetch("secret", 2, f"{origin.url}/gate/secret", headers=[("authorization", "Bearer a")])
            self.await_adopted(client, 1)
            self.assertEqual(origin.total, 4)

    def test_an_origins_limit_holds_over_a_brokers_death(self):
        with Origin() as origin, Bus(workers=2, slots=16, origin_limit=3) as bus:
            urls = [f"{origin.url}/gate/{n}" for n in range(6)]
            for url in urls[:3]:
                bus.client().fetch("first", url[-1], url)
            origin.await_running(3)
            kill(bus.broker)
            client = self.next_client(bus, 3)
            for url in urls:
                client.fetch("then", url[-1], url)
            self.await_adopted(client, 3)
            self.assertEqual(origin.total, 3)
            for name in range(6):
                origin.open_gate(str(name))
            self.assertEqual(len(client.terminals(6)), 6)
            self.assertEqual((origin.total, origin.most_at_once), (6, 3))

    def next_client(self, bus, count):
        """Returns a client of the next broker, once its workers have reported this many transfers. The broker awaits them for
        one second. Transfers of a later worker are fetched again if they were requested by then."""
        client = bus.client()
        eventually(lambda: sum(worker["running"] for worker in client.query("workers")["workers"]) == count,
                   lambda: f"{count} transfers are told of: {client.query('workers')['workers']}")
        return client

    def await_adopted(self, client, count):
        eventually(lambda: client.query("ledger")["flights"]["adopted"] == count, f"{count} are adopted")


class EndedTests(TestCase):
    def test_what_ends_while_no_broker_runs_is_an_answer_of_the_next(self):
        sizes = [0, 700, 200_000]
        with Origin() as origin, Parts(workers=1) as parts:
            client = parts.client()
            for size in sizes:
                client.fetch("late", size, f"{origin.url}/gate/late?bytes={size}")
            client.fetch("late", 5, f"{origin.url}/gate/late?bytes=5", headers=[("x-other", "flight")])
            client.fetch("unasked", 1, f"{origin.url}/gate/late?bytes=200001")
            origin.await_running(5)
            parts.broker.kill()
            origin.open_gate("late")
            origin.await_running(0)
            eventually(lambda: len(parts.files()) == 2, lambda: f"two files wait: {parts.files()}")
            parts.start_broker()
            client = parts.client()
            # As above; all of them have ended.
            eventually(lambda: client.query("workers")["workers"], "the worker is back")
            for size in sizes:
                client.fetch("late", size, f"{origin.url}/gate/late?bytes={size}", asked_ms=60_000)
            url = f"{origin.url}/gate/late?bytes=5"
            client.fetch("late", 5, url, headers=[("x-other", "flight")], asked_ms=60_000)
            for message in client.terminals(4):
                self.assertResult(message, body(int(message.id[1])))
            self.assertEqual(origin.total, 5, "nothing was fetched again")
            ledger = self.balance(client)
            self.assertEqual((ledger["flights"]["adopted"], ledger["flights"]["assigned"]), (4, 0))
            eventually(lambda: not parts.files(), lambda: f"what nobody asked for goes: {parts.files()}", timeout=20)


    def test_what_ended_before_a_request_was_made_does_not_serve_it(self):
        modes = ["default", "no-store"]
        with Origin() as origin, Parts(workers=1) as parts:
            first, again = parts.client(), StubbornClient(parts.runtime)
            for mode in modes:
                first.fetch("early", mode, f"{origin.url}/gate/early?mode={mode}", cache=mode)
                again.fetch("again", mode, f"{origin.url}/gate/early?again={mode}", cache=mode)
            origin.await_running(4)
            parts.broker.kill()
            origin.open_gate("early")
            origin.await_running(0)
            parts.start_broker()
            self.assertEqual(len(again.collect()), 2)
            again.close()
            client = parts.client()
            self.assertEqual(origin.total, 4, "who had asked before has the answer")
            for mode in modes:
                client.fetch("late", mode, f"{origin.url}/gate/early?mode={mode}", cache=mode)
            for message in client.terminals(2):
                self.assertEqual(message.fields["source"], "network")
            self.assertEqual(origin.total, 6, "each was fetched for its own request")
            self.balance(client)


class Asker(threading.Thread):
    """Program that requests `count` resources of its own, regardless of brokers' deaths."""

    def __init__(self, runtime, number, count, url):
        super().__init__(daemon=True)
        self._plan = (runtime, number, count, url)
        self.asked = threading.Event()
        self.answers = None
        self.error = None
        self.start()

    def run(self):
        runtime, number, count, url = self._plan
        try:
            with StubbornClient(runtime, window=256) as client:
                for index in range(count):
                    client.fetch(f"asker{number}", index, url.format(f"{number}-{index}"))
                self.asked.set()
                self.answers = client.collect(timeout=300)
                self.rest = [message for message in client.rest() if message.is_terminal]
        except (AssertionError, OSError) as error:
            self.error = error
            self.asked.set()


class ManyDeathsTests(TestCase):
    """With `EARSHOT_LONG=1` the numbers of transfers and deaths are those that the project guarantees."""

    TRANSFERS, CLIENTS = (10_000, 10) if LONG else (1_000, 4)
    SIZE = 700
    AWAITED = 1
    """Seconds for which a broker awaits the workers of the previous one. Transfers of a later worker may be fetched twice
    concurrently, as documented."""

    def ask(self, parts, origin):
        each = self.TRANSFERS // self.CLIENTS
        url = origin.url + "/slow/0.03?bytes=700&seed={}"
        return [Asker(parts.runtime, number, each, url) for number in range(self.CLIENTS)]

    def assert_all_answered_once(self, askers):
        for number, asker in enumerate(askers):
            asker.join(300)
            if asker.error:
                raise asker.error
            self.assertEqual(len(asker.answers), self.TRANSFERS // self.CLIENTS)
            self.assertEqual(asker.rest, [])
            for (_, request), messages in asker.answers.items():
                self.assertEqual(len(messages), 1, messages)
                self.assertResult(messages[0], body(self.SIZE, f"{number}-{request}"))

    def over_broker_deaths(self, deaths, end):
        # As under `serve`: nothing is fetched twice concurrently if the number of workers is known.
        arguments = ["--origin-limit", 48, "--expected-workers", 2]
        with Origin() as origin, Parts(workers=2, slots=32, arguments=arguments) as parts:
            askers = self.ask(parts, origin)
            slowest = 0
            for death in range(deaths):
                origin.await_total((death + 1) * self.TRANSFERS // (deaths + 1), timeout=120)
                end(parts)
                began = time.monotonic()
                parts.start_broker()
                observer = parts.client()
                eventually(lambda: len(observer.query("workers")["workers"]) == 2, "both workers are back", 30)
                slowest = max(slowest, time.monotonic() - began)
            self.assert_all_answered_once(askers)
            again = origin.total - self.TRANSFERS
            tell(f"{origin.total} requests for {self.TRANSFERS} answers over {deaths} ends of the broker, after each of"
                 f" which the workers were back in {slowest:.2f} s")
            if slowest > self.AWAITED:
                return 0
            self.assertLessEqual(origin.most_at_once, 48)
            twice = {}
            for request in origin.log():
                twice.setdefault(request.target, []).append(request)
            for requests in twice.values():
                for one, other in zip(requests, requests[1:]):
                    self.assertTrue((one.ended or one.aborted) <= other.started, "never twice at once")
            return again

    def test_every_client_has_every_answer_once_over_deaths_of_the_broker(self):
        deaths = 20 if LONG else 4
        again = self.over_broker_deaths(deaths, lambda parts: parts.broker.kill())
        # Messages that the broker had read and no client: a few each time.
        self.assertLess(again, 48 * deaths)

    def test_every_client_has_every_answer_once_over_upgrades(self):
        def upgrade(parts):
            parts.broker.signal(signal.SIGTERM)
            self.assertEqual(parts.broker.wait(), 0, parts.broker.describe())

        deaths = 20 if LONG else 4
        again = self.over_broker_deaths(deaths, upgrade)
        self.assertLess(again, 48 * deaths)

    def test_what_a_dead_worker_ran_runs_elsewhere_at_once(self):
        deaths = 100 if LONG else 10
        with Origin() as origin, Parts(workers=4, slots=24, arguments=["--origin-limit", 64]) as parts:
            askers = self.ask(parts, origin)
            moments = []
            for death in range(deaths):
                origin.await_total((death + 1) * self.TRANSFERS // (deaths + 1), timeout=120)
                victim = parts.workers.pop(death * 7 % len(parts.workers))
                moments.append(time.monotonic())
                victim.kill()
                parts.workers.append(parts.start("worker", "--runtime", parts.runtime, "--slots", 24))
                origin.catch_up()
                eventually(lambda: self.has_caught_up(origin), "what was cut off has run elsewhere")
            self.assert_all_answered_once(askers)
            self.tell_delays(origin, moments)

    def has_caught_up(self, origin):
        """Returns whether each recently interrupted transfer has completed since."""
        lately = origin.log()[-500:]
        ended = {request.target for request in lately if request.ended}
        return all(request.target in ended for request in lately if request.aborted)

    def tell_delays(self, origin, moments):
        """Prints the delays from a worker's death to the second request of each resource that it was fetching."""
        by_target = {}
        for request in origin.log():
            by_target.setdefault(request.target, []).append(request)
        delays = []
        for requests in by_target.values():
            for other in requests[1:]:
                delays.append(other.started - max(moment for moment in moments if moment <= other.started))
        tell(f"{len(delays)} transfers of {len(moments)} dead workers ran elsewhere after {milliseconds(delays):.0f} ms "
             f"(median), {milliseconds(delays, 99):.0f} ms (p99), {1000 * max(delays):.0f} ms (most)")
        # They must not wait for a heartbeat timeout. On an idle machine half of them take less than 50 ms.
        self.assertLess(milliseconds(delays), 200 if LONG else 2_000)


if __name__ == "__main__":
    unittest.main()
