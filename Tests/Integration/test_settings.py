"""Settings change at run time, from files, arguments and clients, without any loss."""

import collections
import os
import random
import shutil
import signal

from support.client import Client
from support.harness import Bus, Commands, TestCase, temporary_folder
from support.origin import Origin, body
from support.processes import Watched, eventually, kill


def most_at_once(requests):
    """Returns the maximum number of concurrent requests of each port."""
    steps = [(r.started, 1, r.port) for r in requests]
    steps += [(r.ended or r.aborted, -1, r.port) for r in requests if not r.unfinished]
    now, most = collections.Counter(), collections.Counter()
    for _, step, port in sorted(steps):
        now[port] += step
        most[port] = max(most[port], now[port])
    return most


class UnderLoadTests(TestCase):
    CLIENTS = 4
    CHANGES = 100 if os.environ.get("EARSHOT_LONG") else 30
    READ = 8  # Terminals each client reads between two changes.
    MOST = 8

    def a_change(self, pick, urls):
        """Returns a random setting in the form of SET, and its limit."""
        kind = pick.randrange(10)
        if kind < 3:
            return f"workers {pick.randint(1, 4)}", 0
        if kind < 5:
            return f"slots {pick.choice([1, 2, 4, 16, 64])}", 0
        limit = pick.randint(1, self.MOST)
        if kind < 7:
            return f"origin-limit {limit}", limit
        if kind == 7:
            return f"origin-spacing {pick.choice(['0', '0.001', '0.003'])}", 0
        pattern = pick.choice([*urls, "127.0.0.1"])
        if kind == 8:
            return f"origin {pattern} limit={limit} spacing={pick.choice(['0', '0.002'])}", limit
        return f"origin {pattern} default", 0

    def test_changes_of_limits_pool_and_rules_under_load_lose_nothing(self):
        seed = int(os.environ.get("EARSHOT_TEST_SEED", "1"))
        pick = random.Random(seed)
        each = self.CHANGES * self.READ
        with Origin(ports=4) as origin, Bus(workers=2, slots=16) as bus:
            clients = [bus.client() for _ in range(self.CLIENTS)]
            for index in range(each):
                for number, client in enumerate(clients):
                    url = origin.urls[pick.randrange(4)]
                    client.fetch(f"c{number}/h{index % 7}", index, f"{url}/slow/0.004?bytes=300&seed={number}-{index}")
            setter = bus.client()
            answers, largest = [[] for _ in clients], 6
            for step in range(self.CHANGES):
                setting, limit = self.a_change(pick, origin.urls)
                largest = max(largest, limit)
                self.assertEqual(setter.set(setting).operands, setting.split(" "), f"seed {seed}, change {step}")
                for client, read in zip(clients, answers):
                    read += client.terminals(self.READ, timeout=60)
            for number, (client, read) in enumerate(zip(clients, answers)):
                self.assertEqual(client.rest(), [], "each request has one terminal")
                self.assertEqual({int(m.id[1]) for m in read}, set(range(each)))
                for message in read:
                    self.assertResult(message, body(300, f"{number}-{message.id[1]}"))
            self.assertEqual(origin.total, self.CLIENTS * each, "each was fetched once")
            most = most_at_once(origin.log())
            self.assertLessEqual(max(most.values()), largest, f"seed {seed}: {most}")
            ledger = self.balance(setter)
            self.assertEqual(ledger["requests"]["answered"], self.CLIENTS * each)
            self.assertEqual(ledger["deliveries"]["acknowledged"], self.CLIENTS * each)
            self.await_pool(setter, int(setter.settings()["workers"][0]))
            self.the_last_word_holds(origin, bus, setter)

    def the_last_word_holds(self, origin, bus, setter):
        """The last setting is in force for an origin from then on."""
        before = origin.total
        for name in setter.settings():
            if name.startswith("origin "):
                setter.set(f"{name} default")
        for setting in ("origin-limit 2", f"origin {origin.urls[1]} limit=1", "origin-spacing 0", "slots 64"):
            setter.set(setting)
        client = bus.client()
        for index in range(60):
            client.fetch("last", index, f"{origin.urls[index % 2]}/slow/0.01?bytes=9&seed={index}")
        client.terminals(60)
        most = most_at_once(origin.log()[before:])
        self.assertLessEqual([most[int(url.rpartition(":")[2])] for url in origin.urls[:2]], [2, 1])

    def await_pool(self, client, wanted):
        eventually(lambda: len(client.query("workers")["workers"]) == wanted,
                   lambda: f"{wanted} workers: {client.query('workers')['workers']}")


