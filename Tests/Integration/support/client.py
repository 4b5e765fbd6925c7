"""Minimal EAR/1 client over one DEALER, under full control of a test."""

import collections
import json
import time

import zmq
from zmq.utils.monitor import recv_monitor_message

TERMINALS = ("RESULT", "FAILED")


class Message:
    """Received message: `verb`, `operands`, `fields`, HTTP `headers`, `inline` (the second frame, or None), `body` (inline, or
    the contents of the file)."""

    def __init__(self, frames):
        self.at = time.monotonic()
        head = frames[0].decode("latin-1")
        top, _, rest = head.partition("\n\n")
        lines = top.rstrip("\n").split("\n")
        self.verb, *self.operands = lines[0].split(" ")
        self.fields = dict(part.split(": ", 1) if ": " in part else (part.rstrip(":"), "") for part in lines[1:])
        self.headers = [line.partition(":")[::2] for line in rest.split("\n") if line]
        self.inline = frames[1] if len(frames) > 1 else None
        self.body = self.inline

    @property
    def is_terminal(self):
        return self.verb in TERMINALS

    @property
    def id(self):
        """(handler, request)."""
        return tuple(self.operands[:2])

    def take_file(self):
        """Reads the body from its file, whose path is valid until the terminal is acknowledged."""
        if "file" in self.fields:
            with open(self.fields["file"], "rb") as file:
                self.body = file.read()

    def content(self):
        """Returns the bytes of the body."""
        return self.body or b""

    def __repr__(self):
        return f"<{self.verb} {' '.join(self.operands)} {self.fields}>"


