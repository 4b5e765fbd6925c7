"""The end of a response over TLS, and bytes that belong to no response."""

import fcntl
import shutil
import struct
import termios
import threading

from support import certificate
from support.harness import Bus, TestCase, temporary_folder
from support.origin import body
from support.processes import eventually
from support.script import ScriptedOrigin

GOOD = body(3000, "good")


def announced(content):
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(content), content)


def chunked(content):
    return (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(content), content))


def unannounced(content):
    return b"HTTP/1.1 200 OK\r\n\r\n" + content


def unacknowledged(stream):
    """Returns the number of bytes that the other end of a TCP connection has not acknowledged: tcp(7), SIOCOUTQ."""
    return struct.unpack("i", fcntl.ioctl(stream, termios.TIOCOUTQ, bytes(4)))[0]


class Case(TestCase):
    """The tests of a class share a bus. Each has an origin and a client of its own."""

    @classmethod
    def setUpClass(cls):
        folder = temporary_folder()
        cls.addClassCleanup(shutil.rmtree, folder)
        cls.certificate = certificate.self_signed(folder)
        cls.bus = cls.enterClassContext(Bus(workers=1, origin_limit=40))

    def setUp(self):
        self.client = self.enterContext(self.bus.client())

    def origin(self, script, tls=True):
        return self.enterContext(ScriptedOrigin(script, self.certificate if tls else None))

    def fetch(self, client, request, url, **fields):
        client.fetch("h", request, url, ca_file=self.certificate[0], **{"retries": 0, **fields})
        return client.terminal()


class CloseNotifyTests(Case):
    """A body delimited by the end of its TLS connection is complete only with close_notify: RFC 9112, section 9.8."""

    ANSWERS = {"announced": announced, "chunked": chunked, "unannounced": unannounced}

    def serve(self, connection):
        """Responds to /FORM/END/… in that form; END is `kept`, `notified` or `cut`."""
        while target := connection.request():
            _, form, end, *_ = target.split("/")
            connection.send(self.ANSWERS[form](GOOD))
            if end == "notified":
                connection.close_tls()
            if end != "kept":
                return

    def test_a_body_that_only_the_connection_ends_is_whole_with_close_notify_and_truncated_without(self):
        origin = self.origin(self.serve)
        self.assertResult(self.fetch(self.client, 1, f"{origin.url}/unannounced/notified"), GOOD)
        self.assertFailed(self.fetch(self.client, 2, f"{origin.url}/unannounced/cut"), "truncated")

    def test_a_body_with_a_length_of_its_own_needs_no_close_notify(self):
        origin = self.origin(self.serve)
        for form in ("announced", "chunked"):
            for end in ("cut", "notified", "kept"):
                self.assertResult(self.fetch(self.client, f"{form}-{end}", f"{origin.url}/{form}/{end}"), GOOD)

    def test_so_it_is_on_a_connection_that_was_used_before(self):
        origin = self.origin(self.serve)
        for number, (end, code) in enumerate((("notified", None), ("cut", "truncated"))):
            self.assertResult(self.fetch(self.client, f"{end}-1", f"{origin.url}/announced/kept/{end}"), GOOD)
            answer = self.fetch(self.client, f"{end}-2", f"{origin.url}/unannounced/{end}")
            if code:
                self.assertFailed(answer, code)
            else:
                self.assertResult(answer, GOOD)
            self.assertEqual(origin.accepted, number + 1)

    def test_of_many_at_once_each_is_judged_by_its_own_connection(self):
        origin = self.origin(self.serve)
        for number in range(40):
            end = "cut" if number % 2 else "notified"
            self.client.fetch("h", number, f"{origin.url}/unannounced/{end}/{number}", ca_file=self.certificate[0], retries=0)
        ends = {int(answer.operands[1]): answer for answer in self.client.terminals(40)}
        for number, answer in ends.items():
            if number % 2:
                self.assertFailed(answer, "truncated")
            else:
                self.assertResult(answer, GOOD)

    def test_without_tls_there_is_no_close_notify_to_miss(self):
        origin = self.origin(self.serve, tls=False)
        self.assertResult(self.fetch(self.client, 1, f"{origin.url}/unannounced/cut"), GOOD)

    def test_what_was_cut_is_not_kept_by_the_cache(self):
        turns = []

        def serve(connection):
            if target := connection.request():
                turns.append(target)
                connection.send(b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n\r\n" + GOOD)
                if len(turns) > 1:
                    connection.close_tls()
        origin = self.origin(serve)
        self.assertFailed(self.fetch(self.client, 1, f"{origin.url}/x"), "truncated")
        self.assertResult(self.fetch(self.client, 2, f"{origin.url}/x"), GOOD)
        self.assertResult(self.fetch(self.client, 3, f"{origin.url}/x"), GOOD)
        self.assertEqual(len(turns), 2)


class UnsolicitedTests(Case):
    """Unsolicited bytes of a server are never the response to a request; their connection is not reused."""

    EVIL = announced(body(3000, "evil"))

    def setUp(self):
        super().setUp()
        self.answered = threading.Event()
        self.sent = threading.Event()
        self.closed = threading.Event()

    def serve(self, connection):
        """The first connection sends more than requested: after `late` a response, or together with it."""
        target = connection.request()
        if connection.number == 1 and target.endswith("together"):
            connection.send(announced(GOOD), self.EVIL)
        elif connection.number == 1:
            connection.send(announced(GOOD))
            self.answered.wait(60)
            connection.send(self.EVIL)
        if connection.number == 1:
            # On a busy machine the kernel may still have them when send() returns.
            eventually(lambda: unacknowledged(connection.stream) == 0, "the client's socket has all bytes")
            self.sent.set()
            if connection.is_closed():
                self.closed.set()
        while target:
            connection.send(announced(GOOD))
            target = connection.request()

    def check(self, tls, target):
        origin = self.origin(self.serve, tls)
        self.assertResult(self.fetch(self.client, 1, f"{origin.url}/1/{target}"), GOOD)
        self.answered.set()
        self.assertTrue(self.sent.wait(60))
        for number in range(2, 6):
            self.assertResult(self.fetch(self.client, number, f"{origin.url}/{number}/{target}"), GOOD)
        self.assertTrue(self.closed.wait(60), "the client closed the connection")
        self.assertEqual(origin.accepted, 2, "one more, and then that one again")

    def test_an_answer_to_nothing_without_tls(self):
        self.check(tls=False, target="late")

    def test_an_answer_to_nothing_over_tls(self):
        self.check(tls=True, target="late")

    def test_an_answer_to_nothing_that_came_with_the_one_before_it_over_tls(self):
        self.check(tls=True, target="together")
