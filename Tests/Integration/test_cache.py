"""Responses are stored, used, revalidated and evicted according to RFC 9111 and the Fetch standard, across brokers'
lifetimes."""

import hashlib
import json
import os
import random
import signal
import unittest.mock
import urllib.parse

from support.harness import Bus, TestCase, remove_folder, temporary_folder
from support.origin import Origin, body, kept_seed
from support.processes import eventually


class CacheTestCase(TestCase):
    bus_options = {}

    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.bus = self.enterContext(Bus(workers=1, **self.bus_options))
        self.client = self.bus.client()
        self.request_count = 0

    def url(self, name, **query):
        return f"{self.origin.url}/kept/{name}?{urllib.parse.urlencode(query)}"

    def get(self, url, headers=(), client=None, **fields):
        """Returns the terminal of a request."""
        self.request_count += 1
        client = client or self.client
        client.fetch("cache", self.request_count, url, headers, **fields)
        return client.terminal()

    def assertFrom(self, source, message, name, size=100, version=0, variant=""):
        self.assertResult(message, body(size, kept_seed(name, version, variant)))
        self.assertEqual(message.fields["source"], source, message)

    def requests(self, name):
        return self.origin.count(f"/kept/{name}")


class ModeTests(CacheTestCase):
    def test_a_fresh_answer_is_used_without_asking(self):
        url = self.url("a", cc="max-age=1000")
        self.assertFrom("network", self.get(url), "a")
        message = self.get(url)
        self.assertFrom("cache", message, "a")
        self.assertIn("age", [name.lower() for name, _ in message.headers])
        self.assertEqual(self.requests("a"), 1)

    def test_a_stale_answer_is_validated(self):
        url = self.url("a", cc="max-age=0")
        self.assertFrom("network", self.get(url), "a")
        self.assertFrom("revalidated", self.get(url), "a")
        self.assertEqual(self.origin.log("/kept/a")[1].headers["if-none-match"], '"0"')
        self.origin.versions["a"] = 1
        self.assertFrom("network", self.get(url), "a", version=1)
        self.assertFrom("revalidated", self.get(url), "a", version=1)

    def test_each_mode(self):
        url = self.url("a", cc="max-age=1000")
        self.assertFailed(self.get(url, cache="only-if-cached"), "not-cached")
        self.assertEqual(self.requests("a"), 0)
        self.assertFrom("network", self.get(url, cache="no-store"), "a")
        self.assertFailed(self.get(url, cache="only-if-cached"), "not-cached")
        self.assertFrom("network", self.get(url, cache="reload"), "a")
        self.assertFrom("cache", self.get(url, cache="only-if-cached"), "a")
        self.assertFrom("cache", self.get(url, cache="force-cache"), "a")
        self.assertFrom("revalidated", self.get(url, cache="no-cache"), "a")
        self.origin.versions["a"] = 1
        self.assertFrom("network", self.get(url, cache="no-store"), "a", version=1)
        self.assertFrom("cache", self.get(url), "a")
        self.assertFrom("network", self.get(url, cache="reload"), "a", version=1)
        self.assertFrom("cache", self.get(url), "a", version=1)
        self.assertNotIn("if-none-match", self.origin.log("/kept/a")[-1].headers)

    def test_100_clients_are_one_validation(self):
        url = self.url("a", cc="max-age=0", bytes=1000)
        self.get(url)
        clients = [self.bus.client() for _ in range(100)]
        # They arrive while their origin is full except for the slot of class high, so that all wait before it is asked.
        for number in range(5):
            self.client.fetch("full", number, f"{self.origin.url}/gate/full?{number}")
        self.origin.await_count("/gate/full", 5)
        for index, client in enumerate(clients):
            client.fetch(f"many/{index}", 1, url)
        self.await_requests(self.client, pending=105)
        self.origin.open_gate("full")
        for client in clients:
            self.assertFrom("revalidated", client.terminal(), "a", 1000)
        self.assertEqual(self.requests("a"), 2)
        self.balance(self.client)


