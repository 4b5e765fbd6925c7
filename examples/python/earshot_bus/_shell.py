"""Shell common to the asyncio and the blocking client: it executes the actions of `_protocol.Core`.

Subclasses decide how a caller waits.
"""

from __future__ import annotations

import abc
import logging
import os
import pathlib
import secrets
import socket
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Sequence
from typing import IO, Protocol

from . import _folders, _network, _tunnel
from ._link import Link
from ._messages import Bodies, Fetch, FetchOptions, Message, Progress
from ._protocol import (MOST_LOSSES, Action, CloseBus, Core, Deliver, DeliveryID, Discard, Drain, Drop, Greeted, Key,
                        Note, Phase, Refuse, Reopen, Report, Resolve, Send, Store)
from ._pulling import NETWORK_READS, OPEN_READS
from ._results import (NOTHING, Closed, EarshotError, FetchFailed, Hold, NoBroker, Refused, Result, Terminal, in_memory,
                       terminal)

MOST_UNACKNOWLEDGED, LONGEST_ACK_DELAY = 32, 0.02
"""Maximum number of terminals, and of seconds, that one acknowledgement may cover. An eighth of the window if that is
less."""

_log = logging.getLogger("earshot_bus")


class AnyTransfer(abc.ABC):
    """Pending request, the common base of both forms."""

    _losses = 0

    def __init__(self, fetch: Fetch, on_progress: Callable[[Progress], object] | None) -> None:
        self._fetch = fetch
        self._on_progress = on_progress

    @property
    def handler(self) -> str:
        """Name of the handler."""
        return self._fetch.handler

    @property
    def request(self) -> str:
        """ID of the request, as `why` expects it. It changes if the file of the body was lost and the bus repeats the
        request."""
        return self._fetch.request

    @property
    def url(self) -> str:
        """The requested URL."""
        return self._fetch.url

    @abc.abstractmethod
    def done(self) -> bool:
        """Returns whether the request has ended."""

    @abc.abstractmethod
    def _succeed(self, result: Result) -> None:
        """Ends the request with a result. The request must be pending."""

    @abc.abstractmethod
    def _fail(self, error: EarshotError, expected: bool = False) -> None:
        """Ends the request with an error, unless it has ended. `expected`: caused by the caller, who may ignore it."""

    @abc.abstractmethod
    def _report(self, step: Progress) -> None:
        """Reports progress."""

    def _call_progress(self, step: Progress) -> None:
        """Calls the application's `on_progress`. Logs its exceptions."""
        if self._on_progress is not None:
            try:
                self._on_progress(step)
            except Exception:
                _log.exception("on_progress of %s %s", self.handler, self.request)


class Answer(Protocol):
    """Future of a caller that waits for an answer, or for WELCOME, with None."""

    def done(self) -> bool: ...
    def set_result(self, answer: Message | None, /) -> None: ...
    def set_exception(self, error: EarshotError, /) -> None: ...


class TerminalQueue(Protocol):
    """Queue of results that a watch has not taken."""

    def put(self, found: Terminal, hold: Hold) -> None: ...
    def end(self) -> None: ...


class BusLocation:
    """Bus to connect to: of this machine, private, or on a network.

    Raises `ValueError` for an invalid address or key, and `NoBroker` for an unusable key file, or without pyzmq.
    """

    def __init__(self, runtime: _network.Addresses = None, private: bool = False,
                 key: str | os.PathLike[str] | None = None, server_key: str | Sequence[str] | None = None) -> None:
        self.private = private
        self.buses = None if private else _network.find(runtime, key, server_key)
        if self.buses is not None:
            _tunnel.library()
        elif key or server_key:
            raise ValueError("keys are for a bus on a network: give its address, tcp://HOST:PORT")
        elif not (runtime is None or isinstance(runtime, (str, os.PathLike))):
            raise ValueError("several buses need addresses: tcp://HOST:PORT")
        self.runtime: str | os.PathLike[str] | None = None if self.buses is not None else runtime  # type: ignore[assignment]


