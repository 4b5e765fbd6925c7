"""What both forms of the client share: it does what `_protocol.Core` wants done. How one waits is theirs."""

from __future__ import annotations

import abc
import logging
import os
import pathlib
import secrets
import sys
import weakref
from collections.abc import Callable
from typing import Protocol

from . import _place
from ._link import Link
from ._messages import Fetch, FetchOptions, Message, Progress
from ._protocol import (MOST_LOSSES, Action, Core, Deliver, Drop, GiveUp, Greeted, Key, Note, Phase, Refuse, Reopen,
                        Report, Send, Settle)
from ._results import NOTHING, Closed, EarshotError, FetchFailed, Hold, Refused, Result, Terminal, in_memory, terminal

MOST_OWED, LONGEST_OWED = 32, 0.02
"""How many terminals that came whole, and for how many seconds, may wait to be acknowledged in one. Of a small window
fewer may, an eighth."""

_log = logging.getLogger("earshot")


class AnyTransfer(abc.ABC):
    """One request under way, whatever form waits for it."""

    _losses = 0

    def __init__(self, fetch: Fetch, on_progress: Callable[[Progress], object] | None) -> None:
        self._fetch = fetch
        self._on_progress = on_progress

    @property
    def handler(self) -> str:
        """The handler's name."""
        return self._fetch.handler

    @property
    def request(self) -> str:
        """The request's ID, such as `why` wants it. It becomes another if the file of its body was lost and it is
        fetched again."""
        return self._fetch.request

    @property
    def url(self) -> str:
        """As it was asked for."""
        return self._fetch.url

    @abc.abstractmethod
    def done(self) -> bool:
        """Whether it has ended."""

    @abc.abstractmethod
    def _succeed(self, result: Result) -> None:
        """It has not ended before."""

    @abc.abstractmethod
    def _fail(self, error: EarshotError, expected: bool = False) -> None:
        """It may have ended before. `expected`: by the caller's own doing, so nobody need ask for the error."""

    @abc.abstractmethod
    def _report(self, step: Progress) -> None:
        """How far it is."""

    def _tell(self, step: Progress) -> None:
        """Calls the caller's `on_progress`."""
        if self._on_progress is not None:
            try:
                self._on_progress(step)
            except Exception:
                _log.exception("on_progress of %s %s", self.handler, self.request)


class Answer(Protocol):
    """Whoever waits for the answer to a question, or for WELCOME, with None."""

    def done(self) -> bool: ...
    def set_result(self, answer: Message | None, /) -> None: ...
    def set_exception(self, error: EarshotError, /) -> None: ...


class Hearing(Protocol):
    """What a watch has not taken."""

    def put(self, found: Terminal, hold: Hold) -> None: ...
    def end(self) -> None: ...