class PoolTests(TestCase):
    def held_by_two(self, origin, bus):
        """Returns a client with one transfer in each of two workers."""
        client = bus.client()
        for index in range(2):
            client.fetch("pool", index, f"{origin.urls[index]}/gate/pool?bytes=70")
        origin.await_running(2)
        return client

    def test_a_surplus_worker_finishes_what_it_runs_and_is_not_started_again(self):
        with Origin(ports=2) as origin, Bus(workers=2, slots=1, arguments=["--drain-seconds", "600"]) as bus:
            client = self.held_by_two(origin, bus)
            first = [Watched(pid) for pid in bus.workers]
            self.assertEqual(client.set("workers 1").operands, ["workers", "1"])
            self.assertFalse(any(process.await_death(0.3) for process in first), "both still work")
            origin.open_gate("pool")
            for message in client.terminals(2):
                self.assertResult(message, body(70))
            eventually(lambda: sum(process.await_death(0) for process in first) == 1, "one of them leaves")
            eventually(lambda: len(client.query("workers")["workers"]) == 1, "and the broker knows")
            self.assertEqual(origin.total, 2, "fetched once each")
            client.fetch("pool", 3, f"{origin.url}/bytes/5")
            self.assertResult(client.terminal(), body(5))
            for process in first:
                process.close()

    def test_a_surplus_worker_that_takes_too_long_gives_up_and_nothing_is_lost(self):
        with Origin(ports=2) as origin, Bus(workers=2, slots=1) as bus:
            client = self.held_by_two(origin, bus)
            client.set("drain-seconds 0.1")
            client.set("workers 1")
            client.set("slots 2")
            origin.await_total(3)
            origin.open_gate("pool")
            for message in client.terminals(2):
                self.assertResult(message, body(70))
            self.assertEqual(self.balance(client)["requests"]["answered"], 2)

    def test_what_is_set_survives_a_killed_broker(self):
        with Bus(workers=1) as bus:
            client = bus.client()
            wanted = {"workers": "3", "slots": "7", "origin-limit": "4", "drain-seconds": "2.5",
                      "origin *.example.org": "limit=2 spacing=0.25"}
            client.set("origin gone.example limit=1")
            for name, value in wanted.items():
                self.assertEqual(client.set(f"{name} {value}").verb, "CHANGED")
            client.set("origin gone.example default")
            for _ in range(2):
                broker = bus.broker
                kill(broker)
                eventually(lambda: bus.broker != broker, "another broker")
                settings = bus.client().settings()
                self.assertEqual({name: settings[name] for name in wanted},
                                 {name: (value, "set") for name, value in wanted.items()})
                self.assertNotIn("origin gone.example", settings)
            client = bus.client()
            eventually(lambda: [w["slots"] for w in client.query("workers")["workers"]] == [7, 7, 7],
                       lambda: f"three workers of seven slots: {client.query('workers')}")


