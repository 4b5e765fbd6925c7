"""One user takes all that it can of a bus, of each thing in two ways: it is refused as `quota`, or loses its own. Another user is
served meanwhile.

Users are imitated here: a session of the administrator acts for `uid:N`. Those of `test_exhaustion_connections.py` are real.
"""

import itertools
import unittest

from support.harness import Bus, TestCase, remove_folder, temporary_folder
from support.origin import Origin, body
from support.processes import eventually
from support.puller import pull

MIB = 1 << 20
HOSTILE, NEIGHBOUR = 1001, 1002


class Bed(TestCase):
    """One bus for all tests of a class, and a client of the neighbour."""

    ARGUMENTS = ()
    WORKERS, SLOTS = 2, 16

    @classmethod
    def setUpClass(cls):
        cls.origin = cls.enterClassContext(Origin(ports=2))
        # One port for each user, so that they do not share the limit of an origin.
        cls.url, cls.quiet = cls.origin.urls
        cls.folder = temporary_folder()
        cls.addClassCleanup(remove_folder, cls.folder)
        cls.bus = cls.enterClassContext(cls.start())
        cls.administrator = cls.bus.client()
        cls.neighbour = cls.connect(NEIGHBOUR)
        cls.counter = itertools.count()

    @classmethod
    def start(cls):
        return Bus(workers=cls.WORKERS, slots=cls.SLOTS, origin_limit=100, folder=cls.folder, arguments=[
            "--users", "nobody,daemon", "--cache-folder", cls.folder / "cache", "--durable-folder", cls.folder / "durable",
            *cls.ARGUMENTS])

    @classmethod
    def connect(cls, user, **fields):
        """Returns a client that acts for a user."""
        client = cls.bus.client(hello=False)
        client.send("HELLO EAR/1", **{"principal": f"uid:{user}", "bodies": "pull", "window": 4096, **fields})
        welcome = client.receive()
        if welcome.verb != "WELCOME":
            raise AssertionError(welcome)
        return client

    def hostile(self, count=1, **fields):
        """Returns clients of the hostile user, which acknowledge nothing and are gone after the test."""
        clients = [self.connect(HOSTILE, **fields) for _ in range(count)]
        self.addCleanup(self.leave, *clients)
        for client in clients:
            client.hold()
        return clients

    def leave(self, *clients):
        """Ends clients, and waits until nothing of them is left."""
        for client in clients:
            client.close()
        self.await_requests(self.administrator, pending=0)

    def assertRefused(self, messages, code, *details):
        """The failures among messages have this code, and there are some. Its text has these words."""
        failures = [message for message in messages if message.verb == "FAILED"]
        self.assertEqual({failure.operands[2] for failure in failures}, {code})
        for detail in details:
            self.assertIn(detail, failures[0].fields["detail"])

    def assertServed(self):
        """A small request of the neighbour, a body of 1 MB and a request with one succeed, and nothing is refused."""
        client, turn = self.neighbour, next(self.counter)
        client.hold()
        for size in (1_000, 1_000_000):
            client.fetch("own", f"{turn}-{size}", f"{self.quiet}/bytes/{size}?seed={turn}", cache="no-store")
        client.fetch("own", f"{turn}-sent", f"{self.quiet}/bytes/10", body=bytes(MIB), method="POST", coalesce="no")
        answers = client.terminals(3) + client.rest()
        self.assertEqual(sorted((answer.verb, answer.fields.get("length")) for answer in answers),
                         [("RESULT", "10"), ("RESULT", "1000"), ("RESULT", "1000000")])
        [large] = [answer for answer in answers if "pull" in answer.fields]
        self.assertTrue(pull(client, large) == body(1_000_000, str(turn)))
        client.release()


