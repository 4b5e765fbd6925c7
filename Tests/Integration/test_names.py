"""Host names: each is resolved once, and no lookup delays requests that do not need it."""

import os
import socket
import time
import urllib.parse

from support.figures import report
from support.harness import Bus, TestCase
from support.names import NameServer
from support.origin import Origin

LONG = bool(os.environ.get("EARSHOT_LONG"))


class FullListener:
    """Socket on ::1 with a full queue: connections get no response."""

    def __init__(self, port):
        self._listener = socket.create_server(("::1", port), family=socket.AF_INET6, backlog=0)
        self._clients = []
        for _ in range(3):
            client = socket.socket(socket.AF_INET6)
            client.setblocking(False)
            client.connect_ex(("::1", port))
            self._clients.append(client)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for client in [*self._clients, self._listener]:
            client.close()


class NameTests(TestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.port = urllib.parse.urlsplit(self.origin.url).port

    def bus(self, names, **options):
        return Bus(workers=1, slots=256, arguments=("--dns-server", names.address, "--origin-limit", "256"), **options)

    def test_a_name_that_nobody_answers_for_holds_up_nothing_else(self):
        dead = {f"dead{turn}.example": [None] for turn in range(5)}
        with NameServer({**dead, "known.example": ["127.0.0.1"]}, ttl=600) as names, self.bus(names) as bus:
            client = bus.client()
            client.fetch("h", "first", f"http://known.example:{self.port}/bytes/5")
            self.assertEqual(client.terminal().verb, "RESULT")

            def come_first(name):
                for number in range(20):
                    client.fetch(name, number, f"http://{name}:{self.port}/{number}", retries=0)
                names.await_questions(name, 1)
                for number in range(100):
                    host = ("known.example", "127.0.0.1", "localhost")[number % 3]
                    client.fetch("h", f"{name}-{number}", f"http://{host}:{self.port}/cut/5/5?{name}-{number}")
                answers = []
                while sum(answer.id[0] == "h" for answer in answers) < 100:
                    answers.append(client.terminal())
                self.assertEqual({answer.verb for answer in answers if answer.id[0] == "h"}, {"RESULT"})
                client.remove(name)
                return name not in {answer.id[0] for answer in answers}
            # The result of the lookup, some seconds later, would be among them had they waited for it.
            self.assertTrue(any(come_first(name) for name in dead))

    def test_a_name_server_that_is_slow_or_dead_delays_no_download_that_needs_it_not(self):
        """100 downloads to addresses and known hosts, alone and while lookups wait. Of each round the slowest one counts, and
        of the rounds the best, since other load on the machine only adds to them. Only with EARSHOT_LONG=1 the times count."""
        rounds, most = (6, 20) if LONG else (1, 1)
        late = {f"late{n}.example": ["127.0.0.1 after 5"] for n in range(20)}
        dead = {f"dead{n}.example": [None] for n in range(20)}
        known = {"known.example": ["127.0.0.1"]}
        with NameServer({**late, **dead, **known}, ttl=600) as names, self.bus(names) as bus:
            client, waiting = bus.client(), bus.client()

            def slowest(turn):
                for number in range(100):
                    host = ("known.example", "127.0.0.1", "localhost")[number % 3]
                    client.fetch("h", f"{turn}-{number}", f"http://{host}:{self.port}/bytes/5?{turn}-{number}")
                answers = client.terminals(100)
                self.assertEqual({(answer.verb, answer.id[0]) for answer in answers}, {("RESULT", "h")})
                return max(int(answer.fields["elapsed-ms"]) for answer in answers)

            slowest("first")
            alone = [slowest(f"alone{turn}") for turn in range(rounds)]
            beside = []
            while len(beside) < rounds or min(beside) > min(alone) + 20 and len(beside) < most:
                turn = len(beside)
                for name in (*late, *dead):
                    waiting.fetch("slow", f"{turn}-{name}", f"http://{name}:{self.port}/{turn}", retries=0)
                names.await_questions(f"late{turn % 20}.example", 1)
                names.await_questions(f"dead{turn % 20}.example", 1)
                beside.append(slowest(f"beside{turn}"))
                # Each of them occupies a slot.
                waiting.remove("slow")
            report(f"the slowest of 100 downloads took {'/'.join(map(str, sorted(alone)))} ms alone,"
                   f" {'/'.join(map(str, sorted(beside)))} while 40 lookups waited")
            if LONG:
                self.assertLessEqual(min(beside), min(alone) + 20)

    def test_an_ipv6_address_that_is_silent_or_refuses_costs_no_time_to_speak_of(self):
        with NameServer({"both.example": ["127.0.0.1 ::1"]}) as names, self.bus(names) as bus:
            client = bus.client()
            client.fetch("h", "refusing", f"http://both.example:{self.port}/cut/5/5")
            self.assertEqual(client.terminal().verb, "RESULT")
            with FullListener(self.port):
                began = time.monotonic()
                client.fetch("h", "silent", f"http://both.example:{self.port}/cut/5/5?silent")
                self.assertEqual(client.terminal().verb, "RESULT")
                # A connection attempt to the silent one is abandoned after 10 s.
                if LONG:
                    self.assertLess(time.monotonic() - began, 8)