class Shell(abc.ABC):
    """A connection to the broker, for one thread at a time.

    When the broker ends, what is still wanted is asked of the next one, and nobody has to notice.
    """

    def __init__(self, runtime: str | os.PathLike[str] | None, private: bool, window: int | None,
                 timeout: float, lease: float) -> None:
        _shells.add(self)
        self._runtime = runtime
        self._private = private
        self._patience = timeout
        program = os.path.basename(sys.argv[0] if sys.argv else "").encode("ascii", "ignore").decode() or "python"
        name = "".join(c if c.isalnum() else "-" for c in program)[:32]
        # IDs of this life of this connection: what another one asked for is never taken for ours.
        self._nonce = secrets.token_hex(6)
        self._core = Core(f"{name}-{self._nonce}", window, lease)
        self._most_owed = min(MOST_OWED, (window or 0) // 8)
        self._acknowledges_at_once = False
        self._last = 0
        self._folder: pathlib.Path
        self._obstacle: OSError | None = None
        """Why it could not connect."""
        self._greeted: Answer
        self._transfers: dict[Key, AnyTransfer] = {}
        self._answers: dict[int, Answer] = {}
        self._watches: dict[int, Hearing] = {}
        self._handlers: set[str] = set()
        self._link: Link | None = None
        self._entered = False
        self._closed = True
        self.broker: str | None = None
        """Names this life of the broker, 16 hexadecimal digits."""

    # What a form has of its own.

    @abc.abstractmethod
    def _attach(self, link: Link) -> None:
        """Begins to wait for what comes over a new connection."""

    @abc.abstractmethod
    def _detach(self, link: Link) -> None:
        """It is about to be closed."""

    @abc.abstractmethod
    def _await_room(self, link: Link) -> None:
        """Begins to wait until more can be sent if it `is_full`, else ends that. Calls `_pump` then."""

    @abc.abstractmethod
    def _reopen(self, after: float | None) -> None:
        """Calls `_open_link` after so many seconds, once; None: not any more."""

    @abc.abstractmethod
    def _pump_soon(self) -> None:
        """Calls `_pump` before it waits the next time."""

    @abc.abstractmethod
    def _acknowledge_in_time(self) -> None:
        """Calls `_acknowledge` in `LONGEST_OWED` seconds, if it will not be called sooner."""

    @abc.abstractmethod
    def _later(self, call: Callable[..., object], *arguments: object) -> None:
        """Calls it soon, from where all else is called. From any thread, and from a finalizer, which may come in the
        middle of anything."""

    # What callers want.

    def _enter(self) -> None:
        if self._entered:
            raise RuntimeError("a bus is entered once: call connect() again")
        self._entered = True

    def _find(self) -> pathlib.Path:
        folder = _place.runtime_folder(self._runtime)
        if not _place.is_served(folder):
            raise _place.no_broker(folder)
        return folder

    def _unanswered(self) -> EarshotError:
        why = f" ({self._obstacle.strerror or self._obstacle})" if self._obstacle is not None else ""
        return _place.no_broker(self._folder, f"no broker answered within {self._patience:g} s{why}")

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

    def _ask(self, ask: Callable[[int], list[Action]], answer: Answer) -> int:
        """Asks a question. Returns its token, under which `_answers` holds who waits."""
        self._check_open()
        self._acknowledge()  # Who has the answer knows that all that was said and done before has arrived.
        token = self._next()
        actions = ask(token)
        self._answers[token] = answer
        self._apply(actions)
        return token

    def _hear(self, pattern: str, queue: Hearing) -> int:
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
        self._drop_link()
        try:
            self._link = Link(_place.socket_path(self._folder, "bus"))
        except OSError as error:
            self._obstacle = error
            self._apply(self._core.lost())
            return
        self._obstacle = None
        self._attach(self._link)
        self._apply(self._core.opened())

    def _drop_link(self, linger: bool = False) -> None:
        self._reopen(None)
        if self._link is not None:
            self._detach(self._link)
            self._link.close(linger)
            self._link = None

    def _pump(self, is_readable: bool = False) -> None:
        """One pass: says what there is to say, takes what is there, and acknowledges what was finished, if it is much
        or old."""
        link = self._link
        if link is None:
            return
        self._say_all()
        if is_readable:
            for frames in link.receive():
                self._apply(self._core.received(frames))
                if link is not self._link:
                    return
            if link.is_broken:
                self._apply(self._core.lost())
                return
            if link.waiting:
                self._say_all()
        if owed := self._core.owed():
            if self._acknowledges_at_once or owed > self._most_owed:
                self._acknowledge()
            else:
                self._acknowledge_in_time()

    def _say_all(self) -> None:
        """Messages of one pass leave together."""
        if self._link is not None and self._link.flush():
            self._await_room(self._link)

    def _acknowledge(self) -> None:
        self._acknowledges_at_once = False
        self._apply(self._core.acknowledge())

    def _finish(self, delivery: Deliver) -> None:
        """Somebody is done with it. If it had a file the broker keeps that no longer."""
        self._core.finish(delivery.id)
        if delivery.terminal.field("file") is not None:
            self._acknowledges_at_once = True
        self._pump_soon()

    def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        connected = self._core.phase is Phase.READY
        if connected and self._link is not None:
            self._acknowledge()
            self._link.send(b"BYE\n")
        self._drop_link(linger=connected)
        self._end(Closed("the bus was closed"))

    def _abandon(self) -> None:
        """In a forked child: the connection is the parent's, and goes on there."""
        if self._closed:
            return
        self._closed = True
        if self._link is not None:
            self._link.close()
            self._link = None
        self._end(Closed("the bus is of the process that this one was forked from"))

    def _end(self, error: EarshotError) -> None:
        """Nothing more will come: whoever waits is told."""
        for transfer in list(self._transfers.values()):
            transfer._fail(error, expected=True)
        self._transfers.clear()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(error)
        for queue in self._watches.values():
            queue.end()
        self._watches.clear()
        if not self._greeted.done():
            self._greeted.set_exception(error)

    # What the core wants done.

    def _apply(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Send):
                if self._link is not None:
                    self._link.send(action.head)
                    self._pump_soon()
            elif isinstance(action, Deliver):
                self._deliver(action)
            elif isinstance(action, Report):
                if transfer := self._transfers.get(action.key):
                    transfer._report(Progress(action.received, action.total))
            elif isinstance(action, Settle):
                self._settle(action)
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
                if not self._greeted.done():
                    self._greeted.set_result(None)
            elif isinstance(action, Reopen):
                self._drop_link()
                self._reopen(action.after)
            elif isinstance(action, GiveUp):
                self._end(Refused(action.code, action.detail))
                self._close()
            else:
                assert isinstance(action, Note)
                _log.warning("%s", action.text)

    def _settle(self, action: Settle) -> None:
        answer = self._answers.get(action.token)
        if answer is None or answer.done():
            return
        if action.answer is not None and action.answer.verb == "ERROR":
            answer.set_exception(Refused(action.answer.operands[0], action.answer.field("detail") or ""))
        else:
            answer.set_result(action.answer)

    def _deliver(self, delivery: Deliver) -> None:
        if delivery.wanted:
            message = delivery.terminal
            key = (message.operands[0], message.operands[1])
            transfer = self._transfers.get(key)
            # Of most nothing but the message is to be held, and that is whole.
            is_whole = message.field("file") is None
            found = (in_memory(message), NOTHING) if is_whole else self._terminal(delivery, transfer)
            if found is not None and transfer is not None and not transfer.done():
                value, hold = found
                if isinstance(value, FetchFailed):
                    hold.release()
                    transfer._fail(value)
                else:
                    transfer._succeed(value)
            # Not before it was told: an interrupt could come in between.
            self._transfers.pop(key, None)
            if is_whole:
                self._core.finish(delivery.id)
        for token in delivery.watches:
            queue = self._watches.get(token)
            found = self._terminal(delivery, None)
            if queue is not None and found is not None:
                queue.put(*found)

    def _terminal(self, delivery: Deliver, transfer: AnyTransfer | None) -> tuple[Terminal, Hold] | None:
        """What one of those hears who get it. None if its file is gone and it is asked for again."""
        def release() -> None:
            self._later(self._finish, delivery)

        try:
            return terminal(delivery.terminal, release)
        except FileNotFoundError:
            # It went with its broker, or that had no room for it.
            self._finish(delivery)
        if transfer is not None and not transfer.done() and transfer._losses < MOST_LOSSES:
            transfer._losses += 1
            transfer._fetch = transfer._fetch.anew(f"{self._nonce}-{self._next()}")
            self._begin(transfer)
            return None
        handler, request = delivery.terminal.operands[:2]
        lost = FetchFailed(handler, request, "internal", "the file of its body was gone before it could be opened")
        return lost, NOTHING


_shells: weakref.WeakSet[Shell] = weakref.WeakSet()


def _forked() -> None:
    for shell in list(_shells):
        shell._abandon()


os.register_at_fork(after_in_child=_forked)
