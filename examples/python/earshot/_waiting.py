"""What threads wait with: for one thing, for one after another, and for what comes over a connection."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections import deque
from typing import Generic, TypeVar

from ._link import Link
from ._results import Hold, Terminal

T = TypeVar("T")


class Waiter:
    """One thread waits with it, once. What sets it takes no lock, which another thread might hold when the process
    forks."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wait(self, seconds: float | None) -> None:
        """Returns when it was set, or after so many seconds."""
        self._lock.acquire(timeout=-1 if seconds is None else min(seconds, threading.TIMEOUT_MAX))

    def set(self) -> None:
        with contextlib.suppress(RuntimeError):  # It was before.
            self._lock.release()


class Pending(Generic[T]):
    """Has an end once. All but `done` and `get` belongs to whoever holds the bus's lock."""

    __slots__ = ("_done", "_error", "_value", "_waiters")

    def __init__(self) -> None:
        self._done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._waiters: list[Waiter] | None = None

    def done(self) -> bool:
        return self._done

    def set_result(self, value: T, /) -> None:
        self._value = value
        self._end()

    def set_exception(self, error: BaseException, /) -> None:
        self._error = error
        self._end()

    def wake_at_end(self, waiter: Waiter) -> None:
        """Sets it when this has ended."""
        if self._waiters is None:
            self._waiters = []
        self._waiters.append(waiter)

    def get(self) -> T:
        """How it ended. To be asked when it is done."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def _end(self) -> None:
        self._done = True
        if self._waiters is not None:
            for waiter in self._waiters:
                waiter.set()


class Line(Generic[T]):
    """Things to be taken one after the other. Belongs to whoever holds the bus's lock."""

    def __init__(self) -> None:
        self.items: deque[T] = deque()
        self.ended = False
        self._changed: Pending[None] = Pending()

    def add(self, item: T) -> None:
        self.items.append(item)
        self._change()

    def end(self) -> None:
        self.ended = True
        self._change()

    def changed(self) -> Pending[None]:
        """Ends with the next change, or has ended if there is something to take."""
        if self._changed.done() and not self.items and not self.ended:
            self._changed = Pending()
        return self._changed

    def _change(self) -> None:
        if not self._changed.done():
            self._changed.set_result(None)


class Heard(Line[tuple[Terminal, Hold]]):
    """What a watch has not taken."""

    def put(self, found: Terminal, hold: Hold) -> None:
        self.add((found, hold))

    def end(self) -> None:
        while self.items:
            self.items.popleft()[1].release()
        super().end()


class Poller:
    """Waits for what comes over a connection, or for `wake`. One thread at a time: of two who wait for the same the
    kernel wakes one."""

    def __init__(self) -> None:
        self._waking = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._events = select.epoll()
        self._events.register(self._waking, select.EPOLLIN)

    def attach(self, link: Link) -> None:
        self._events.register(link.descriptor, select.EPOLLIN)

    def detach(self, link: Link) -> None:
        # An interrupt may have come before it was attached, or after it was closed.
        with contextlib.suppress(OSError):
            self._events.unregister(link.descriptor)

    def await_room(self, link: Link) -> None:
        """Returns also when more can be sent, if it is full."""
        self._events.modify(link.descriptor, select.EPOLLIN | select.EPOLLOUT if link.is_full else select.EPOLLIN)

    def poll(self, seconds: float | None) -> bool:
        """Returns when there may be something, and whether the connection can be read."""
        is_readable = False
        for descriptor, events in self._events.poll(seconds):
            if descriptor == self._waking:
                os.eventfd_read(self._waking)
            else:
                is_readable = events != select.EPOLLOUT
        return is_readable

    def wake(self) -> None:
        """From any thread, and from a finalizer."""
        os.eventfd_write(self._waking, 1)

    def __del__(self) -> None:
        os.close(self._waking)