class Client:
    """One connection. `window`: maximum number of unacknowledged terminals. Acknowledges terminals as it reads them.
    `lease`: seconds for which the broker keeps the session after a disconnection. `bodies`: "pull" to read bodies by READ."""

    def __init__(self, runtime, window=256, hello=True, linger=1000, lease=None, bodies=None):
        self.runtime = runtime
        self.socket = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.linger = linger
        self.socket.rcvhwm = 0
        self.socket.reconnect_ivl = 10
        self.window = window
        self.lease = lease
        self.bodies = bodies
        self.token = None
        self.unanswered = None
        """Number from which a resumed session lacks answers; None without numbers."""
        self._is_leased = False
        self.number = 0
        """Number of the last message."""
        self.broker = None
        self._inbox = collections.deque()
        self._acknowledged = 0
        self._seen = 0
        self._is_holding = False
        self.take_files = True
        """Whether a body in a file is read together with its terminal."""
        self._connect(f"ipc://{runtime}/bus")
        if hello:
            self.hello()

    def _connect(self, address):
        self.socket.connect(address)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Sends BYE, so that the broker purges this client's open requests although its process lives on."""
        if not self.socket.closed:
            try:
                self.socket.send(b"BYE\n", zmq.DONTWAIT)
            except zmq.Again:
                pass
            self.socket.close()

    # Sending.

    def send(self, line, headers=(), body=None, **fields):
        """Sends a message; `max_bytes=5` is the field `max-bytes: 5`. In a session with a lease the messages have numbers."""
        head = [line]
        if line.startswith("HELLO "):
            self._is_leased = bool(fields.get("lease"))
        if self._is_leased and "number" not in fields and line.split(" ")[0] not in ("HELLO", "ACK", "READ", "BYE"):
            self.number += 1
            head.append(f"number: {self.number}")
        head += [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
        if headers:
            head += [""] + [f"{name}: {value}" for name, value in headers]
        frames = [("\n".join(head) + "\n").encode("latin-1")]
        if body is not None:
            frames.append(body)
        if not self.socket.poll(30_000, zmq.POLLOUT):
            raise AssertionError(f"the broker took nothing for 30 s: {line}")
        self.socket.send_multipart(frames)

    def cut(self):
        """Breaks the connection while the process lives on."""
        self.socket.close(linger=0)

    def come_back(self):
        """Returns another connection that resumes this session, once the broker has noticed the end of this one."""
        while True:
            successor = Client(self.runtime, self.window, hello=False, lease=self.lease, bodies=self.bodies)
            successor.token = self.token
            if successor.greet() == "WELCOME":
                return successor
            successor.cut()

    def hello(self):
        answer = self.greet()
        if answer != "WELCOME":
            raise AssertionError(answer)

    def greet(self):
        """Sends HELLO. Returns "WELCOME" or the code of the error."""
        fields = {"window": self.window, "lease": self.lease, "token": self.token,
                  "unanswered": self.unanswered, "bodies": self.bodies}
        self.send("HELLO EAR/1", **{name: value for name, value in fields.items() if value is not None})
        answer = self._read(30)
        if answer is None or answer.verb != "WELCOME":
            return answer and answer.operands[0]
        self.broker = answer.fields["broker"]
        self.token = answer.fields.get("token")
        self.resumed_number = int(answer.fields["resumed"]) if "resumed" in answer.fields else None
        self.number = self.resumed_number or 0
        return "WELCOME"

    def fetch(self, handler, request, url, headers=(), body=None, **fields):
        self.send(f"FETCH {handler} {request} {url}", headers, body, **fields)

    def remove(self, handler):
        """Sends REMOVE. Returns the reply."""
        self.send(f"REMOVE {handler}")
        return self.expect("REMOVED", handler)

    def cancel(self, handler, request):
        self.send(f"REMOVE {handler} {request}")
        return self.expect("REMOVED", handler, str(request))

    def take(self, sequence):
        """Sends TAKE. Returns the path in the reply, None without one, or the code of the ERROR."""
        self.send(f"TAKE {sequence}")
        while (message := self._read(30)) is not None:
            if message.verb == "TAKEN" and message.operands[0] == str(sequence):
                return " ".join(message.operands[1:]) or None
            if message.verb == "ERROR":
                return message.operands[0]
            self._inbox.append(message)
        raise AssertionError(f"no answer to TAKE {sequence} in time")

    def query(self, what, timeout=60):
        """Returns the parsed ANSWER to `QUERY what`."""
        self.send(f"QUERY {what}")
        answer = self.expect("ANSWER", *what.split(" "), timeout=timeout)
        return json.loads(answer.body) if answer.body else None

    def set(self, text):
        """Sends SET. Returns the reply: a CHANGED or an ERROR."""
        self.send(f"SET {text}")
        while (message := self._read(30)) is not None:
            if message.verb in ("CHANGED", "ERROR"):
                return message
            self._inbox.append(message)
        raise AssertionError(f"no answer to SET {text} in time")

    def settings(self):
        """Returns (value, source) of each setting by name, of a rule by `origin PATTERN`."""
        rows = self.query("settings")["settings"]
        return {" ".join([row["name"], *([row["pattern"]] if "pattern" in row else [])]): (row["value"], row["source"])
                for row in rows}

    # Receiving.

    def receive(self, timeout=60):
        """Returns the next message, or None after the timeout."""
        if self._inbox:
            return self._inbox.popleft()
        return self._read(timeout)

    def expect(self, verb, *operands, timeout=60):
        """Returns the first message with this verb and these first operands; earlier messages stay unread."""
        def fits(message):
            return message.verb == verb and message.operands[:len(operands)] == list(operands)

        for index, message in enumerate(self._inbox):
            if fits(message):
                del self._inbox[index]
                return message
        deadline = time.monotonic() + timeout
        while (message := self._read(deadline - time.monotonic())) is not None:
            if fits(message):
                return message
            self._inbox.append(message)
        raise AssertionError(f"no {verb} {' '.join(operands)} within {timeout} s; unread: {list(self._inbox)[:10]}")

    def terminals(self, count, timeout=60):
        """Returns the next `count` terminals in order; fails after the timeout. Other messages stay unread."""
        found, others = [], []
        deadline = time.monotonic() + timeout
        while len(found) < count:
            message = self.receive(max(0, deadline - time.monotonic()))
            if message is None:
                raise AssertionError(f"{len(found)} of {count} terminals within {timeout} s; besides: {others[:10]}")
            (found if message.is_terminal else others).append(message)
        self._inbox.extendleft(reversed(others))
        return found

    def terminal(self, timeout=60):
        return self.terminals(1, timeout)[0]

    def rest(self):
        """Returns all unread messages, up to the reply to a query sent now. Empty if nothing else was sent."""
        self.query("ping")
        rest = list(self._inbox)
        self._inbox.clear()
        return rest

    def hold(self):
        """Stops acknowledging, so that files stay and the window fills."""
        self._is_holding = True

    def release(self):
        """Acknowledges all terminals read so far, and resumes acknowledging."""
        self._is_holding = False
        self._acknowledge()

    def _read(self, timeout):
        if not self.socket.poll(max(0, timeout) * 1000):
            return None
        message = Message(self.socket.recv_multipart())
        if message.verb == "OK":
            return self._read(timeout)
        if message.is_terminal and "seq" in message.fields:
            if self.take_files:
                message.take_file()
            self._seen = int(message.fields["seq"])
        self._acknowledge()
        return message

    def _acknowledge(self):
        if self._is_holding or self._seen == self._acknowledged:
            return
        if self._seen - self._acknowledged >= 32 or not self.socket.poll(0):
            self._acknowledged = self._seen
            self.socket.send(f"ACK {self._seen}\n".encode())


class StubbornClient(Client):
    """Client that survives the broker's death: at each reconnection it sends HELLO and repeats its open requests."""

    def __init__(self, runtime, window=256):
        self._connections = 0
        self._open = {}
        self._answers = collections.defaultdict(list)
        super().__init__(runtime, window)

    def _connect(self, address):
        self._monitor = self.socket.get_monitor_socket(zmq.EVENT_CONNECTED)
        self._poller = zmq.Poller()
        self._poller.register(self.socket, zmq.POLLIN)
        self._poller.register(self._monitor, zmq.POLLIN)
        super()._connect(address)

    def close(self):
        if not self.socket.closed:
            self.socket.disable_monitor()
            self._monitor.close()
        super().close()

    def fetch(self, handler, request, url, headers=(), **fields):
        self._open[(handler, str(request))] = (url, headers, fields)
        super().fetch(handler, request, url, headers, **fields)

    def await_next_broker(self, timeout=60):
        """Waits until another broker has sent WELCOME and the requests were repeated."""
        last, deadline = self.broker, time.monotonic() + timeout
        while self.broker == last:
            self._turn(deadline, "no other broker answered")

    def collect(self, timeout=60):
        """Returns lists of terminals by (handler, request), which reveal duplicates."""
        deadline = time.monotonic() + timeout
        while self._open:
            self._turn(deadline, f"{len(self._open)} requests unanswered")
        return self._answers

    def _turn(self, deadline, otherwise):
        ready = dict(self._poller.poll(max(0, deadline - time.monotonic()) * 1000))
        if not ready:
            raise AssertionError(otherwise)
        if self._monitor in ready:
            recv_monitor_message(self._monitor)
            self._connections += 1
            if self._connections > 1:
                self._greet_again()
        while self._inbox or self.socket.poll(0):
            message = self.receive(0)
            if message.verb == "WELCOME":
                self._resume(message)
            elif message.is_terminal:
                self._answers[message.id].append(message)
                self._open.pop(message.id, None)

    def _greet_again(self):
        self._seen = self._acknowledged = 0
        self.send("HELLO EAR/1", window=self.window)

    def _resume(self, welcome):
        self.broker = welcome.fields["broker"]
        for (handler, request), (url, headers, fields) in list(self._open.items()):
            super().fetch(handler, request, url, headers, **fields)