class FileTests(TestCase):
    def setUp(self):
        self.folder = temporary_folder()
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.file = self.folder / "settings.toml"

    def write(self, text):
        self.file.write_text(text)

    def bus(self):
        return Bus(workers=1, folder=self.folder, arguments=("--config", self.file))

    def test_SIGHUP_takes_a_changed_file_in_and_forgets_what_was_set(self):
        self.write('origin-limit = 3\ncool-down = 1.5\n[origin."a.example"]\nlimit = 1\n')
        with self.bus() as bus:
            client = bus.client()
            settings = client.settings()
            self.assertEqual(settings["origin-limit"], ("3", str(self.file)))
            self.assertEqual(settings["cool-down"], ("1.5", str(self.file)))
            self.assertEqual(settings["origin a.example"], ("limit=1", str(self.file)))
            self.assertEqual(settings["slots"], ("64", "flag"))
            client.set("origin-limit 9")
            client.set("drain-seconds 1")
            self.write('slots = 5\nrequests = 77\n[origin."b.example"]\nspacing = 0.5\n')
            bus.program.signal(signal.SIGHUP)
            bus.program.await_line("read again")
            eventually(lambda: client.settings()["requests"][0] == "77", "the broker takes it in")
            settings = client.settings()
            self.assertEqual(settings["origin-limit"], ("6", "default"))
            self.assertEqual(settings["drain-seconds"], ("10", "default"))
            self.assertEqual(settings["slots"], ("64", "flag"), "arguments are stronger")
            self.assertEqual([name for name in settings if name.startswith("origin ")], ["origin b.example"])
            self.assertEqual(client.set("origin-limit 2").verb, "CHANGED")
            kill(bus.broker)
            self.assertHolds(bus.client(), origin_limit="2", requests="77")

    def test_a_wrong_file_leaves_things_as_they_are(self):
        self.write("origin-limit = 3\n")
        with self.bus() as bus:
            client = bus.client()
            client.set("slots 9")
            before = client.settings()
            for text in ("origin-limt = 4\n", "origin-limit = 1\0\n"):
                self.write(text)
                count = bus.program.stderr.count("stay as they are")
                bus.program.signal(signal.SIGHUP)
                eventually(lambda: bus.program.stderr.count("stay as they are") > count, f"a refusal of {text!r}")
            self.file.unlink()
            bus.program.signal(signal.SIGHUP)
            bus.program.await_line("there is no such file")
            self.assertEqual(client.settings(), before)
            # A new broker gets the settings in force, not those of the files.
            kill(bus.broker)
            self.assertHolds(bus.client(), origin_limit="3", slots="9")
            bus.program.await_line(f"{self.file}: origin-limt: unknown setting; did you mean origin-limit?")

    def test_serve_does_not_start_with_a_wrong_file(self):
        self.write("origin-limit = 3\nslotz = 4\n")
        commands = Commands(self.folder / "run", self.folder)
        for arguments in (("serve", "--config", self.file), ("broker", "--config", self.file),
                          ("config", "--config", self.file)):
            got = commands.run(*arguments)
            self.assertEqual(got.status, 78, got.describe())
            self.assertIn(f"{self.file}: slotz: unknown setting; did you mean slots?", got.stderr)
        commands.environment["EARSHOT_ORIGIN_LIMIT"] = "many"
        got = commands.run("config")
        self.assertEqual(got.status, 78, got.describe())
        self.assertIn("EARSHOT_ORIGIN_LIMIT: origin-limit must be 1 to 10000", got.stderr)

    def test_config_tells_each_value_with_its_source(self):
        own = self.folder / "config" / "earshot" / "config.toml"
        own.parent.mkdir(parents=True)
        own.write_text("slots = 3\norigin-limit = 4\n")
        commands = Commands(self.folder / "run", self.folder)
        commands.environment["EARSHOT_ORIGIN_LIMIT"] = "5"
        got = commands.run("config")
        rows = {line.split()[0]: line.split()[1:] for line in got.stdout.decode().splitlines()}
        self.assertEqual(rows["slots"], ["3", str(own)])
        self.assertEqual(rows["origin-limit"], ["5", "EARSHOT_ORIGIN_LIMIT"])
        self.assertEqual(rows["drain-seconds"], ["10", "default"])
        with Bus() as bus:
            self.assertEqual(set(rows), set(bus.client().settings()) | {"users", "listen"})

    def test_a_private_bus_reads_the_file_too(self):
        own = self.folder / "config" / "earshot" / "config.toml"
        own.parent.mkdir(parents=True)
        own.write_text("origin-limit = 1\n")
        commands = Commands(self.folder / "run", self.folder)
        with Origin() as origin:
            urls = [f"{origin.url}/slow/0.02?bytes=9&seed={index}" for index in range(6)]
            got = commands.run("get", "-d", self.folder / "out", *urls)
            self.assertEqual(got.status, 0, got.describe())
            self.assertEqual(origin.most_at_once, 1)
            own.write_text("origin-limit = 0\n")
            got = commands.run("get", urls[0])
            self.assertEqual(got.status, 78, got.describe())
            self.assertIn("origin-limit must be 1 to 10000", got.stderr)
        commands.await_no_survivors()


class CommandTests(TestCase):
    def test_set_changes_and_tells(self):
        with Bus(workers=1) as bus:
            got = bus.run("set", "origin", "HTTPS://Example.org:443", "spacing=0.50", "limit=2")
            self.assertEqual((got.status, got.stdout), (0, b"origin https://example.org limit=2 spacing=0.5\n"))
            listed = bus.run("set")
            self.assertEqual(listed.stdout, bus.run("config", "--running").stdout)
            rows = [line.split() for line in listed.stdout.decode().splitlines()]
            self.assertIn(["origin", "https://example.org", "limit=2", "spacing=0.5", "set"], rows)
            self.assertIn(["workers", "1", "flag"], rows)
            for words, sentence in ((("origin-limt", "3"), "did you mean origin-limit?"), (("slots", "0"), "1 to 10000"),
                                    (("slots",), "slots takes one value")):
                got = bus.run("set", *words)
                self.assertEqual(got.status, 64, got.describe())
                self.assertIn(sentence, got.stderr)

    def test_a_broker_alone_reads_its_file_again_and_has_no_workers_to_set(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        file = folder / "settings.toml"
        file.write_text("origin-limit = 3\nworkers = 7\n")
        commands = Commands(folder / "run", folder)
        broker = commands.start("broker", "--runtime", commands.runtime, "--spool", folder / "spool",
                                "--config", file)
        try:
            with Client(commands.runtime) as client:
                refusal = client.set("workers 2")
                self.assertEqual((refusal.verb, refusal.operands), ("ERROR", ["bad-setting"]))
                self.assertIn("without a supervisor", refusal.fields["detail"])
                self.assertHolds(client, origin_limit="3", workers="-", slots="-")
                client.set("slots 3")
                file.write_text("origin-limit = 4\n")
                broker.signal(signal.SIGHUP)
                broker.await_line("read again")
                self.assertHolds(client, origin_limit="4", slots="-")
                file.write_text("nonsense\n")
                broker.signal(signal.SIGHUP)
                broker.await_line("stay as they are")
                self.assertHolds(client, origin_limit="4")
        finally:
            broker.signal(signal.SIGTERM)
            self.assertEqual(broker.wait(), 0, broker.describe())