class Shell(abc.ABC):
    """Connection to the broker, for one thread at a time.

    After the end of a broker it repeats the pending requests at the next one.
    """

    def __init__(self, location: BusLocation, window: int, timeout: float, lease: float | None,
                 bodies: Bodies = "path") -> None:
        _shells.add(self)
        self._runtime, self._private = location.runtime, location.private
        self._buses = location.buses
        self._tunnel: _tunnel.Tunnel | None = None
        reads = OPEN_READS
        if self._buses is not None:
            bodies, reads = "pull", NETWORK_READS
        if lease is None:
            lease = 0.0 if self._buses is None else _network.LEASE
        self._connect_timeout = timeout
        # Random part of request IDs, so that requests of other connections never have the same ID.
        self._nonce = secrets.token_hex(6)
        self._core = Core(window, lease, bodies=bodies, reads=reads)
        self._most_unacknowledged = min(MOST_UNACKNOWLEDGED, window // 8)
        self._acknowledges_at_once = False
        self._last = 0
        self._folder: pathlib.Path
        self._obstacle: OSError | None = None
        """Error of the last attempt to connect."""
        self._greeted: Answer
        self._transfers: dict[Key, AnyTransfer] = {}
        self._answers: dict[int, Answer] = {}
        self._watches: dict[int, TerminalQueue] = {}
        self._handlers: set[str] = set()
        self._parts: dict[DeliveryID, IO[bytes] | OSError] = {}
        """Unnamed files with bodies that are read by READ; the error of one that could not be written."""
        self._link: Link | None = None
        self._entered = False
        self._closed = True
        self.broker: str | None = None
        """ID of the running broker, 16 hexadecimal digits; a new broker has another one. None before WELCOME."""

    # Hooks for subclasses.

    @abc.abstractmethod
    def _attach(self, link: Link) -> None:
        """Starts to poll a new connection."""

    @abc.abstractmethod
    def _detach(self, link: Link) -> None:
        """Stops to poll a connection, before it is closed."""

    @abc.abstractmethod
    def _await_room(self, link: Link) -> None:
        """Starts to poll for room to write if the link `is_full`, else stops it. Room leads to a call of `_pump`."""

    @abc.abstractmethod
    def _reopen(self, after: float | None) -> None:
        """Calls `_open_link` once after `after` seconds; None cancels that call."""

    @abc.abstractmethod
    def _pump_soon(self) -> None:
        """Calls `_pump` before the next wait."""

    @abc.abstractmethod
    def _acknowledge_in_time(self) -> None:
        """Calls `_acknowledge` within `LONGEST_ACK_DELAY` seconds."""

    @abc.abstractmethod
    def _later(self, call: Callable[..., object], *arguments: object) -> None:
        """Schedules a call in the shell's context. Safe in any thread and in a finalizer."""

    # Calls of the application.

    def _enter(self) -> None:
        if self._entered:
            raise RuntimeError("a bus is entered once: call connect() again")
        self._entered = True

    def _find(self) -> pathlib.Path:
        if self._buses is not None:
            return pathlib.Path()
        if self._private:
            return _folders.private_folder()
        folder = _folders.runtime_folder(self._runtime)
        if not _folders.is_served(folder):
            raise _folders.no_broker(folder)
        return folder

    def _unanswered(self) -> EarshotError:
        if self._buses is not None:
            return NoBroker(f"{self._buses.last_failure} (waited {self._connect_timeout:g} s)")
        why = f" ({self._obstacle.strerror or self._obstacle})" if self._obstacle is not None else ""
        return _folders.no_broker(self._folder, f"no broker answered within {self._connect_timeout:g} s{why}")

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("this bus is not open: use it inside its `with`")

    def _next(self) -> int:
        self._last += 1
        return self._last

    def _make(self, handler: str, url: str, options: FetchOptions, replace: bool) -> Fetch:
        self._check_open()
        return Fetch.make(handler, f"{self._nonce}-{self._next()}", url, options, replace)

    def _begin(self, transfer: AnyTransfer) -> None:
        fetch = transfer._fetch
        self._transfers[(fetch.handler, fetch.request)] = transfer
        self._apply(self._core.fetch(fetch))

    def _cancelled(self, key: Key) -> None:
        if self._transfers.pop(key, None) and self._core.wants(key) and not self._closed:
            self._apply(self._core.cancel(key, self._next()))

    def _open_handler(self, name: str) -> None:
        if name in self._handlers:
            raise ValueError(f"the handler {name} is open on this bus already")
        self._check_open()
        self._handlers.add(name)

    def _start_question(self, command: Callable[[int], list[Action]], answer: Answer) -> int:
        """Sends a question. Returns its token, the key of its future in `_answers`."""
        self._check_open()
        self._acknowledge()  # So an answer proves that all earlier messages and acknowledgements have arrived.
        token = self._next()
        actions = command(token)
        self._answers[token] = answer
        self._apply(actions)
        return token

    def _start_watch(self, pattern: str, queue: TerminalQueue) -> int:
        self._check_open()
        token = self._next()
        self._watches[token] = queue
        self._apply(self._core.watch(token, pattern))
        return token

    def _unwatch(self, token: int) -> None:
        queue = self._watches.pop(token, None)
        if queue is not None:
            queue.end()
            self._apply(self._core.unwatch(token))

    # The connection.

    def _open_link(self) -> None:
        if self._link is not None:
            self._move()
            return
        self._reopen(None)
        try:
            self._link = Link(self._socket())
        except OSError as error:
            self._obstacle = error
            self._apply(self._core.lost())
            return
        self._obstacle = None
        self._attach(self._link)
        self._apply(self._core.opened())

    def _move(self) -> None:
        """Leaves a bus that drains for another one, where the pending requests are repeated."""
        if not self._core.may_move():
            self._reopen(_network.DRAIN_TIME)
            return
        self._send_bye()
        self._drop_link(linger=True)
        self._apply(self._core.lost())

    def _socket(self) -> str | socket.socket:
        if self._buses is None:
            return _folders.socket_path(self._folder, "bus")
        self._tunnel = _tunnel.Tunnel(self._buses.current, self._buses.failures)
        return self._tunnel.end

    def _drop_link(self, linger: bool = False) -> None:
        self._reopen(None)
        if self._link is not None:
            self._detach(self._link)
            self._link.close(linger)
            self._link = None
            if self._tunnel is not None and linger:
                self._tunnel.await_end()
            self._tunnel = None

    def _leave(self, pause: float) -> None:
        """Closes the connection, and opens the next one after a pause."""
        ending = "lost" if self._tunnel is None else self._tunnel.ending
        self._drop_link()
        if self._buses is not None:
            try:
                pause = self._buses.failed(ending, time.monotonic())
            except NoBroker as error:
                self._end(error)
                self._close()
                return
        self._reopen(pause)

    def _pump(self, is_readable: bool = False) -> None:
        """Performs one pass: sends, receives, and acknowledges if many results or old ones are due."""
        link = self._link
        if link is None:
            return
        self._flush()
        if is_readable:
            for frames in link.receive():
                self._apply(self._core.received(frames))
                if link is not self._link:
                    return
            if link.is_broken:
                self._apply(self._core.lost())
                return
            if link.waiting:
                self._flush()
        if unacknowledged := self._core.unacknowledged():
            if self._acknowledges_at_once or unacknowledged > self._most_unacknowledged:
                self._acknowledge()
            else:
                self._acknowledge_in_time()

    def _flush(self) -> None:
        """Sends the messages of one pass in one system call."""
        if self._link is not None and self._link.flush():
            self._await_room(self._link)

    def _acknowledge(self) -> None:
        self._acknowledges_at_once = False
        self._apply(self._core.acknowledge())

    def _finish(self, delivery: Deliver) -> None:
        """Notes that one recipient released a terminal. Files are acknowledged at once, to free the spool."""
        self._core.finish(delivery.id)
        if delivery.terminal.has_file:
            self._acknowledges_at_once = True
        self._pump_soon()

    def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        connected = self._core.phase is Phase.READY
        if connected:
            self._send_bye()
        self._drop_link(linger=connected)
        self._end(Closed("the bus was closed"))

    def _send_bye(self) -> None:
        if self._link is not None:
            self._acknowledge()
            self._link.send(b"BYE\n")

    def _abandon(self) -> None:
        """Closes the bus in a forked child without a message, because the connection belongs to the parent."""
        if self._closed:
            return
        self._closed = True
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._tunnel is not None:
            self._tunnel.abandon()
        self._end(Closed("the bus belongs to the parent process: connect again after a fork"))

    def _end(self, error: EarshotError) -> None:
        """Ends all pending operations with an error."""
        for transfer in list(self._transfers.values()):
            transfer._fail(error, expected=True)
        self._transfers.clear()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(error)
        for queue in self._watches.values():
            queue.end()
        self._watches.clear()
        for id in list(self._parts):
            self._drop_part(id)
        if not self._greeted.done():
            self._greeted.set_exception(error)

    # Actions of the core.

    def _apply(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Send):
                if self._link is not None:
                    self._link.send(action.head)
                    self._pump_soon()
            elif isinstance(action, Deliver):
                self._deliver(action)
            elif isinstance(action, Store):
                self._store(action)
            elif isinstance(action, Discard):
                self._drop_part(action.id)
            elif isinstance(action, Report):
                if transfer := self._transfers.get(action.key):
                    transfer._report(Progress(action.received, action.total))
            elif isinstance(action, Resolve):
                self._resolve(action)
            elif isinstance(action, Refuse):
                if transfer := self._transfers.pop(action.key, None):
                    transfer._fail(Refused(action.code, action.detail))
            elif isinstance(action, Drop):
                for key in action.keys:
                    if transfer := self._transfers.get(key):
                        transfer._fail(FetchFailed(*key, "removed", action.detail), expected=True)
                        self._transfers.pop(key, None)
            elif isinstance(action, Greeted):
                self.broker = action.broker
                if self._buses is not None:
                    self._buses.connected()
                if not self._greeted.done():
                    self._greeted.set_result(None)
            elif isinstance(action, Reopen):
                self._leave(action.after)
            elif isinstance(action, Drain):
                if self._buses is not None and self._buses.has_others:
                    self._buses.drained()
                    self._reopen(_network.DRAIN_TIME)
            elif isinstance(action, CloseBus):
                self._end(Refused(action.code, action.detail))
                self._close()
            else:
                assert isinstance(action, Note)
                _log.warning("%s", action.text)

    def _resolve(self, action: Resolve) -> None:
        answer = self._answers.get(action.token)
        if answer is None or answer.done():
            return
        if action.answer is not None and action.answer.verb in ("ERROR", "FAILED"):
            # The code is the only operand of an ERROR, and the last one of a FAILED that refuses a RETRY.
            answer.set_exception(Refused(action.answer.operands[-1], action.answer.field("detail") or ""))
        else:
            answer.set_result(action.answer)

    def _deliver(self, delivery: Deliver) -> None:
        if delivery.wanted:
            message = delivery.terminal
            key = (message.operands[0], message.operands[1])
            transfer = self._transfers.get(key)
            # Fast path: a body in memory needs no hold.
            is_whole = not message.has_file
            found = (in_memory(message), NOTHING) if is_whole else self._terminal(delivery, transfer)
            if found is not None and transfer is not None and not transfer.done():
                value, hold = found
                if isinstance(value, FetchFailed):
                    hold.release()
                    transfer._fail(value)
                else:
                    transfer._succeed(value)
            # Only after the delivery, because an interrupt could come in between.
            self._transfers.pop(key, None)
            if is_whole:
                self._core.finish(delivery.id)
        for token in delivery.watches:
            queue = self._watches.get(token)
            found = self._terminal(delivery, None)
            if queue is not None and found is not None:
                queue.put(*found)
        self._drop_part(delivery.id)

    def _drop_part(self, id: DeliveryID) -> None:
        file = self._parts.pop(id, None)
        if file is not None and not isinstance(file, OSError):
            file.close()

    def _store(self, part: Store) -> None:
        """Writes a part of a body into an unnamed file."""
        if part.id not in self._parts:
            # Of an earlier session nothing is delivered any more.
            for id in [id for id in self._parts if id[0] != part.id[0]]:
                self._drop_part(id)
        file = self._parts.get(part.id)
        if isinstance(file, OSError):
            return
        try:
            if file is None:
                file = self._parts[part.id] = tempfile.TemporaryFile(prefix="earshot-", buffering=0)
            file.seek(part.offset)
            rest = memoryview(part.data)
            while rest:
                rest = rest[file.write(rest):]
        except OSError as error:
            self._drop_part(part.id)
            self._parts[part.id] = error

    def _terminal(self, delivery: Deliver, transfer: AnyTransfer | None) -> tuple[Terminal, Hold] | None:
        """Returns the terminal for one recipient, or None if its file is gone and the request is repeated."""
        def release() -> None:
            self._later(self._finish, delivery)

        try:
            return terminal(delivery.terminal, release, self._parts.get(delivery.id))
        except FileNotFoundError:
            # The file vanished with its broker, or the broker evicted it.
            self._finish(delivery)
        if transfer is not None and not transfer.done() and transfer._losses < MOST_LOSSES:
            transfer._losses += 1
            transfer._fetch = transfer._fetch.anew(f"{transfer._fetch.request.partition('~')[0]}~{self._next()}")
            self._begin(transfer)
            return None
        handler, request = delivery.terminal.operands[:2]
        lost = FetchFailed(handler, request, "internal", "the file of the body vanished before it could be opened")
        return lost, NOTHING


_shells: weakref.WeakSet[Shell] = weakref.WeakSet()


def _forked() -> None:
    for shell in list(_shells):
        shell._abandon()


os.register_at_fork(after_in_child=_forked)
