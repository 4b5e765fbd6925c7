"""One user takes all connections, input and turns that it can get of a bus, of each in two ways. Another user is served meanwhile.

The users are real, because the broker counts these by the user and the process of a connection.
"""

import contextlib
import itertools
import json
import os
import re
import signal
import time
import unittest

from support import zmtp
from support.harness import Bus, TestCase
from support.origin import Origin
from support.processes import eventually
from support.raw import RawClient
from support.visitor import Visitor
from test_users import DAEMON, NOBODY, shared_folder

MIB = 1 << 20

#: For each line of input: a small request, a body of 1 MB, and a request with a body of 1 MB.
NEIGHBOUR = """
c = client(bodies="pull")
for turn, line in enumerate(sys.stdin):
    answers = []
    c.hold()
    for size in (1_000, 1_000_000):
        c.fetch("own", f"{turn}-{size}", f"{url}/bytes/{size}?seed={turn}", cache="no-store")
        terminal = c.terminal()
        answers.append([terminal.verb, len(pull(c, terminal) if "pull" in terminal.fields else terminal.inline or b"")])
    c.release()
    c.fetch("own", f"{turn}-sent", f"{url}/bytes/10", body=bytes(1_000_000), method="POST", coalesce="no")
    terminal = c.terminal()
    answers.append([terminal.verb, len(terminal.inline or b"")])
    report([line.strip(), answers, [message.verb for message in c.rest()]])
"""


@contextlib.contextmanager
def acting_as(user):
    """Connections that begin here belong to this user."""
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)