class CommandTests(CacheTestCase):
    def get_command(self, *arguments):
        program = self.bus.run("get", *arguments)
        self.assertEqual(program.status, 0, program.describe())
        return program

    def test_get_asks_the_server_unless_it_stated_how_long_an_answer_is_fresh(self):
        estimated = self.url("a", **{"last-modified": "Thu, 01 Jan 2015 00:00:00 GMT"})
        stated = self.url("b", cc="max-age=1000")
        for url in (estimated, stated):
            self.get_command(url)
            self.get_command(url)
        self.assertEqual((self.requests("a"), self.requests("b")), (2, 1))
        self.assertIn("if-none-match", self.origin.log("/kept/a")[1].headers)
        # Programs keep the estimate, and so does a request for it.
        self.assertFrom("cache", self.get(estimated), "a")
        self.get_command("--cache", "default", estimated)
        self.assertEqual(self.requests("a"), 2)

    def test_get_says_what_came_from_the_cache(self):
        stated, stale = self.url("a", cc="max-age=1000"), self.url("b", cc="max-age=0")
        first = self.get_command("-v", "-d", "out", stated, stale)
        self.assertNotIn("cache", first.stderr)
        second = self.get_command("-v", "-d", "again", stated, stale)
        self.assertIn("/kept/a?...: from the cache, fresh\n", second.stderr)
        self.assertIn("/kept/b?...: from the cache, revalidated\n", second.stderr)
        self.assertRegex(second.stderr, r"earshot: 2 files, .*, 2 from the cache\n$")
        single = self.get_command(stated)
        self.assertRegex("\n".join(single.messages), r"^earshot: 1 file, .*, 1 from the cache$")
        self.assertEqual(self.get_command("-q", stated).stderr, "")
        lines = [json.loads(line) for line in self.get_command("--json", stated, stale).stdout.splitlines()]
        self.assertEqual({line["index"]: line["source"] for line in lines}, {1: "cache", 2: "revalidated"})


class LifeTests(CacheTestCase):
    def next_broker(self):
        """Kills the broker. Returns a client of the next one."""
        broker = self.bus.broker
        os.kill(broker, signal.SIGKILL)
        eventually(lambda: self.bus.broker != broker, "there is another broker")
        self.client = self.bus.client()

    def test_it_outlives_a_broker(self):
        small, large = self.url("a", cc="max-age=1000"), self.url("b", cc="max-age=1000", bytes=300_000)
        varied = self.url("c", cc="max-age=1000", vary="cookie")
        self.get(small), self.get(large), self.get(varied, [("cookie", "secret=1")])
        self.await_kept(3)
        self.next_broker()
        self.assertFrom("cache", self.get(small), "a")
        self.assertFrom("cache", self.get(large), "b", 300_000)
        self.assertFrom("cache", self.get(varied, [("cookie", "secret=1")]), "c", variant="secret=1")
        self.assertFrom("network", self.get(varied, [("cookie", "secret=2")]), "c", variant="secret=2")
        self.await_kept(4)
        written = b"".join(path.read_bytes() for path in self.folder.rglob("*") if path.is_file())
        self.assertNotIn(b"secret", written)

    def test_it_is_whole_after_kill_9_while_it_stores(self):
        for turn in range(3):
            for number in range(60):
                size = 1000 if number % 2 else 100_000
                self.client.fetch("many", number, self.url(f"{turn}-{number}", cc="max-age=1000", bytes=size))
            self.client.terminals(20)
            self.next_broker()
            self.assertEqual(self.verify(), 0)
        for number in range(60):
            size = 1000 if number % 2 else 100_000
            self.assertResult(self.get(self.url(f"0-{number}", cc="max-age=1000", bytes=size)),
                              body(size, kept_seed(f"0-{number}")))

    def test_what_a_client_holds_outlives_its_eviction(self):
        holder = self.bus.client(window=1)
        holder.fetch("hold", 1, self.url("held", cc="max-age=1000", bytes=300_000))
        # Its terminal has arrived but is not read, so it is not acknowledged.
        self.await_requests(self.client, answered=1)
        self.client.set("cache-size 1000000")
        for number in range(10):
            self.get(self.url(f"{number}", cc="max-age=1000", bytes=300_000))
        eventually(lambda: len(list((self.folder / "bodies").iterdir())) <= 3, "the rest is evicted")
        message = holder.terminal()
        self.assertFrom("network", message, "held", 300_000)
        self.assertFailed(self.get(self.url("0", cc="max-age=1000", bytes=300_000), cache="only-if-cached"), "not-cached")
        self.assertFrom("cache", self.get(self.url("9", cc="max-age=1000", bytes=300_000)), "9", 300_000)
        self.assertEqual(self.verify(), 0)

    def test_a_body_that_is_gone_or_changed_in_mid_run_is_fetched_again(self):
        """Nothing wrong is delivered, whatever happened to the files."""
        def spoil(path, turn):
            content = path.read_bytes()
            path.chmod(0o600)
            if turn == 0:
                path.unlink()
            elif turn == 1:
                path.write_bytes(b"x" + content[1:])  # The same length.
            elif turn == 2:
                path.write_bytes(content[:-1])
            elif turn == 3:
                path.unlink()
                path.symlink_to("/etc/passwd")
            else:
                path.unlink()
                path.write_bytes(b"x" * len(content))

        for turn in range(5):
            name = f"spoiled-{turn}"
            url = self.url(name, cc="max-age=1000", bytes=300_000)
            self.assertFrom("network", self.get(url), name, 300_000)
            self.await_kept(turn + 1)
            self.assertFrom("cache", self.get(url), name, 300_000)
            (path,) = [path for path in (self.folder / "bodies").iterdir()
                       if path.name == hashlib.sha256(body(300_000, kept_seed(name))).hexdigest()]
            spoil(path, turn)
            self.assertFrom("network", self.get(url), name, 300_000)
            self.assertFrom("cache", self.get(url), name, 300_000)
            self.assertEqual(self.requests(name), 2)
        self.assertEqual(self.verify(), 0)
        self.balance(self.client)

    def test_a_size_of_0_empties_it(self):
        url = self.url("a", cc="max-age=1000")
        self.get(url)
        self.client.set("cache-size 0")
        eventually(lambda: self.get(url, cache="only-if-cached").verb == "FAILED", "nothing is kept any more")
        self.assertFrom("network", self.get(url), "a")
        self.assertFrom("network", self.get(url), "a")

    def test_a_second_broker_goes_without(self):
        url = self.url("a", cc="max-age=1000")
        self.get(url)
        with Bus(workers=1, arguments=["--cache-folder", self.folder]) as other:
            client = other.client()
            self.assertFrom("network", self.get(url, client=client), "a")
            self.assertFrom("network", self.get(url, client=client), "a")
            other.program.await_line("goes without")
        self.assertFrom("cache", self.get(url), "a")

    @property
    def folder(self):
        return self.bus.runtime / "cache"

    def await_kept(self, count):
        def kept():
            return self.bus.run("cache", "list", "--runtime", self.bus.runtime).stdout.count(b"\n") == count
        eventually(kept, f"{count} answers are in the index")

    def verify(self):
        return self.bus.run("cache", "verify", "--runtime", self.bus.runtime).status


