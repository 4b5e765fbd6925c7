"""Sessions with a lease of the example libraries, most with `bodies: pull`: they are resumed, and bodies are read by READ, also
over several connections."""

import contextlib
import hashlib
import pathlib
import socket
import tempfile
import threading
import unittest

import zmq

from languages import LANGUAGES  # This import sets the path for the next three.
from support.harness import Bus, Commands, TestCase
from support.origin import Origin, body
from support.processes import Program

PIECE = 256 << 10
LARGE = 3 << 20
TOKEN = "0" * 32
PULLING = [language for language in LANGUAGES if language.pulls]


class Relay(contextlib.ExitStack):
    """Socket in a runtime folder of its own that passes the connections of a client on to a bus.

    It breaks the first connection after `limit` bytes for the client.
    """

    def __init__(self, bus, limit):
        super().__init__()
        self.connections = 0
        self._bus = bus
        self._limit = limit
        self._folder = pathlib.Path(self.enter_context(tempfile.TemporaryDirectory(prefix="ear-")))
        (self._folder / "run").mkdir(mode=0o700)
        self.environment = Commands(self._folder / "run", self._folder).environment
        self._listener = self.enter_context(socket.socket(socket.AF_UNIX))
        self._listener.bind(str(self._folder / "run" / "bus"))
        self._listener.listen()
        self.callback(self._listener.shutdown, socket.SHUT_RDWR)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                client = self.enter_context(self._listener.accept()[0])
                self.connections += 1
                broker = self.enter_context(socket.socket(socket.AF_UNIX))
                broker.connect(str(self._bus.runtime / "bus"))
                limit = self._limit if self.connections == 1 else None
                for source, target, most in ((client, broker, None), (broker, client, limit)):
                    threading.Thread(target=self._pass_on, args=(source, target, most), daemon=True).start()

    def _pass_on(self, source, target, most):
        with contextlib.suppress(OSError):
            while data := source.recv(65536 if most is None else min(65536, most)):
                target.sendall(data)
                if most is not None and not (most := most - len(data)):
                    break
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class PullCases:
    """`fetch --pull` of a language, with a bus and an origin."""

    language = None

    def setUp(self):
        self.language.built  # noqa: B018 (reports a missing package before a process starts)
        self.origin = self.enterContext(Origin())
        self.bus = self.enterContext(Bus(workers=1))

    def fetch(self, target, environment=None):
        program = self.language.start("fetch", "--pull", self.origin.url + target,
                                      environment=environment or self.bus.environment)
        self.assertEqual(program.wait(), 0, program.describe())
        self.assertEqual(program.stderr, "")
        return program.stdout

    def test_a_body_comes_whole_over_the_connection(self):
        """Bodies of several READs, of one, inline, and empty ones."""
        sizes = (LARGE, 4 * PIECE + 1, PIECE, 100_000, 1000, 0)
        for size in sizes:
            self.assertTrue(self.fetch(f"/bytes/{size}") == body(size), f"{size} bytes")
        ledger = self.balance(self.bus.client())["deliveries"]
        self.assertEqual((ledger["acknowledged"], ledger["lost"]), (len(sizes), 0), "all are acknowledged")

    def test_a_body_is_read_on_after_a_broken_connection(self):
        with Relay(self.bus, limit=1_000_000) as relay:
            self.assertTrue(self.fetch(f"/bytes/{LARGE}", relay.environment) == body(LARGE))
            self.assertEqual(relay.connections, 2)
        self.assertEqual(self.origin.total, 1, "the session was resumed")
        ledger = self.balance(self.bus.client())["deliveries"]
        self.assertEqual((ledger["acknowledged"], ledger["lost"]), (1, 0))


class Dialog:
    """Messages of a program of a language, with the test as its broker."""

    language = None

    def setUp(self):
        self.language.built  # noqa: B018 (reports a missing package before a process starts)
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="ear-")))
        (self.folder / "run").mkdir(mode=0o700)
        self.endpoint = f"ipc://{self.folder}/run/bus"
        self.context = self.enterContext(zmq.Context())
        self.bind()
        self.program = self.start(Commands(self.folder / "run", self.folder).environment)
        self.addCleanup(lambda: self.program.running and self.program.kill())

    def bind(self):
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.linger = 0
        self.addCleanup(self.socket.close)
        self.socket.bind(self.endpoint)

    def receive(self):
        """Returns the next message as its first line and its fields."""
        self.assertTrue(self.socket.poll(30_000), self.program.describe())
        self.peer, head = self.socket.recv_multipart()
        line, *fields = head.decode().splitlines()
        return line, dict(field.split(": ", 1) for field in fields)

    def receive_lines(self, count):
        return [self.receive()[0] for _ in range(count)]

    def send(self, head, content=None):
        self.socket.send_multipart([self.peer, head.encode(), *([] if content is None else [content])])

    def welcome(self, *fields):
        lines = ("broker: b", "window: 256", "lease: 60", f"token: {TOKEN}", *fields)
        self.send("WELCOME EAR/1\n" + "".join(f"{line}\n" for line in lines))


