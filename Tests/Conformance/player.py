"""Player of a scenario: against the broker, or against a library with the broker or a stand-in as its peer."""

import fcntl
import os
import shutil
import struct
import time
import uuid

from connection import Connection, StandIn
from library import Library
from matching import Mismatch, Names, bytes_of, compare
from scenario import Block
from support.harness import temporary_folder
from support.origin import Origin
from support.processes import eventually, kill
from tampering import Untouched

_FLOCK = struct.Struct("hhqqi4x")
"""struct flock of fcntl(2) on 64-bit Linux: type, whence, start, length, pid."""


class Player:
    """One run of a scenario. `adapter`: start of a library's adapter, (command, folder, environment). `tampering`: the
    fault injected into the messages under test."""

    def __init__(self, scenario, bus, adapter=None, tampering=None):
        self._scenario = scenario
        self._bus = bus
        self._adapter = adapter
        self._tampering = tampering or Untouched()
        self._connections = {}
        self._unread = {}
        self._program = None
        self._broker = None
        self._folder = None

    @property
    def _timeout(self):
        """Seconds to wait for a message. After an injected fault a missing message will not come, so 1 s is
        enough."""
        return 1 if self._tampering.done else 20

    def play(self):
        """Plays all steps. Raises `AssertionError` with the first step that fails."""
        self._origin = Origin().start()
        self._names = Names(origin=self._origin.url, run=uuid.uuid4().hex)
        try:
            if self._scenario.folder == "stand-in":
                self._folder = temporary_folder()
                self._lock = os.open(self._folder / "serve.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.fcntl(self._lock, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, 0, 0, 0, 0))
                self._broker = StandIn(self._folder)
            self._do(self._scenario.steps)
            self._expect_nothing_else()
        except AssertionError as error:
            if self._program is not None and (output := self._program.describe()):
                error.add_note(f"the adapter printed: {output}")
            raise
        finally:
            self._close()

    def _expect_nothing_else(self):
        """Fails if anything but progress is unread, or precedes the answer to a question on an open DEALER."""
        left = [received for unread in self._unread.values() for received in unread] + self._tampering.left()
        for connection in self._connections.values():
            left += connection.rest(self._timeout)
        if left := [received for received in left if not received.line.lower().startswith("progress ")]:
            raise Mismatch(f"{self._scenario}: no step expects\n    {left}")

    def _close(self):
        if self._program is not None:
            self._program.close()
        for connection in self._connections.values():
            connection.close()
        if self._broker is not None:
            self._broker.close()
            os.close(self._lock)
            shutil.rmtree(self._folder)
        self._origin.stop()

    def _do(self, steps):
        for step in steps:
            if isinstance(step, Block):
                self._repeat(step)
                continue
            party = step.party if step.party in ("origin", "broker", "program") else "connection"
            action = getattr(self, f"_{party}_{step.action}", None)
            if action is None:
                raise AssertionError(f"{step.location}: '{step.party} {step.action}' is no step")
            try:
                action(step)
            except Mismatch:
                raise
            except AssertionError as error:
                raise AssertionError(f"{step.location}: {step.line}: {error}") from error

    def _repeat(self, block):
        if block.times is None:
            def goes():
                try:
                    self._do(block.steps)
                except Mismatch:
                    return False
                return True
            eventually(goes, "the steps go as written", self._timeout)
            return
        for turn in range(1, block.times + 1):
            self._names.known["n"] = str(turn)
            self._do(block.steps)

    def _frames(self, step):
        """Returns the frames of a message to send: a head, and a body for each `[body is …]`."""
        head, bodies = [step.text], []
        for line in step.below:
            if line.startswith("[body is "):
                bodies.append(bytes_of(self._names.fill(line[len("[body is "):-1])))
            else:
                head.append("" if line == "[http]" else line)
        return [(self._names.fill("\n".join(head)) + "\n").encode("latin-1"), *bodies]

    # Receiving, common to all parties.

    def _expect_next(self, step, party, source, untouched=False):
        """Requires the next message to match the step."""
        unread = self._unread.setdefault(party, [])
        received = unread.pop(0) if unread else self._next(source, untouched)
        if received is None:
            raise Mismatch(f"{step.location}: expected\n    {step.line}\nnothing came within {self._timeout} s")
        compare(step, self._names, received)

    def _find(self, step, party, source):
        """Requires some later message to match the step. Messages before it stay unread, in their order."""
        unread = self._unread.setdefault(party, [])
        seen = []
        deadline = time.monotonic() + self._timeout
        while True:
            received = unread.pop(0) if unread else self._next(source) if time.monotonic() < deadline else None
            if received is None:
                listed = "\n    ".join(map(str, seen))
                raise Mismatch(f"{step.location}: expected\n    {step.line}\nnone such; received\n    {listed}")
            if self._names.match(step.text, received.line):
                compare(step, self._names, received)
                self._unread[party] = seen + unread
                return
            seen.append(received)

    def _next(self, source, untouched=False):
        def read():
            return source.read(self._timeout)
        return read() if untouched else self._tampering.read(source, read)

    # Raw connections: any party name except those below.

    def _connection(self, step):
        if step.party not in self._connections:
            self._connections[step.party] = Connection(self._bus.runtime)
        return self._connections[step.party]

    def _connection_connects(self, step):
        if earlier := self._connections.pop(step.party, None):
            earlier.close()
            self._unread.pop(step.party, None)
        self._connections[step.party] = Connection(self._bus.runtime)

    def _connection_sends(self, step):
        self._connection(step).send(self._frames(step))

    def _connection_receives(self, step):
        connection = self._connection(step)
        if step.text == "nothing":
            connection.ping()
            step = step.expecting("ANSWER ping")
        # In scenarios about a library only the events of the program are tampered with.
        self._expect_next(step, step.party, connection, untouched=self._scenario.folder != "broker")

    def _connection_finds(self, step):
        self._find(step, step.party, self._connection(step))

    def _connection_leaves(self, step):
        self._connections.pop(step.party).close()

    def _connection_breaks(self, step):
        self._connections.pop(step.party).break_off()

    # The program that uses the library.

    def _program_starts(self, step):
        command, folder, environment = self._adapter
        runtime = self._folder or self._bus.runtime
        environment = {**environment, "EARSHOT_RUNTIME": str(runtime)}
        self._program = Library(command, step.text.split(), folder, environment, self._broker)

    def _program_calls(self, step):
        self._program.send_command(self._names.fill(step.text))

    def _program_receives(self, step):
        greeting = step.text == "ready"
        if step.text == "nothing":
            self._program.send_command("remove nothing/here")
            step = step.expecting("removed nothing/here 0")
        self._expect_next(step, "program", self._program, untouched=greeting)

    def _program_may(self, step):
        """`may receive`: reads an event, and keeps it for the next step if it does not match."""
        received = self._next(self._program)
        if received is not None and not self._names.match(step.text.removeprefix("receive "), received.line):
            self._unread.setdefault("program", []).append(received)

    def _program_finds(self, step):
        self._find(step, "program", self._program)

    # The broker. The real one only dies; the stand-in sends the messages of the scenario.

    def _broker_dies(self, _step):
        last = self._bus.broker
        kill(last)
        deadline = time.monotonic() + self._timeout
        while self._bus.broker == last:
            if time.monotonic() > deadline:
                raise AssertionError("no other broker came")

    def _broker_breaks(self, _step):
        self._broker.bind()

    def _broker_sends(self, step):
        self._names.known["taken"] = str(self._broker.taken)
        self._broker.send(self._frames(step))

    def _broker_receives(self, step):
        if step.text.startswith("ACK "):
            wanted = int(step.text[4:])
            if not self._broker.await_acknowledgement(wanted, self._timeout):
                raise Mismatch(f"{step.location}: {self._broker.acknowledged} is acknowledged, not {wanted}")
            return
        if step.text == "nothing":
            # All messages that preceded the program's last event have arrived.
            if (received := self._broker.read(0)) is not None:
                raise Mismatch(f"{step.location}: received\n    {received}")
            return
        self._expect_next(step, "broker", self._broker, untouched=True)

    # The test server.

    def _origin_opens(self, step):
        self._origin.open_gate(step.text)

    def _origin_receives(self, step):
        target, times = _counted(self._names.fill(step.text), 1)
        self._origin.await_count(target, times, self._timeout)

    def _origin_received(self, step):
        target, times = _counted(self._names.fill(step.text), 1)
        if (count := self._origin.count(target)) != times:
            raise Mismatch(f"{step.location}: the origin was asked {count} times for {target}, not {times}")

    def _origin_loses(self, step):
        target, times = _counted(self._names.fill(step.text), 1)
        self._origin.await_aborts(target, times, self._timeout)


def _counted(text, usual):
    """Parses `TARGET` or `TARGET N times`."""
    target, _, rest = text.partition(" ")
    return target, int(rest.removesuffix(" times").removesuffix(" time")) if rest else usual
