"""Shell for threads. A caller that waits reads for all callers. Without such a caller the background thread reads.

So a single thread that requests and waits pays for no thread switch, which would be its largest cost. One lock protects
the state of the shell. No thread holds it while it waits.
"""

from __future__ import annotations

import enum
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from ._link import Link
from ._messages import Bodies, Message
from ._protocol import Action
from ._results import Closed
from ._shell import LONGEST_ACK_DELAY, BusLocation, Shell
from ._waiting import Pending, Poller, Waiter

T = TypeVar("T")

REST, LONG_REST = 0.02, 1.0
"""Seconds between two checks of the background thread for a reader; the longer value holds while a caller reads."""

PAUSE, MOST_WAITING = 0.001, 32
"""Batching: a message within `PAUSE` seconds of the previous one waits until a caller waits, the background thread
checks, or `MOST_WAITING` messages are queued."""

_log = logging.getLogger("earshot_bus")


class Reader(enum.Enum):
    """Role of the current reader. A caller takes it over from the background thread, and passes it on at its end."""

    NOBODY = enum.auto()
    CALLER = enum.auto()
    BACKGROUND = enum.auto()


class ThreadedShell(Shell):
    """Connection to the broker. `_do` and `_wait` are thread-safe."""

    def __init__(self, location: BusLocation, window: int, timeout: float, lease: float | None, bodies: Bodies) -> None:
        super().__init__(location, window, timeout, lease, bodies)
        self._lock = threading.Lock()
        self._caller_poller: Poller
        self._background_poller: Poller
        """Pollers of the caller that reads, and of the background thread."""
        self._background: threading.Thread
        self._reader = Reader.NOBODY
        self._turns = 0
        """Number of times that a caller started to read."""
        self._caller = 0
        """Thread of the caller that reads, or 0."""
        self._led: Pending[Any] | None = None
        """The operation that this caller waits for."""
        self._followers: dict[Waiter, None] = {}
        """Callers that wait while another one reads."""
        self._caller_polls = self._background_polls = False
        self._background_sleeps = False
        self._nudge = threading.Event()
        self._soon: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._calls: deque[Callable[[], object]] = deque()
        """Pending callbacks of the application, called without the lock."""
        self._is_calling = False
        self._reopen_at: float | None = None
        self._acknowledge_at: float | None = None
        self._is_due = False
        self._flushed_at = 0.0
        self._is_torn = False
        """Whether an interrupt (Ctrl-C) left a change half done."""

    # Calls of the application.

    def _open(self) -> None:
        """Opens the bus, and waits for the answer of a broker."""
        self._enter()
        self._folder = self._find()
        greeted: Pending[Message | None] = Pending()
        self._greeted = greeted
        self._caller_poller, self._background_poller = Poller(), Poller()
        self._background = threading.Thread(target=self._run_background, name="earshot", daemon=True)
        self._closed = False
        try:
            self._do(self._open_link)
            self._background.start()
            self._wait(greeted, self._connect_timeout)
            greeted.get()
        except TimeoutError:
            self._shut()
            raise self._unanswered() from None
        except BaseException:
            self._shut()
            raise

    def _shut(self) -> None:
        """Closes the bus. Calls that wait in other threads raise `Closed`."""
        with self._lock:
            self._close()
            self._wake()
            self._nudge.set()
        if self._background.is_alive() and self._background is not threading.current_thread():
            self._background.join()

    def _abandon(self) -> None:
        # The thread that held them does not exist in the child.
        self._lock = threading.Lock()
        self._nudge = threading.Event()
        super()._abandon()

    def _do(self, work: Callable[..., T], *arguments: Any) -> T:
        """Calls a function of the shell with the lock held."""
        with self._lock:
            try:
                found = work(*arguments)
            except Exception:
                raise
            except BaseException:
                self._is_torn = True
                raise
            if self._caller_polls or self._background_polls:
                # A thread that polls would send only after it wakes.
                self._turn()
                if self._calls or (self._led is not None and self._led.done()):
                    self._wake()
            elif waiting := self._waiting():
                if waiting >= MOST_WAITING or time.monotonic() - self._flushed_at >= PAUSE:
                    self._flush()
        return found

    def _question(self, command: Callable[[int], list[Action]]) -> Message | None:
        """Sends a question and waits for its answer."""
        answer: Pending[Message | None] = Pending()
        token = self._do(self._start_question, command, answer)
        try:
            self._wait(answer)
        finally:
            self._do(self._answers.pop, token, None)
        return answer.get()

    def _wait(self, pending: Pending[Any], seconds: float | None = None) -> None:
        """Waits for an operation. Raises `TimeoutError` after `seconds`."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not pending.done():
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"not within {seconds:g} s")
            if not self._read(pending, deadline):
                self._follow(pending, deadline)
            if self._calls:
                self._call_back()

    # The reader.

    def _read(self, pending: Pending[Any], deadline: float | None) -> bool:
        """Reads for all callers until `pending` ends or a callback is due. Returns False if another caller reads."""
        me = threading.get_ident()
        is_readable = False
        try:
            with self._lock:
                if self._reader is Reader.CALLER:
                    return False
                # First, because an interrupt may come after any further step.
                self._caller = me
                self._reader = Reader.CALLER
                self._led = pending
                self._turns += 1
                if self._background_polls:
                    self._background_poller.wake()
            while True:
                with self._lock:
                    self._turn(is_readable)
                    if pending.done() or self._has_calls():
                        return True
                    self._caller_polls = True
                    timeout = self._timeout(deadline)
                if timeout is not None and timeout <= 0 and deadline is not None and time.monotonic() >= deadline:
                    return True
                is_readable = self._caller_poller.poll(timeout)
                self._caller_polls = False
        finally:
            # Without the lock: an interrupt during its acquisition would leave the bus without a reader.
            if self._caller == me:
                self._caller = 0
                self._caller_polls = False
                self._led = None
                self._reader = Reader.NOBODY
                self._pass_on()

    def _follow(self, pending: Pending[Any], deadline: float | None) -> None:
        """Waits until `pending` ends, or until this caller may have to read."""
        follower = Waiter()
        try:
            with self._lock:
                if pending.done() or self._reader is not Reader.CALLER:
                    return
                pending.wake_at_end(follower)
                self._followers[follower] = None
            follower.wait(None if deadline is None else max(0, deadline - time.monotonic()))
        finally:
            # This caller may have received the role of the reader, and must pass it on.
            self._followers.pop(follower, None)
            if self._reader is Reader.NOBODY:
                self._pass_on()

    def _pass_on(self) -> None:
        """Wakes the next caller, or the background thread if it sleeps."""
        try:
            follower, _ = self._followers.popitem()
            follower.set()
        except KeyError:
            if self._background_sleeps:
                self._nudge.set()

    def _run_background(self) -> None:
        """Body of the background thread: reads if no caller does. Sleeps while one caller reads for long."""
        seen = -1
        while True:
            with self._lock:
                if self._closed:
                    return
                if self._waiting():
                    self._flush()
                is_still = seen == self._turns
                seen = self._turns
                if is_still and self._reader is Reader.NOBODY:
                    self._reader = Reader.BACKGROUND
                reads = self._reader is Reader.BACKGROUND
                self._background_sleeps = is_still and self._reader is Reader.CALLER
            if reads:
                self._read_in_background()
            else:
                # The caller may have ended before it could see that the background thread sleeps.
                sleeps = self._background_sleeps and self._reader is Reader.CALLER
                self._nudge.wait(LONG_REST if sleeps else REST)
                self._nudge.clear()

    def _read_in_background(self) -> None:
        is_readable = False
        while True:
            with self._lock:
                if self._closed or self._reader is not Reader.BACKGROUND:
                    return
                try:
                    self._turn(is_readable)
                except Exception:
                    _log.exception("the connection to the broker")
                self._background_polls = True
                timeout = self._timeout(None)
            if self._has_calls():
                self._background_polls = is_readable = False
                self._call_back()
            else:
                is_readable = self._background_poller.poll(timeout)
                self._background_polls = False

    def _timeout(self, deadline: float | None) -> float | None:
        """Returns the seconds to poll. Call it after the flag of polling is set, so that later events end the poll."""
        if self._soon or self._closed:
            return 0
        moments = [moment for moment in (deadline, self._reopen_at, self._acknowledge_at) if moment is not None]
        return max(0, min(moments) - time.monotonic()) if moments else None

    def _call_back(self) -> None:
        """Calls the pending callbacks, never two at once."""
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
            self._wake()  # Another thread calls the rest.
            raise

    def _has_calls(self) -> bool:
        """Returns whether callbacks are due. False during a callback: it may wait itself, so the reader must go on."""
        return bool(self._calls) and not self._is_calling

    # Called with the lock held.

    def _turn(self, is_readable: bool = False) -> None:
        """Performs all pending work that does not block."""
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
        """Repeats all pending requests over a new connection, because an interrupt left the state half changed."""
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
            if not self._core.is_unanswered(token) and not answer.done():
                answer.set_result(None)

    def _flush(self) -> None:
        super()._flush()
        self._flushed_at = time.monotonic()

    def _wake(self) -> None:
        if self._caller_polls:
            self._caller_poller.wake()
        if self._background_polls:
            self._background_poller.wake()

    def _attach(self, link: Link) -> None:
        for poller in (self._caller_poller, self._background_poller):
            poller.attach(link)

    def _detach(self, link: Link) -> None:
        for poller in (self._caller_poller, self._background_poller):
            poller.detach(link)

    def _await_room(self, link: Link) -> None:
        for poller in (self._caller_poller, self._background_poller):
            poller.await_room(link)

    def _waiting(self) -> int:
        """Returns the number of messages not yet sent."""
        return 0 if self._link is None else self._link.waiting

    def _reopen(self, after: float | None) -> None:
        self._reopen_at = None if after is None else time.monotonic() + after
        if after is not None:
            self._is_due = True
            self._wake()

    def _acknowledge_in_time(self) -> None:
        if self._acknowledge_at is None:
            self._acknowledge_at = time.monotonic() + LONGEST_ACK_DELAY

    def _acknowledge(self) -> None:
        self._acknowledge_at = None
        super()._acknowledge()

    def _pump_soon(self) -> None:
        self._is_due = True

    def _later(self, call: Callable[..., object], *arguments: object) -> None:
        self._soon.append((call, arguments))
        self._wake()
