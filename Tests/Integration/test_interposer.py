"""libzmq between programs and a broker: nothing is lost or added, and the broker still sees the program's process."""

import os
import shutil
import socket
import struct
import sys
import tempfile
import unittest
from pathlib import Path

import zmq

from support.interposer import Interposer, build
from support.processes import Program

#: Fewer than may wait in a socket: interposer.py.
MESSAGES = 900
# Sends messages of one to three frames, without waiting for a receiver, and ends. `sys.argv`: path, number.
SENDER = """
import sys, zmq
context = zmq.Context()
dealer = context.socket(zmq.DEALER)
dealer.sndhwm = 0
dealer.connect("ipc://" + sys.argv[1])
for number in range(int(sys.argv[2])):
    dealer.send_multipart([b"%d" % number] + [b"x" * number] * (number % 3))
dealer.close(-1)
context.term()
"""
# Sends messages as long as there is room, prints their number, and waits for the end of its input.
FLOODER = """
import sys, zmq
dealer = zmq.Context().socket(zmq.DEALER)
dealer.sndhwm, count = 1, 0
dealer.connect("ipc://" + sys.argv[1])
while count < 100_000 and dealer.poll(1_000, zmq.POLLOUT):
    dealer.send(b"x" * 10_000)
    count += 1
print(count, flush=True)
sys.stdin.read()
"""
# Prints the number of messages until the connection ends, and their last one.
RECEIVER = """
import sys, zmq
dealer = zmq.Context().socket(zmq.DEALER)
dealer.rcvhwm = 0
monitor = dealer.get_monitor_socket(zmq.EVENT_DISCONNECTED)
dealer.connect("ipc://" + sys.argv[1])
dealer.send(b"here")
monitor.recv_multipart()
found = []
while dealer.poll(0):
    found.append(dealer.recv())
print(len(found), found[-1].decode(), flush=True)
"""
# Prints the process ID of its peer according to SO_PEERCRED, and waits for the end of its input.
CALLER = """
import socket, struct, sys
caller = socket.socket(socket.AF_UNIX)
caller.connect(sys.argv[1])
print(struct.unpack("3i", caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0], flush=True)
sys.stdin.read()
"""


def peer(connection):
    """Returns the process ID of the peer."""
    return struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


class InterposerTests(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="ear-")))
        self.interposer = self.enterContext(Interposer(build(self.folder)))
        self.context = self.enterContext(zmq.Context())

    def start(self, script, *arguments, name="earshot-probe"):
        """Starts a Python program whose executable has this name."""
        program = self.folder / name
        if not program.exists():
            shutil.copy(Path(sys.executable).resolve(), program)
        variables = self.interposer.variables()
        environment = {"INTERPOSER": variables["INTERPOSER"], "LD_PRELOAD": variables["INTERPOSER_LIBRARY"]}
        started = Program([program, "-B", "-c", script, self.folder / "bus", *arguments], environment)
        self.addCleanup(lambda: started.running and started.kill())
        return started

    def router(self):
        router = self.enterContext(self.context.socket(zmq.ROUTER))
        router.linger, router.rcvtimeo = 0, 10_000
        router.bind(f"ipc://{self.folder}/bus")
        return router

    def test_messages_of_a_program_that_has_ended_arrive_in_order(self):
        router = self.router()
        sender = self.start(SENDER, MESSAGES)
        self.assertEqual(sender.wait(), 0, sender.describe())
        for number in range(MESSAGES):
            self.assertEqual(router.recv_multipart()[1:], [b"%d" % number] + [b"x" * number] * (number % 3))
        _, counts = self.interposer.end()
        self.assertEqual(counts, {"bus connections": 1, "handshakes": 2, "messages": MESSAGES})

    def test_a_receiver_that_does_not_read_stops_the_sender(self):
        router = self.router()
        flooder = self.start(FLOODER)
        count = int(flooder.await_line("", "stdout", timeout=30))
        self.assertLess(count, 10_000)
        for _ in range(count):
            self.assertEqual(len(router.recv_multipart()[1]), 10_000)
        flooder.write(b"")
        flooder.wait()

    def test_messages_of_a_broker_that_has_ended_arrive(self):
        router = self.router()
        receiver = self.start(RECEIVER)
        program = router.recv_multipart()[0]
        router.linger = -1
        for number in range(MESSAGES):
            router.send_multipart([program, b"%d" % number])
        router.close()
        receiver.wait()
        self.assertEqual(receiver.stdout, b"%d %d\n" % (MESSAGES, MESSAGES - 1), receiver.describe())

    def test_broker_and_program_see_each_others_process(self):
        listener = self.enterContext(socket.socket(socket.AF_UNIX))
        listener.bind(f"{self.folder}/bus")
        listener.listen()
        for name, count in (("earshot-probe", 1), ("other", 0)):
            with self.subTest(name):
                caller = self.start(CALLER, name=name)
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(10)
                    self.assertEqual(peer(connection), caller.pid)
                    self.assertEqual(int(caller.await_line("", "stdout")), os.getpid())
                    # libzmq's greeting, and only for a program of Earshot. The interposer sends none once the program has ended.
                    if count:
                        self.assertTrue(connection.recv(1))
                    caller.write(b"")
                    caller.wait()
                    if not count:
                        self.assertFalse(connection.recv(1))
        _, counts = self.interposer.end()
        self.assertEqual(counts["bus connections"], 1)
