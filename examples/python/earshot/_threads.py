"""The shell for threads. Whoever waits reads for all; a thread of its own, the keeper, reads when nobody has for a while.

So one thread that asks and waits never hands anything to another: that would cost it more than all the rest. One lock
is around all that the shell has. It is not held while a thread waits.
"""

from __future__ import annotations

import enum
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from . import _place
from ._link import Link
from ._messages import Message
from ._protocol import Action
from ._results import Closed
from ._shell import LONGEST_OWED, Shell
from ._waiting import Pending, Poller, Waiter

T = TypeVar("T")

REST, LONG_REST = 0.02, 1.0
"""Seconds after which the keeper looks whether anybody reads; when a caller reads that will wake it, and to be sure."""

PAUSE, MOST_WAITING = 0.001, 32
"""What is said within so many seconds of the last message waits for more to go with it, up to so many, for a caller
that waits, or for the keeper."""

_log = logging.getLogger("earshot")


class Reader(enum.Enum):
    """Who reads. A caller takes it from the keeper, and gives it to another caller when it leaves."""

    NOBODY = enum.auto()
    CALLER = enum.auto()
    KEEPER = enum.auto()


class ThreadedShell(Shell):
    """A connection to the broker. Any thread may call `_do` and `_wait`."""

    def __init__(self, runtime: str | os.PathLike[str] | None, private: bool, window: int | None,
                 timeout: float, lease: float) -> None:
        super().__init__(runtime, private, window, timeout, lease)
        self._lock = threading.Lock()
        self._callers: Poller
        self._keepers: Poller
        """What the caller that reads, and what the keeper polls with."""
        self._keeper: threading.Thread
        self._reader = Reader.NOBODY
        self._turns = 0
        """How often a caller began to read."""
        self._caller = 0
        """The thread of the caller that reads, or 0."""
        self._led: Pending[Any] | None = None
        """What it waits for."""
        self._followers: dict[Waiter, None] = {}
        """Callers that wait while another one reads."""
        self._caller_polls = self._keeper_polls = False
        self._keeper_sleeps = False
        self._nudge = threading.Event()
        self._soon: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._calls: deque[Callable[[], object]] = deque()
        """What of the caller's own is to be called, without the lock."""
        self._is_calling = False
        self._reopen_at: float | None = None
        self._acknowledge_at: float | None = None
        self._is_due = False
        self._said_at = 0.0
        self._is_torn = False
        """An interrupt (Ctrl-C) came between two steps of one change."""

    # What callers do.

    def _open(self) -> None:
        """Returns when a broker has answered."""
        self._enter()
        self._folder = _place.private_folder() if self._private else self._find()
        greeted: Pending[Message | None] = Pending()
        self._greeted = greeted
        self._callers, self._keepers = Poller(), Poller()
        self._keeper = threading.Thread(target=self._keep, name="earshot", daemon=True)
        self._closed = False
        try:
            self._do(self._open_link)
            self._keeper.start()
            self._wait(greeted, self._patience)
            greeted.get()
        except TimeoutError:
            self._shut()
            raise self._unanswered() from None
        except BaseException:
            self._shut()
            raise

    def _shut(self) -> None:
        """Ends it: whoever waits in another thread is told."""
        with self._lock:
            self._close()
            self._wake()
            self._nudge.set()
        if self._keeper.is_alive() and self._keeper is not threading.current_thread():
            self._keeper.join()

    def _abandon(self) -> None:
        # Whoever had them is not in this process.
        self._lock = threading.Lock()
        self._nudge = threading.Event()
        super()._abandon()

    def _do(self, work: Callable[..., T], *arguments: Any) -> T:
        """Calls something of the shell's."""
        with self._lock:
            try:
                found = work(*arguments)
            except Exception:
                raise
            except BaseException:
                self._is_torn = True
                raise
            if self._caller_polls or self._keeper_polls:
                # Who polls says nothing before it wakes.
                self._turn()
                if self._calls or (self._led is not None and self._led.done()):
                    self._wake()
            elif waiting := self._waiting():
                if waiting >= MOST_WAITING or time.monotonic() - self._said_at >= PAUSE:
                    self._say_all()
        return found

    def _question(self, ask: Callable[[int], list[Action]]) -> Message | None:
        """The answer to a question."""
        answer: Pending[Message | None] = Pending()
        token = self._do(self._ask, ask, answer)
        try:
            self._wait(answer)
        finally:
            self._do(self._answers.pop, token, None)
        return answer.get()

    def _wait(self, pending: Pending[Any], seconds: float | None = None) -> None:
        """Returns when it has ended. Raises `TimeoutError` if it has not after so many seconds."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not pending.done():
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"not within {seconds:g} s")
            if not self._read(pending, deadline):
                self._follow(pending, deadline)
            if self._calls:
                self._call_back()

    # Who reads.

    def _read(self, pending: Pending[Any], deadline: float | None) -> bool:
        """Reads for all until one has its end, or something is to be called. Returns False if another caller reads."""
        me = threading.get_ident()
        is_readable = False
        try:
            with self._lock:
                if self._reader is Reader.CALLER:
                    return False
                # Whoever that is first: an interrupt may come next.
                self._caller = me
                self._reader = Reader.CALLER
                self._led = pending
                self._turns += 1
                if self._keeper_polls:
                    self._keepers.wake()
            while True:
                with self._lock:
                    self._turn(is_readable)
                    if pending.done() or self._has_calls():
                        return True
                    self._caller_polls = True
                    timeout = self._timeout(deadline)
                if timeout is not None and timeout <= 0 and deadline is not None and time.monotonic() >= deadline:
                    return True
                is_readable = self._callers.poll(timeout)
                self._caller_polls = False
        finally:
            # Without the lock: an interrupt could come while it is awaited, and then nobody would read any more.
            if self._caller == me:
                self._caller = 0
                self._caller_polls = False
                self._led = None
                self._reader = Reader.NOBODY
                self._pass_on()

    def _follow(self, pending: Pending[Any], deadline: float | None) -> None:
        """Waits until one has its end, or this caller may have to read."""
        follower = Waiter()
        try:
            with self._lock:
                if pending.done() or self._reader is not Reader.CALLER:
                    return
                pending.wake_at_end(follower)
                self._followers[follower] = None
            follower.wait(None if deadline is None else max(0, deadline - time.monotonic()))
        finally:
            # It may have been its turn to read, and it goes.
            self._followers.pop(follower, None)
            if self._reader is Reader.NOBODY:
                self._pass_on()

    def _pass_on(self) -> None:
        """Wakes the next caller, or the keeper if it waits for that."""
        try:
            follower, _ = self._followers.popitem()
            follower.set()
        except KeyError:
            if self._keeper_sleeps:
                self._nudge.set()

    def _keep(self) -> None:
        """The keeper: looks now and then whether anybody reads. When a caller reads for long it sleeps until that one
        leaves."""
        seen = -1
        while True:
            with self._lock:
                if self._closed:
                    return
                if self._waiting():
                    self._say_all()
                is_still = seen == self._turns
                seen = self._turns
                if is_still and self._reader is Reader.NOBODY:
                    self._reader = Reader.KEEPER
                reads = self._reader is Reader.KEEPER
                self._keeper_sleeps = is_still and self._reader is Reader.CALLER
            if reads:
                self._read_as_keeper()
            else:
                # The caller may have left before it could know that the keeper sleeps.
                sleeps = self._keeper_sleeps and self._reader is Reader.CALLER
                self._nudge.wait(LONG_REST if sleeps else REST)
                self._nudge.clear()

    def _read_as_keeper(self) -> None:
        is_readable = False
        while True:
            with self._lock:
                if self._closed or self._reader is not Reader.KEEPER:
                    return
                try:
                    self._turn(is_readable)
                except Exception:
                    _log.exception("the connection to the broker")
                self._keeper_polls = True
                timeout = self._timeout(None)
            if self._has_calls():
                self._keeper_polls = is_readable = False
                self._call_back()
            else:
                is_readable = self._keepers.poll(timeout)
                self._keeper_polls = False

    def _timeout(self, deadline: float | None) -> float | None:
        """Seconds to poll. To be asked when it is told that somebody polls: what comes from then on wakes it."""
        if self._soon or self._closed:
            return 0
        moments = [moment for moment in (deadline, self._reopen_at, self._acknowledge_at) if moment is not None]
        return max(0, min(moments) - time.monotonic()) if moments else None

    def _call_back(self) -> None:
        """Calls what is the caller's, one after the other whichever threads read."""
        with self._lock:
            if self._is_calling:
                return
            self._is_calling = True
        try:
            while True:
                with self._lock:
                    if not self._calls:
                        self._is_calling = False
                        return
                    call = self._calls.popleft()
                call()
        except BaseException:
            self._is_calling = False
            self._wake()  # For those that are left.
            raise

    def _has_calls(self) -> bool:
        """Whether there is something to call. Not while a call has not ended, which may wait for something itself: then
        who reads goes on reading."""
        return bool(self._calls) and not self._is_calling

    # With the lock.

    def _turn(self, is_readable: bool = False) -> None:
        """Does all that can be done now."""
        try:
            self._is_due = True
            while self._is_due or self._soon:
                self._is_due = False
                while self._soon:
                    call, arguments = self._soon.popleft()
                    call(*arguments)
                if self._is_torn:
                    self._is_torn = False
                    self._mend()
                if self._reopen_at is not None and self._reopen_at <= time.monotonic():
                    self._open_link()
                if self._acknowledge_at is not None and self._acknowledge_at <= time.monotonic():
                    self._acknowledge()
                self._pump(is_readable)
                is_readable = False
        except Exception:
            raise
        except BaseException:
            self._is_torn = True
            raise

    def _mend(self) -> None:
        """Says all that is wanted anew over another connection: what was half done is known to nobody."""
        if self._closed:
            self._drop_link()
            self._end(Closed("the bus was closed"))
            return
        self._apply(self._core.lost(is_torn=True))
        for key, transfer in list(self._transfers.items()):
            if transfer.done():
                del self._transfers[key]
            elif not self._core.wants(key):
                self._begin(transfer)
        for token, answer in self._answers.items():
            if not self._core.asks(token) and not answer.done():
                answer.set_result(None)

    def _say_all(self) -> None:
        super()._say_all()
        self._said_at = time.monotonic()

    def _wake(self) -> None:
        if self._caller_polls:
            self._callers.wake()
        if self._keeper_polls:
            self._keepers.wake()

    def _attach(self, link: Link) -> None:
        for poller in (self._callers, self._keepers):
            poller.attach(link)

    def _detach(self, link: Link) -> None:
        for poller in (self._callers, self._keepers):
            poller.detach(link)

    def _await_room(self, link: Link) -> None:
        for poller in (self._callers, self._keepers):
            poller.await_room(link)

    def _waiting(self) -> int:
        """How many messages were said and not sent."""
        return 0 if self._link is None else self._link.waiting

    def _reopen(self, after: float | None) -> None:
        self._reopen_at = None if after is None else time.monotonic() + after
        if after is not None:
            self._is_due = True
            self._wake()

    def _acknowledge_in_time(self) -> None:
        if self._acknowledge_at is None:
            self._acknowledge_at = time.monotonic() + LONGEST_OWED

    def _acknowledge(self) -> None:
        self._acknowledge_at = None
        super()._acknowledge()

    def _pump_soon(self) -> None:
        self._is_due = True

    def _later(self, call: Callable[..., object], *arguments: object) -> None:
        self._soon.append((call, arguments))
        self._wake()