class PullDialogCases(Dialog):
    """Messages of `fetch --pull`."""

    def start(self, environment):
        return self.language.start("fetch", "--pull", "http://a.example/", environment=environment)

    def answer(self, content):
        """Greets the program and sends the result of its request. Returns the fields of its HELLO."""
        hello, fields = self.receive()
        self.assertEqual((hello, fields["bodies"], fields["lease"]), ("HELLO EAR/1", "pull", "60"))
        self.welcome()
        verb, self.handler, _request, _url = self.receive()[0].split()
        self.assertEqual(verb, "FETCH")
        self.result(content)
        return fields

    def result(self, content):
        self.send(f"RESULT {self.handler} 1 200\nseq: 1\nlength: {len(content)}\npull: yes\n"
                  f"sha-256: {hashlib.sha256(content).hexdigest()}\n")

    def data(self, line, content):
        """Answers a READ."""
        _verb, number, offset, length = line.split()
        self.send(f"DATA {number} {offset}\n", content[int(offset):int(offset) + int(length)])

    def assertFails(self, words):
        self.assertNotEqual(self.program.wait(), 0, self.program.describe())
        self.assertIn(words, self.program.stderr)

    def test_at_most_four_reads_are_open_and_the_last_byte_comes_before_the_acknowledgement(self):
        content = body(5 * PIECE + 10)
        self.answer(content)
        reads = self.receive_lines(4)
        self.assertEqual(reads, [f"READ 1 {n * PIECE} {PIECE}" for n in range(4)])
        self.assertFalse(self.socket.poll(200), "four are the most")
        for line in reversed(reads):  # DATA comes in any order.
            self.data(line, content)
        reads = self.receive_lines(2)
        self.assertEqual(reads, [f"READ 1 {4 * PIECE} {PIECE}", f"READ 1 {5 * PIECE} 10"])
        self.data(reads[0], content)
        self.assertFalse(self.socket.poll(200), "it is not yet complete")
        self.data(reads[1], content)
        self.assertEqual(self.receive_lines(2), ["ACK 1", "BYE"])
        self.assertEqual(self.program.wait(), 0, self.program.describe())
        self.assertTrue(self.program.stdout == content)

    def test_a_body_that_was_removed_is_a_failure(self):
        content = body(2 * PIECE)
        self.answer(content)
        reads = self.receive_lines(2)
        self.data(reads[0], content)
        self.send("DATA 1 0\nerror: unknown-body\ndetail: its file was lost\n")
        self.assertFails("unknown-body: its file was lost")

    def test_the_refusal_of_another_message_does_not_end_the_body(self):
        content = body(PIECE)
        self.answer(content)
        line = self.receive()[0]
        self.send("ERROR limit\nto: 1\ndetail: too much\n")
        self.data(line, content)
        self.assertEqual(self.receive_lines(2), ["ACK 1", "BYE"])
        self.assertEqual(self.program.wait(), 0, self.program.describe())
        self.assertTrue(self.program.stdout == content)

    def test_a_body_with_a_missing_part_is_a_failure(self):
        content = body(PIECE)
        self.answer(content)
        self.receive()
        self.send("DATA 1 0\n", content[1:])
        self.assertFails("a part of the body is missing")

    def test_a_body_with_another_hash_is_a_failure(self):
        content = body(PIECE)
        self.answer(content)
        self.data(self.receive()[0], content[::-1])
        self.assertFails("another hash")

    def test_a_broken_connection_is_resumed_and_reading_continues_at_the_offset(self):
        content = body(6 * PIECE)
        first = self.answer(content)
        reads = self.receive_lines(4)
        self.data(reads[0], content)
        self.data(reads[1], content)
        reads = self.receive_lines(2)
        self.assertEqual(reads, [f"READ 1 {n * PIECE} {PIECE}" for n in (4, 5)])
        self.socket.close()
        self.bind()
        hello, again = self.receive()
        self.assertEqual(hello, "HELLO EAR/1")
        self.assertEqual(again, {**first, "token": TOKEN, "unanswered": "1"})
        self.send("ERROR session-in-use\n")  # The broker has not noticed the end of the old connection.
        self.assertEqual(self.receive()[1], again)
        self.welcome("resumed: 1")
        self.result(content)
        reads = self.receive_lines(4)
        self.assertEqual(reads, [f"READ 1 {n * PIECE} {PIECE}" for n in range(2, 6)])
        for line in reads:
            self.data(line, content)
        self.assertEqual(self.receive_lines(2), ["ACK 1", "BYE"])
        self.assertEqual(self.program.wait(), 0, self.program.describe())
        self.assertTrue(self.program.stdout == content)

    def test_a_request_that_the_broker_has_not_received_is_repeated(self):
        self.receive()
        self.welcome()
        request, fields = self.receive()
        for _ in range(2):  # Its number is that of the first time.
            self.socket.close()
            self.bind()
            self.receive()
            self.welcome("resumed: 0")
            self.assertEqual(self.receive(), (request, fields))
        self.handler = request.split()[1]
        content = body(PIECE)
        self.result(content)
        self.data(self.receive()[0], content)
        self.assertEqual(self.program.wait(), 0, self.program.describe())

    def test_a_session_that_has_ended_is_a_failure(self):
        self.receive()
        self.welcome()
        self.receive()
        self.socket.close()
        self.bind()
        self.receive()
        self.welcome()
        self.assertFails("the session has ended: ask again")