@unittest.skipUnless(os.geteuid() == 0, "clients of other users need root")
class HostileTests(TestCase):
    MOST = 93
    """Connections of a user: a quarter of (1,000 - 256) / 2."""

    @classmethod
    def setUpClass(cls):
        cls.origin = cls.enterClassContext(Origin())
        cls.folder = cls.enterClassContext(shared_folder())
        cls.bus = cls.enterClassContext(Bus(workers=1, folder=cls.folder, descriptors=1_000,
                                            arguments=["--users", "nobody,daemon"]))
        cls.administrator = cls.bus.client()
        cls.neighbour = Visitor(DAEMON, cls.bus.runtime, f"url = {cls.origin.url!r}\n{NEIGHBOUR}")
        cls.addClassCleanup(cls.neighbour.kill)
        cls.turns = itertools.count()

    def setUp(self):
        self.began, self.logged = time.monotonic(), len(self.bus.program.stderr)
        self.connections = []
        self.addCleanup(self.leave)

    def leave(self):
        for connection in self.connections:
            connection.close()
        eventually(lambda: self.administrator.query("status")["clients"] <= 2, "the hostile connections are lost")

    def connect(self, user=NOBODY, greeted=True):
        with acting_as(user):
            client = RawClient(self.bus.runtime, greeted)
        self.connections.append(client)
        return client

    def welcomed(self, count):
        """Returns connections of the hostile user with sessions."""
        clients = [self.connect() for _ in range(count)]
        for client in clients:
            self.assertTrue(client.receive().startswith("WELCOME"))
        return clients

    def assertServed(self):
        turn = f"turn {next(self.turns)}"
        self.neighbour.write(f"{turn}\n".encode(), ends=False)
        answer = json.loads(self.neighbour.await_line(f'"{turn}"', "stdout"))
        self.assertEqual(answer[1:], [[["RESULT", 1_000], ["RESULT", 1_000_000], ["RESULT", 10]], []])

    def assertLogged(self, reason, provoke):
        """The log has one line a second at most, and one with this reason. A line of the test before may have delayed it, so
        `provoke` causes it again."""
        while reason not in self.bus.program.stderr[self.logged:]:
            provoke()
        lines = self.bus.program.stderr[self.logged:].splitlines()
        self.assertLessEqual(len(lines), time.monotonic() - self.began + 1)

    # MARK: Connections

    def test_connections_with_sessions_and_silent_ones(self):
        for greeted in (True, False):
            ends = []
            for _ in range(200):
                try:
                    self.connect(greeted=greeted)
                except ConnectionError:
                    ends.append(True)
            self.assertServed()
            if greeted:
                self.assertEqual(len(ends), 200 - self.MOST)
            self.leave()
        self.assertLogged(f"more than {self.MOST} connections of user {NOBODY}", self.exceed_connections)

    def exceed_connections(self):
        with contextlib.suppress(ConnectionError):
            for _ in range(self.MOST + 1):
                self.connect()
        self.leave()

    def test_sessions_that_are_away(self):
        own = self.leased(DAEMON)
        for number in range(300):
            self.leased(NOBODY)
        self.assertServed()
        self.assertIn("resumed: ", self.leased(DAEMON, own))

    def leased(self, user, token=None):
        """Begins or resumes a session with a lease, and lets its connection break. Returns the token, or the WELCOME."""
        with contextlib.closing(self.connect(user)) as client:
            fields = f"lease: 600\n" + (f"token: {token}\nunanswered: 1\n" if token else "")
            client.send("BYE\n", f"HELLO EAR/1\n{fields}")
            client.receive()
            welcome = client.receive()
            return welcome if token else re.search("\ntoken: (.*)", welcome)[1]

    # MARK: Input

    def test_halves_of_frames_and_messages_without_the_end_of_their_body(self):
        long = zmtp.frame(bytes(4 * MIB))[:-1]
        for data in (long, zmtp.frame(b"FETCH", more=True) + long):
            for client in self.welcomed(40):
                connection = client.detach()
                connection.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    connection.send(data)
            self.assertServed()
            self.leave()

    def test_frames_that_are_too_long_and_messages_that_cannot_be_read(self):
        def send_long_frames(count):
            for client in self.welcomed(count):
                client.detach().sendall(zmtp.frame(bytes(5 * MIB))[:64])

        send_long_frames(50)
        self.assertServed()
        self.leave()
        for client in self.welcomed(50):
            client.send(*["NONSENSE \x01"] * 200)
        self.assertServed()
        self.assertLogged("a peer sent a frame of 5242880 bytes", lambda: (send_long_frames(1), self.leave()))

    # MARK: Turns

    def test_queries_of_many_connections_and_terminals_for_many_subscribers(self):
        """A message of the administrator waits for one pass of the broker, of which another user causes a quarter."""
        clients = self.welcomed(80)
        # 5,000 names make full pages.
        self.subscribe(clients[0], *(f"q/{number}" for number in range(5_000)))
        pairs = self.dueBehind({client: [f"FETCH none/{number} {turn} ftp://host/\n" if turn % 2 == 0 else "QUERY handlers\n"
                                         for turn in range(20)] for number, client in enumerate(clients)})
        self.assertLessEqual(pairs, 20, "a page counts as 32 messages, and the part of the user as 128")
        self.leave()
        clients = self.welcomed(80)
        for client in clients:
            self.subscribe(client, "many")
        terminals = self.dueBehind({client: [f"FETCH many {number}-{turn} ftp://host/\n" for turn in range(30)]
                                    for number, client in enumerate(clients[:10])})
        self.assertLessEqual(terminals, 5 * 80, "the terminals of a message count")
        self.assertServed()

    def subscribe(self, client, *names):
        client.send(*(f"SUBSCRIBE {name}\n" for name in names), "QUERY ping\n")
        self.assertTrue(client.receive().startswith("ANSWER ping"))
        client.receive()

    def dueBehind(self, messages):
        """Returns the number of terminals that become due before the broker carries out a later message of the administrator."""
        own = self.connect(0)
        own.receive()
        before = self.due(own)
        broker = self.bus.broker
        os.kill(broker, signal.SIGSTOP)
        try:
            for client, heads in messages.items():
                client.send(*heads)
            own.send("QUERY ledger\n")
        finally:
            os.kill(broker, signal.SIGCONT)
        return self.due(own, does_query=False) - before

    def due(self, client, does_query=True):
        if does_query:
            client.send("QUERY ledger\n")
        self.assertTrue(client.receive().startswith("ANSWER ledger"))
        return json.loads(client.receive())["deliveries"]["due"]


if __name__ == "__main__":
    unittest.main()
