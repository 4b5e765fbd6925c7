"""A broker whose answers are no JSON: commands report it, and replace no file by the part that they understood."""

import pathlib
import threading

import zmq

from support.client import Message
from support.harness import Commands, TestCase, remove_folder, temporary_folder

MESSAGE = "cannot parse the answer of the broker; use command and broker of the same version"
JAR = "# Netscape HTTP Cookie File\nexample.org\tFALSE\t/\tTRUE\t0\tkept\tvalue\n"


class GarblingBroker:
    """Accepts sessions and requests, fails each request, and answers each QUERY with half of a JSON text."""

    def __init__(self, runtime):
        pathlib.Path(runtime).mkdir(mode=0o700)
        self._socket = zmq.Context.instance().socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.bind(f"ipc://{runtime}/bus")
        self._must_stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="broker", daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._must_stop.set()
        self._thread.join(10)

    def _serve(self):
        while not self._must_stop.is_set():
            if self._socket.poll(20):
                peer, *frames = self._socket.recv_multipart()
                for answer in self._answers(Message(frames)):
                    self._socket.send_multipart([peer, *answer])
        self._socket.close()

    @staticmethod
    def _answers(message):
        number = message.fields.get("number")
        to = f"\nto: {number}\n" if number else "\n"
        if message.verb == "HELLO":
            yield [b"WELCOME EAR/1\nbroker: 00000000000000aa\nserver: earshot/0\n"]
        elif message.verb == "QUERY":
            yield [f"ANSWER {' '.join(message.operands)}{to}".encode(), b'{"cookies":[{"domain":']
        elif message.verb == "FETCH":
            handler, request = message.operands[:2]
            yield [f"FAILED {handler} {request} connect-refused\nseq: 1\n".encode()]
        elif number:
            yield [f"OK{to}".encode()]


class UnreadableAnswerTests(TestCase):
    def setUp(self):
        folder = temporary_folder()
        self.addCleanup(remove_folder, folder)
        self.commands = Commands(folder / "run", folder)
        self.enterContext(GarblingBroker(folder / "run"))

    def check(self, *arguments):
        done = self.commands.run(*arguments)
        self.assertEqual(done.status, 5, done.describe())
        self.assertIn(MESSAGE, done.stderr, done.describe())

    def test_commands_that_query_report_it(self):
        for arguments in (("status",), ("status", "--json"), ("list",), ("wait", "some/handler"), ("top", "--count", "1"),
                          ("watch", "--until-done", "some/handler"), ("why", "some/handler", "1")):
            with self.subTest(arguments):
                self.check(*arguments)

    def test_a_cookie_file_stays_as_it_was(self):
        jar = self.commands.folder / "jar.txt"
        jar.write_text(JAR)
        self.check("get", "--cookie-jar", jar, "http://127.0.0.1:1/")
        self.assertEqual(jar.read_text(), JAR)