class LeaseDialogCases(Dialog):
    """Messages of the adapter, which makes any request."""

    def start(self, environment):
        command = [*self.language.adapter.split(), self.folder, "lease=60"]
        return Program(command, environment, self.language.built)

    def write_commands(self, *lines):
        self.program.write("".join(f"{line}\n" for line in lines).encode(), ends=False)

    def break_off(self):
        """Breaks the connection. Returns the fields of the next HELLO."""
        self.socket.close()
        self.bind()
        line, fields = self.receive()
        self.assertEqual((line, fields["token"]), ("HELLO EAR/1", TOKEN))
        return fields

    def test_a_resumption_asks_for_the_answer_to_a_durable_request(self):
        """That answer may come after those to later messages."""
        self.receive()
        self.welcome()
        self.write_commands("fetch h 1 http://a.example/ durable=yes", "subscribe h", "receive")
        self.assertEqual(self.receive_lines(2), ["FETCH h 1 http://a.example/", "SUBSCRIBE h"])
        self.send("OK\nto: 2\n")
        self.program.await_line("listening", "stdout")
        self.write_commands("receive")
        for _ in range(2):
            self.assertEqual(self.break_off()["unanswered"], "1")
            self.welcome("resumed: 2")
        self.send("ACCEPTED h 1\nto: 1\n")
        self.send("PROGRESS h 1 1/2\n")
        self.program.await_line("progress h 1 1/2", "stdout")
        self.write_commands("receive")
        self.assertEqual(self.break_off()["unanswered"], "3")

    def test_the_terminal_of_a_durable_request_is_its_answer(self):
        self.receive()
        self.welcome()
        self.write_commands("fetch h 1 http://a.example/ durable=yes", "subscribe h", "receive", "receive")
        self.receive_lines(2)
        self.send("OK\nto: 2\n")
        self.send("RESULT h 1 200\nseq: 1\nlength: 0\n")
        self.program.await_line("result h 1 200", "stdout")
        self.assertEqual(self.receive()[0], "ACK 1")
        self.write_commands("receive")
        self.assertEqual(self.break_off()["unanswered"], "3")

    def test_an_error_that_names_a_message_does_not_refuse_the_greeting(self):
        self.receive()
        self.send("ERROR limit\nto: 7\ndetail: of an earlier session\n")
        self.welcome()
        self.program.await_line("ready", "stdout")

    def test_an_error_without_a_number_refuses_the_greeting(self):
        self.receive()
        self.send("ERROR limit\ndetail: too much\n")
        self.program.await_line("error limit: too much", "stdout")


def load_tests(loader, _tests, _pattern):
    """Creates the test classes of each language, such as CPullTests."""
    suite = unittest.TestSuite()
    for cases, what in ((PullCases, "Pull"), (PullDialogCases, "PullDialog"), (LeaseDialogCases, "LeaseDialog")):
        for language in PULLING:
            name = f"{language.name.capitalize()}{what}Tests"
            suite.addTests(loader.loadTestsFromTestCase(
                type(name, (cases, TestCase), {"language": language, "__module__": __name__})))
    return suite


if __name__ == "__main__":
    unittest.main()
