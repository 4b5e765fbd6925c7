"""Synchronization for threads: one-shot events, queues, and polls of a connection."""

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
    """One-shot event for one thread. `set` takes no lock that another thread could hold during a fork."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wait(self, seconds: float | None) -> None:
        """Waits until it is set, for at most `seconds`; None: without a limit."""
        self._lock.acquire(timeout=-1 if seconds is None else min(seconds, threading.TIMEOUT_MAX))

    def set(self) -> None:
        with contextlib.suppress(RuntimeError):  # It was set before.
            self._lock.release()


class Pending(Generic[T]):
    """One-shot future. All methods but `done` and `get` need the lock of the bus."""

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
        """Sets the waiter at the end of this future."""
        if self._waiters is None:
            self._waiters = []
        self._waiters.append(waiter)

    def get(self) -> T:
        """Returns the value or raises the error. Call it only when the future is done."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def _end(self) -> None:
        self._done = True
        if self._waiters is not None:
            for waiter in self._waiters:
                waiter.set()


class Line(Generic[T]):
    """Queue with an event for changes. Needs the lock of the bus."""

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
        """Returns a future that ends with the next change. It is done if the queue has items or has ended."""
        if self._changed.done() and not self.items and not self.ended:
            self._changed = Pending()
        return self._changed

    def _change(self) -> None:
        if not self._changed.done():
            self._changed.set_result(None)


class WatchQueue(Line[tuple[Terminal, Hold]]):
    """Queue of results that a watch has not taken."""

    def put(self, found: Terminal, hold: Hold) -> None:
        self.add((found, hold))

    def end(self) -> None:
        while self.items:
            self.items.popleft()[1].release()
        super().end()


class Poller:
    """Poller of a connection and of `wake`. For one thread at a time, because the kernel would wake only one of two."""

    def __init__(self) -> None:
        self._waking = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._events = select.epoll()
        self._events.register(self._waking, select.EPOLLIN)

    def attach(self, link: Link) -> None:
        self._events.register(link.descriptor, select.EPOLLIN)

    def detach(self, link: Link) -> None:
        # After an interrupt the link may not be attached, or may be closed.
        with contextlib.suppress(OSError):
            self._events.unregister(link.descriptor)

    def await_room(self, link: Link) -> None:
        """Polls for room to write too, if the link is full."""
        self._events.modify(link.descriptor, select.EPOLLIN | select.EPOLLOUT if link.is_full else select.EPOLLIN)

    def poll(self, seconds: float | None) -> bool:
        """Waits for at most `seconds`. Returns whether the connection may be readable."""
        is_readable = False
        for descriptor, events in self._events.poll(seconds):
            if descriptor == self._waking:
                os.eventfd_read(self._waking)
            else:
                is_readable = events != select.EPOLLOUT
        return is_readable

    def wake(self) -> None:
        """Ends a poll. Safe in any thread and in a finalizer."""
        os.eventfd_write(self._waking, 1)

    def __del__(self) -> None:
        os.close(self._waking)
