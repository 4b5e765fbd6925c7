"""Tests of ZMTP: valid input, violations, and compatibility with libzmq."""

import pathlib
import random
import struct
import tempfile
import tracemalloc
import unittest

import zmq

import fixture  # noqa: F401 (it sets the paths)
from earshot_bus._link import Link
from earshot_bus._zmtp import COMMAND_BYTES, FRAME_BYTES, Decoder, Violation, encode
from played import READY
from support.processes import eventually
from support.zmtp import GREETING, command

MESSAGES = [[b""], [b"a"], [b"head", b"body"], [b"h" * 255], [b"h" * 256, b""], [b"h" * 300, bytes(70_000)],
            [b"", b"x"]]


def opened():
    decoder = Decoder()
    decoder.feed(GREETING + READY)
    return decoder


class DecoderTests(unittest.TestCase):
    def test_messages_are_the_same_however_they_are_cut(self):
        stream = GREETING + READY + b"".join(encode(*message) for message in MESSAGES)
        dice = random.Random(7)
        cuts = [[len(stream)], [1] * len(stream)]
        cuts += [[dice.choice((1, 2, 9, 63, 300, 9_000)) for _ in stream] for _ in range(50)]
        for sizes in cuts:
            decoder, found, rest = Decoder(), [], stream
            for size in sizes:
                found += decoder.feed(rest[:size])
                rest = rest[size:]
                if not rest:
                    break
            self.assertEqual(found, MESSAGES)
            self.assertTrue(decoder.is_open)

    def test_two_frames_of_a_message_are_kept_and_commands_between_them_passed_over(self):
        frames = b"\x01\x01a" + command(b"SUBSCRIBE", b"x") + b"\x01\x01b" + b"\x01\x01c" * 1000 + b"\x00\x01d"
        self.assertEqual(opened().feed(frames + encode(b"next")), [[b"a", b"b"], [b"next"]])

    def test_a_ping_is_answered_with_its_context(self):
        decoder = opened()
        self.assertEqual(decoder.feed(command(b"PING", b"\x00\x09context") + encode(b"head")), [[b"head"]])
        self.assertEqual(decoder.replies, [command(b"PONG", b"context")])

    def test_what_breaks_the_protocol_is_a_violation(self):
        for part, sent in [
            ("does not speak", b"HTTP/1.1 400 Bad Request".ljust(64)),
            ("another ZMTP", GREETING[:10] + b"\x02" + GREETING[11:]),
            ("another ZMTP", GREETING.replace(b"NULL\0", b"PLAIN")),
            ("before READY", GREETING + encode(b"head")),
            ("than READY", GREETING + command(b"HELLO")),
            ("than READY", GREETING + b"\x04\x00"),
            ("refused", GREETING + command(b"ERROR", b"\x02no")),
            ("refused", GREETING + READY + command(b"ERROR", b"\x02no")),
            ("unknown flags", GREETING + READY + b"\x08\x00"),
            ("unknown flags", GREETING + READY + b"\x05\x00"),
            ("command of", GREETING + READY + b"\x06" + struct.pack(">Q", COMMAND_BYTES + 1)),
            ("frame of", GREETING + READY + b"\x02" + struct.pack(">Q", FRAME_BYTES + 1)),
            ("frame of", GREETING + READY + b"\x02" + b"\xff" * 8),
            ("PING", GREETING + READY + command(b"PING")),
            ("PING", GREETING + READY + command(b"PING", bytes(19))),
        ]:
            for size in (len(sent), 1):
                with self.subTest(part, sent=sent[64:100], size=size), self.assertRaisesRegex(Violation, part):
                    decoder = Decoder()
                    for at in range(0, len(sent), size):
                        decoder.feed(sent[at:at + size])

    def test_there_is_memory_for_what_came_and_not_for_what_is_announced(self):
        decoder = opened()
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        decoder.feed(b"\x02" + struct.pack(">Q", FRAME_BYTES) + b"first")
        for _ in range(100_000):
            decoder.feed(b"x")
        self.assertLess(tracemalloc.get_traced_memory()[1], 400_000)


class LibzmqTests(unittest.TestCase):
    def setUp(self):
        path = str(pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()), "bus"))
        context = self.enterContext(zmq.Context())
        self.router = self.enterContext(context.socket(zmq.ROUTER))
        self.router.linger = 0
        self.router.rcvtimeo = 60_000
        self.router.heartbeat_ivl, self.router.heartbeat_timeout = 10, 60_000
        self.router.bind(f"ipc://{path}")
        self.link = Link(path)
        self.addCleanup(self.link.close)

    def take(self, most=1):
        """Reads until this number of messages has arrived."""
        found = []

        def look():
            found.extend(self.link.receive())
            self.link.flush()
            return len(found) >= most
        eventually(look, "messages come")
        return found

    def test_messages_of_all_sizes_go_both_ways(self):
        for message in MESSAGES:
            self.link.send(*message)
        self.link.flush()
        eventually(lambda: self.link.receive() == [] and not self.link.flush() and not self.link.waiting, "it is open")
        for message in MESSAGES:
            peer, *frames = self.router.recv_multipart()
            self.assertEqual(frames, message)
        for message in MESSAGES:
            self.router.send_multipart([peer, *message])
        self.assertEqual(self.take(len(MESSAGES)), MESSAGES)

    def test_its_heartbeats_are_answered(self):
        self.link.send(b"hello")
        answered = []

        def look():
            self.link.receive()
            answered.append(self.link.waiting and self.link._decoder.is_open)
            self.link.flush()
            return sum(answered) > 3
        eventually(look, "it asks again after an answer")
        self.assertFalse(self.link.is_broken)
        peer, _ = self.router.recv_multipart()
        self.router.send_multipart([peer, b"still here"])
        self.assertEqual(self.take(), [[b"still here"]])