class DamagedLogTests(TestCase):
    """The service is killed while it stores responses, and SQLite's log of the last changes is damaged as by a power failure."""

    COUNT = 60

    def fetch(self, origin, bus, **fields):
        """Requests all URLs, a sixth of them with a body in a file."""
        client = bus.client()
        for number in range(self.COUNT):
            size = 100_000 if number % 6 == 0 else 900
            client.fetch("all", number, f"{origin.url}/kept/{number}?cc=max-age%3D1000&bytes={size}", **fields)
        return client

    def check(self, message):
        """Asserts that the body is the one that the origin published with this ETag."""
        tags = [value.strip(' "') for name, value in message.headers if name.lower() == "etag"]
        self.assertResult(message, body(int(message.fields["length"]), kept_seed(message.operands[1], tags[0])))

    def damage(self, log, generator, is_flipped):
        content = bytearray(log.read_bytes())
        position = generator.randrange(len(content))
        if is_flipped:
            content[position] ^= 1 << generator.randrange(8)
        else:
            del content[position:]
        log.write_bytes(content)

    def test_no_body_is_wrong_and_a_url_is_fetched_once_more_at_most(self):
        for turn in range(4):
            folder = temporary_folder()
            self.addCleanup(remove_folder, folder)
            generator = random.Random(turn)
            with self.subTest(turn), Origin() as origin:
                with Bus(workers=1, folder=folder) as bus:
                    for message in self.fetch(origin, bus).terminals(self.COUNT):
                        self.check(message)
                    origin.versions.update({str(number): 1 for number in range(0, self.COUNT, 2)})
                    for message in self.fetch(origin, bus, cache="reload").terminals(generator.randrange(self.COUNT)):
                        self.check(message)
                    bus.kill()
                self.damage(folder / "run" / "cache" / "index.sqlite-wal", generator, turn % 2 == 0)
                with Bus(workers=1, folder=folder) as bus:
                    before = origin.total
                    for _ in range(2):
                        for message in self.fetch(origin, bus).terminals(self.COUNT):
                            self.check(message)
                    paths = [request.path for request in origin.log()[before:]]
                    self.assertEqual(len(paths), len(set(paths)))
                    self.assertEqual(bus.run("cache", "verify", "--runtime", bus.runtime).status, 0)


class PrivateBusTests(TestCase):
    def test_get_uses_the_users_cache(self):
        with Origin() as origin, unittest.mock.patch.dict(os.environ), Bus(workers=1) as bus:
            bus.environment["XDG_CACHE_HOME"] = str(bus.folder / "home")
            bus.environment["EARSHOT_RUNTIME"] = str(bus.folder / "nobody")
            url = f"{origin.url}/kept/a?cc=max-age%3D1000"
            for count, arguments in ((1, []), (1, []), (2, ["--no-cache"]), (3, ["--cache", "reload"]), (3, [])):
                self.assertEqual(bus.run("get", *arguments, url).stdout, body(100, kept_seed("a")))
                self.assertEqual(origin.count("/kept/a"), count)
