"""Raw connection to the broker under test. It sends and receives only the messages of the scenario."""

import collections
import re
import time

import zmq

from matching import Received
from support.client import Message


def decoded(frames):
    """Returns a message of a broker or a client as a `Received`."""
    message = Message(frames)
    return Received(" ".join([message.verb, *message.operands]), message.fields, message.headers, message.body)


class Connection:
    """A DEALER socket."""

    def __init__(self, runtime):
        self._socket = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.linger = 1000
        self._socket.reconnect_ivl = 10
        self._socket.connect(f"ipc://{runtime}/bus")
        self._is_leased = False
        self._number = 0
        """Highest number of a message in the session."""

    def send(self, frames):
        if found := re.match(rb"[^\n]*\nnumber: (\d+)\n", frames[0]):
            self._number = max(self._number, int(found[1]))
        if not self._socket.poll(10_000, zmq.POLLOUT):
            raise AssertionError("the broker takes nothing")
        self._socket.send_multipart(frames)

    def ping(self):
        """Asks a question whose answer is `ANSWER ping`. A session with a lease requires a number."""
        number = f"number: {self._number + 1}\n" if self._is_leased else ""
        self.send([f"QUERY ping\n{number}".encode()])

    def read(self, timeout):
        """Returns the next message, or None on timeout."""
        if not self._socket.poll(max(0, timeout) * 1000):
            return None
        message = decoded(self._socket.recv_multipart())
        if message.line.startswith("WELCOME "):
            self._is_leased = "lease" in message.fields
            self._number = int(message.fields.get("resumed", 0))
        return message

    def rest(self, timeout):
        """Returns unread messages before the answer to a new question."""
        self.ping()
        unread = []
        while (message := self.read(timeout)) is None or message.line not in ("ANSWER ping", "ERROR hello-required"):
            if message is None:
                raise AssertionError(f"no answer to QUERY ping within {timeout} s; before it: {unread}")
            unread.append(message)
        return unread

    def break_off(self):
        """Closes the connection without BYE."""
        self._socket.close(linger=0)

    def close(self):
        """Sends BYE, so that the session ends before the next scenario."""
        if self._socket.closed:
            return
        try:
            self._socket.send(b"BYE\n", zmq.DONTWAIT)
        except zmq.Again:
            pass
        self._socket.close()


class StandIn:
    """Stand-in broker that sends the messages of the scenario.

    It answers `QUERY ping` and a removal of `nothing/here`, gives further connections of the program the WELCOME of the
    first one, and answers messages with a number by OK where nothing else answers. A REMOVED of the scenario names the
    number of its REMOVE. `acknowledged` is the highest number of an ACK, `taken` the number of messages except HELLO.
    """

    def __init__(self, runtime):
        self._endpoint = f"ipc://{runtime}/bus"
        self._peer = None
        self._inbox = collections.deque()
        self.taken = 0
        self.socket = None
        self.bind()

    def bind(self):
        """Closes the socket and binds it again, as another broker in the same place would."""
        if self.socket is not None:
            self.socket.close(linger=0)
        self.socket = zmq.Context.instance().socket(zmq.ROUTER)
        self.socket.bind(self._endpoint)
        self._inbox.clear()
        self._greeting = None
        self._removals = {}
        self.acknowledged = 0

    def send(self, frames):
        if frames[0].startswith(b"WELCOME "):
            self._greeting = (self._peer, frames)
        line = frames[0].split(b"\n")[0].decode("latin-1")
        number = self._removals.pop(line.rpartition(" ")[0], None) if line.startswith("REMOVED ") else None
        self._answer(frames, number)

    def _answer(self, frames, number):
        """Sends an answer to a message, which may have a number."""
        if number is not None:
            line, _, rest = frames[0].partition(b"\n")
            frames = [line + b"\nto: " + number.encode() + b"\n" + rest, *frames[1:]]
        self.socket.send_multipart([self._peer, *frames])

    def take(self):
        """Processes one message from the socket."""
        self._peer, *frames = self.socket.recv_multipart()
        message = decoded(frames)
        self.taken += not message.line.startswith("HELLO ")
        number = message.fields.get("number")
        if message.line.startswith("ACK "):
            self.acknowledged = max(self.acknowledged, int(message.line[4:]))
        elif message.line.startswith("HELLO ") and self._greeting and self._greeting[0] != self._peer:
            self.socket.send_multipart([self._peer, *self._greeting[1]])
        elif message.line == "QUERY ping":
            self._answer([b"ANSWER ping\n", b"{}"], number)
        elif message.line == "REMOVE nothing/here":
            self._answer([b"REMOVED nothing/here 0\n"], number)
        elif message.line != "BYE":
            self._inbox.append(message)
            if message.line.startswith("REMOVE "):
                self._removals["REMOVED " + message.line.removeprefix("REMOVE ")] = number
            elif number and message.line.split(" ")[0] in ("SUBSCRIBE", "UNSUBSCRIBE", "PRIORITY", "COOKIES"):
                self._answer([b"OK\n"], number)

    def read(self, timeout):
        """Returns the next message that is no ACK, or None on timeout."""
        return self._inbox.popleft() if self._await(lambda: self._inbox, timeout) else None

    def await_acknowledgement(self, number, timeout):
        """Whether exactly the terminals up to `number` are acknowledged in time."""
        self._await(lambda: self.acknowledged >= number, timeout)
        return self.acknowledged == number

    def _await(self, condition, timeout):
        deadline = time.monotonic() + timeout
        while not condition() and self.socket.poll(max(0, deadline - time.monotonic()) * 1000):
            self.take()
        return condition()

    def close(self):
        self.socket.close(linger=0)