class RequestTests(Bed):
    """A quarter of 60,000 requests."""

    ARGUMENTS = ["--requests", 60_000]
    QUOTA = 15_000

    def test_requests_of_one_connection_and_handlers_of_several(self):
        for count in (1, 4):
            clients = self.hostile(count)
            for number in range(self.QUOTA + 40):
                handler = f"h/{number}" if count > 1 else "h"
                clients[number % count].fetch(handler, number, f"{self.url}/gate/requests?{number}")
            refused = sum((client.rest() for client in clients), [])
            self.assertEqual(len(refused), 40)
            self.assertRefused(refused, "quota", "requests-per-user")
            self.assertServed()
            self.leave(*clients)

    def test_failures_without_a_subscriber_and_requests_that_wait_for_a_retry(self):
        for url, fields in (("ftp://host/", {"subscribe": "no"}), (f"{self.url}/status/500", {"retries": 20})):
            [client] = self.hostile()
            for number in range(self.QUOTA):
                client.fetch("h", number, f"{url}?{number}", **fields)
            client.rest()
            client.fetch("own", 1, self.url)
            self.assertRefused([client.terminal()], "quota", "requests-per-user")
            self.assertServed()
            client.remove("h")
            self.leave(client)

    def test_heads_of_many_fields_and_heads_of_long_urls(self):
        many, long = [(f"x-{number}", "y" * 1000) for number in range(30)], "z" * 7_900
        for fields, path, count in ((many, "", 350), ([], long, 2_900)):
            clients = self.hostile(4)
            for number in range(4 * count):
                clients[number % 4].fetch("h", number, f"{self.url}/gate/heads?{path}{number}", fields)
            self.assertRefused(sum((client.rest() for client in clients), []), "quota", "heads or bodies")
            self.assertServed()
            self.leave(*clients)

    def test_bodies_of_few_and_of_many_requests(self):
        for size in (MIB, 16 << 10):
            clients = self.hostile(4)
            for number in range(80 * MIB // size):
                clients[number % 4].fetch("h", number, f"{self.url}/gate/bodies", body=bytes(size), method="PUT", coalesce="no")
            self.assertRefused(sum((client.rest() for client in clients), []), "quota", "heads or bodies")
            self.assertServed()
            self.leave(*clients)

    def test_subscriptions_to_names_and_those_of_requests(self):
        clients = self.hostile(2)
        for number in range(99_000):
            clients[number % 2].send(f"SUBSCRIBE n/{number}")
        for client in clients:
            self.assertEqual(client.rest(), [])
        for number in range(2_000):
            clients[0].fetch(f"r/{number}", 1, "ftp://host/")
        answers = clients[0].rest()
        self.assertEqual([answer.verb for answer in answers].count("FAILED"), 1_000)
        errors = [answer for answer in answers if answer.verb == "ERROR"]
        self.assertEqual([error.operands for error in errors], [["quota"]] * 1_000)
        self.assertIn("a quarter of all subscriptions", errors[0].fields["detail"])
        clients[1].send("SUBSCRIBE subtree/")
        self.assertEqual(clients[1].expect("ERROR").operands, ["quota"])
        self.neighbour.send("SUBSCRIBE other")
        self.assertServed()


class BodyTests(Bed):
    """A quarter of 64 MiB of the spool."""

    ARGUMENTS = ["--spool-size", 64 * MIB, "--parts-size", 8 * MIB]
    QUOTA = 16 * MIB

    def test_files_and_bodies_in_messages_that_are_not_acknowledged(self):
        for size in (100_000, 60_000):
            [client] = self.hostile()
            fit, count = self.QUOTA // size, self.QUOTA // size + 20
            for number in range(count):
                client.fetch("h", number, f"{self.url}/bytes/{size}?seed={number}")
            answers = client.terminals(count)
            self.assertEqual([answer.verb for answer in answers].count("RESULT"), fit)
            self.assertRefused(answers, "quota", "spool-per-user")
            self.assertServed()
            client.release()
            client.fetch("h", "again", f"{self.url}/bytes/{size}?seed=again")
            self.assertEqual(client.terminal().verb, "RESULT")
            self.leave(client)

    def test_results_without_a_subscriber_with_files_and_with_bodies_in_messages(self):
        for size in (100_000, 60_000):
            [client] = self.hostile()
            fit, count = self.QUOTA // size, self.QUOTA // size + 20
            for number in range(count):
                client.fetch("h", number, f"{self.url}/bytes/{size}?seed={number}", subscribe="no")
            eventually(lambda: self.origin.count(f"/bytes/{size}") and not self.origin.running
                       and client.query("status")["requests"]["pending"] == count, "all are held")
            self.assertServed()
            client.send("SUBSCRIBE h")
            answers = client.terminals(count)
            self.assertEqual([answer.verb for answer in answers].count("RESULT"), fit)
            self.assertRefused(answers, "quota", "spool-per-user")
            self.leave(client)

    def test_a_body_without_end_and_several_that_grow(self):
        [client] = self.hostile()
        client.fetch("endless", 1, f"{self.url}/bytes/1000000000")
        self.assertRefused([client.terminal()], "quota", "spool-per-user")
        self.assertServed()
        for number in range(6):
            client.fetch("h", number, f"{self.url}/stall/{4 * MIB}?{number}")
        self.assertRefused([client.terminal()], "quota", "spool-per-user")
        self.assertServed()

    def test_parts_of_requests_that_are_retried(self):
        # Each attempt ends after 2 MiB more. Without a bound the parts would fill the spool.
        self.origin.publish("broken", 64 * MIB, plan=lambda number, start: {"cut": 2 * MIB})
        [client] = self.hostile()
        for number in range(60):
            client.fetch("h", number, f"{self.url}/parts/broken?{number}", retries=20)
        for answers in (30, 50, 70):
            eventually(lambda: self.origin.published["broken"].answers > answers, f"{answers} attempts have ended")
            self.assertServed()

    def test_parts_of_requests_that_were_removed(self):
        self.origin.publish("own", 3 * MIB, plan=lambda number, start: {} if start else {"held": 2 * MIB})
        self.begin(self.neighbour, f"{self.quiet}/parts/own")
        self.origin.publish("left", 3 * MIB, plan=lambda number, start: {"held": 2 * MIB})
        [client] = self.hostile()
        for number in range(8):
            self.begin(client, f"{self.url}/parts/left?{number}")
        self.neighbour.fetch("own", "part", f"{self.quiet}/parts/own")
        self.assertEqual(self.neighbour.terminal().fields["source"], "resumed")
        self.assertServed()

    def begin(self, client, url):
        """Removes a request of which 2 MiB have arrived, and waits until the part is stored."""
        client.fetch("part", 1, url, progress=50)
        while int(client.expect("PROGRESS").operands[2].split("/")[0]) < 2 * MIB:
            pass
        client.remove("part")
        eventually(lambda: not self.bus.spooled(".part", ".kept"), "the part has left the spool")


class StoreTests(Bed):
    """A quarter of 16 MiB of durable requests, and of 64 MiB of cookies; the cache has 20 MB."""

    ARGUMENTS = ["--cache-size", 20_000_000, "--durable-size", 16 * MIB]
    COOKIE = "x" * 4_000

    def setUp(self):
        self.neighbour.send("SUBSCRIBE login")
        self.neighbour.send(f"COOKIES login {self.quiet}", [("set-cookie", "sid=secret; path=/")])

    def assertLoggedIn(self):
        cookies = self.neighbour.query("cookies login")["cookies"]
        self.assertEqual([(cookie["name"], cookie["value"]) for cookie in cookies], [("sid", "secret")])

    def fill(self, client, root, domains):
        """Adds 45 cookies of 4,000 bytes for each of these domains."""
        client.send(f"SUBSCRIBE {root}")
        for domain, part in itertools.product(domains, range(3)):
            client.send(f"COOKIES {root} http://site{domain}.org/",
                        [("set-cookie", f"c{part}-{number}={self.COOKIE}") for number in range(15)])
        return client.rest()

    def test_jars_and_cookies_of_one_jar(self):
        [client] = self.hostile()
        # Two jars of 12.5 and 4.2 MB leave room for few others.
        self.assertEqual(self.fill(client, "large", range(66)) + self.fill(client, "other", range(22)), [])
        for number in range(60):
            client.send(f"SUBSCRIBE small{number}")
            client.send(f"COOKIES small{number} {self.url}", [("set-cookie", f"a={self.COOKIE}")])
        refused = client.expect("ERROR")
        self.assertEqual(refused.operands, ["quota"])
        self.assertIn("cookie jars of this user", refused.fields["detail"])
        client.fetch("further", 1, f"{self.url}/set-cookie/a=b", cookies="yes")
        self.assertRefused([client.terminal()], "quota", "cookie jars of this user")
        self.assertLoggedIn()
        client.rest()
        self.assertEqual(self.fill(client, "other", range(22, 40)), [], "it grows, and loses its own")
        client.fetch("further", 2, f"{self.url}/set-cookie/a=b", cookies="yes")
        self.assertEqual(client.terminal().verb, "RESULT")
        self.assertLoggedIn()
        self.neighbour.fetch("login", "sent", f"{self.quiet}/headers", cookies="yes", cache="no-store")
        self.assertIn(b"sid=secret", self.neighbour.terminal().content())
        self.assertServed()

    def test_many_small_stored_responses_and_few_large_ones(self):
        def kept(client, name, size):
            client.fetch("cached", name, f"{self.quiet}/kept/{name}?cc=max-age=1000&bytes={size}")
            return client.terminal(60).fields["source"]

        own = [f"own{number}" for number in range(5)]
        self.assertEqual({kept(self.neighbour, name, 100_000) for name in own}, {"network"})
        for count, size in ((400, 60_000), (6, 6_000_000)):
            [client] = self.hostile()
            client.release()
            for number in range(count):
                kept(client, f"hostile{size}-{number}", size)
            self.assertEqual({kept(self.neighbour, name, 100_000) for name in own}, {"cache"})
            self.assertServed()
            self.leave(client)

    def test_durable_requests_and_durable_results(self):
        [client] = self.hostile()
        for number in range(600):
            client.fetch("rows", number, f"{self.url}/gate/durable?{'z' * 7_900}{number}", durable="yes", subscribe="no")
        answers = [client.receive() for _ in range(600)]
        self.assertGreater([answer.verb for answer in answers].count("ACCEPTED"), 450)
        self.assertRefused(answers, "quota", "durable-per-user")
        self.assertDurable("rows")
        client.remove("rows")
        for number in range(100):
            client.fetch("results", number, f"{self.url}/bytes/60000?seed={number}", durable="yes", subscribe="no")
        self.assertEqual([client.receive().verb for _ in range(100)], ["ACCEPTED"] * 100)
        eventually(lambda: {row["state"] for row in client.query("requests")["requests"]} == {"held"}, "all have ended")
        client.send("SUBSCRIBE results")
        answers = client.terminals(100)
        self.assertGreater([answer.verb for answer in answers].count("RESULT"), 50)
        self.assertRefused(answers, "not-stored")
        self.assertDurable("results")
        client.release()
        client.remove("results")

    def assertDurable(self, name):
        """A durable request of the neighbour and its result are stored."""
        self.neighbour.fetch("kept", name, f"{self.quiet}/bytes/1000000?seed={name}", durable="yes", subscribe="no")
        self.assertEqual(self.neighbour.expect("ACCEPTED", "kept").verb, "ACCEPTED")
        eventually(lambda: self.neighbour.query(f"why kept {name}")["state"] == "held", "it is stored")
        self.neighbour.send("SUBSCRIBE kept")
        self.assertEqual(self.neighbour.terminal().fields.get("length"), "1000000")
        self.neighbour.send("UNSUBSCRIBE kept")
        self.assertServed()


if __name__ == "__main__":
    unittest.main()
