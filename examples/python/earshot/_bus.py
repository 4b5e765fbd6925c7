"""The asyncio form: a thin shell around `_protocol.Core`."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
import secrets
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import _place
from ._handler import Handler, Transfer
from ._link import Link
from ._messages import Fetch, FetchOptions, Message, Progress, check_handler, check_pattern
from ._protocol import (MOST_LOSSES, Action, Core, Deliver, Drop, GiveUp, Greeted, Key, Note, Phase, Refuse, Reopen,
                        Report, Send, Settle)
from ._results import Closed, EarshotError, FetchFailed, Hold, Refused, Terminal, terminal
from ._watch import Queue, Watch

if TYPE_CHECKING:
    from typing_extensions import Self

MESSAGES_PER_PASS = 256
"""So that a fast broker does not keep the loop from its other work."""

_log = logging.getLogger("earshot")


class Bus:
    """A connection to the broker. All calls belong to the event loop in which it was entered.

    When the broker ends, what is still wanted is asked of the next one, and nobody has to notice.
    """

    def __init__(self, runtime: str | os.PathLike[str] | None, private: bool, window: int | None,
                 timeout: float, lease: float) -> None:
        self._runtime = runtime
        self._private = private
        self._patience = timeout
        program = os.path.basename(sys.argv[0] if sys.argv else "").encode("ascii", "ignore").decode() or "python"
        name = "".join(c if c.isalnum() else "-" for c in program)[:32]
        # IDs of this life of this connection: what another one asked for is never taken for ours.
        self._nonce = secrets.token_hex(6)
        self._core = Core(f"{name}-{self._nonce}", window, lease)
        self._last = 0
        self._transfers: dict[Key, Transfer] = {}
        self._answers: dict[int, asyncio.Future[Message | None]] = {}
        self._watches: dict[int, Queue] = {}
        self._handlers: set[str] = set()
        self._link: Link | None = None
        self._reopening: asyncio.TimerHandle | None = None
        self._is_pumping = False
        self._entered = False
        self._closed = True
        self._thread = 0
        self._loop: asyncio.AbstractEventLoop
        self._greeted: asyncio.Future[None]
        self.broker: str | None = None
        """Names this life of the broker, 16 hexadecimal digits."""

    async def __aenter__(self) -> Self:
        if self._entered:
            raise RuntimeError("a bus is entered once: call connect() again")
        self._entered = True
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._greeted = self._loop.create_future()
        if self._private:
            self._folder = await asyncio.to_thread(_place.private_folder)
        else:
            self._folder = _place.runtime_folder(self._runtime)
            if not _place.is_served(self._folder):
                raise _place.no_broker(self._folder)
        self._closed = False
        try:
            self._open_link()
            await asyncio.wait_for(asyncio.shield(self._greeted), self._patience)
        except asyncio.TimeoutError:
            self._close()
            raise _place.no_broker(self._folder, f"no broker answered within {self._patience:g} s") from None
        except BaseException:
            self._close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._close()

    def handler(self, name: str | None = None) -> Handler:
        """A handler, to be entered with `async with`. Names are shared by all programs of the user: without one it has
        a name that nobody else has."""
        return Handler(self, check_handler(name or f"python/{secrets.token_hex(8)}"))

    def watch(self, pattern: str) -> Watch:
        """What becomes of a handler's requests from now on; with a slash at its end, of all handlers below it."""
        self._check_open()
        token = self._next()
        self._watches[token] = queue = Queue()
        self._apply(self._core.watch(token, check_pattern(pattern)))
        return Watch(self, token, queue)

    async def remove(self, pattern: str) -> int:
        """Nothing under a handler, or below `pattern/`, is wanted any more, whoever asked. Returns how many requests
        that were."""
        answer = await self._remove(check_pattern(pattern), survives=True)
        return int(answer.operands[1]) if answer else 0

    async def cancel(self, handler: str, request: str) -> None:
        """One request is not wanted any more, whoever asked for it."""
        check_handler(handler)
        await self._await(lambda token: self._core.cancel((handler, request), token))

    async def query(self, *subject: str) -> dict[str, Any]:
        """What the broker says about itself, or what QUERY `subject` asks for. See protocols/1-CLIENT.md."""
        answer = await self._await(lambda token: self._core.ask(token, "QUERY", *subject))
        found: dict[str, Any] = json.loads(answer.body or b"{}") if answer else {}
        return found

    async def ping(self) -> None:
        """Returns when the broker has dealt with all that was said before."""
        await self.query("ping")

    async def status(self) -> dict[str, Any]:
        """What waits, what runs, where it all went."""
        return await self.query("status")

    async def settings(self) -> list[dict[str, Any]]:
        """What is set, and where each value comes from."""
        rows: list[dict[str, Any]] = (await self.query("settings"))["settings"]
        return rows

    async def why(self, handler: str, request: str) -> dict[str, Any]:
        """What one request waits for, or who fetches it."""
        return await self.query("why", handler, request)

    async def set(self, name: str, *value: object) -> str:
        """Changes a setting of the broker: `set("origin", "*.example.org", "limit=2")`. Returns it in normal form.
        Raises `Refused` with the code `bad-setting`."""
        answer = await self._await(lambda token: self._core.ask(token, "SET", name, *map(str, value)))
        return " ".join(answer.operands) if answer else ""

    # What handlers and transfers ask for.

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("this bus is not open: use it inside its `async with`")

    def _next(self) -> int:
        self._last += 1
        return self._last

    def _fetch(self, handler: str, url: str, options: FetchOptions, replace: bool) -> Transfer:
        self._check_open()
        fetch = Fetch.make(handler, f"{self._nonce}-{self._next()}", url, options, replace)
        transfer = Transfer(self, fetch, options.get("on_progress"))
        self._transfers[(handler, fetch.request)] = transfer
        self._apply(self._core.fetch(fetch))
        return transfer

    def _cancelled(self, key: Key) -> None:
        if self._transfers.pop(key, None) and self._core.wants(key) and not self._closed:
            self._apply(self._core.cancel(key, self._next()))

    async def _remove(self, pattern: str, survives: bool) -> Message | None:
        return await self._await(lambda token: self._core.remove(pattern, token, survives))

    async def _await(self, ask: Callable[[int], list[Action]]) -> Message | None:
        self._check_open()
        token = self._next()
        actions = ask(token)
        answer: asyncio.Future[Message | None] = self._loop.create_future()
        self._answers[token] = answer
        self._apply(actions)
        try:
            return await answer
        finally:
            self._answers.pop(token, None)

    def _unwatch(self, token: int) -> None:
        queue = self._watches.pop(token, None)
        if queue is not None:
            queue.end()
            self._apply(self._core.unwatch(token))

    def _later(self, call: Callable[..., object], *arguments: object) -> None:
        """From any thread, and from a finalizer, which may come in the middle of anything."""
        try:
            if threading.get_ident() == self._thread:
                self._loop.call_soon(call, *arguments)
            else:
                self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            pass  # The loop has ended, and this connection with it.

    # The connection.

    def _open_link(self) -> None:
        self._drop_link()
        self._link = Link(self._folder)
        for descriptor in self._link.descriptors:
            self._loop.add_reader(descriptor, self._pump)
        self._apply(self._core.opened())

    def _drop_link(self, linger: bool = False) -> None:
        if self._reopening is not None:
            self._reopening.cancel()
            self._reopening = None
        if self._link is not None:
            for descriptor in self._link.descriptors:
                self._loop.remove_reader(descriptor)
            self._link.close(linger)
            self._link = None

    def _pump_soon(self) -> None:
        if not self._is_pumping:
            self._is_pumping = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        """One pass: takes what is there, and acknowledges what was finished."""
        self._is_pumping = False
        link = self._link
        for _ in range(MESSAGES_PER_PASS):
            if link is None or link is not self._link:
                return
            frames = link.receive()
            if frames is None:
                if link.is_broken():
                    self._apply(self._core.lost())
                    return
                break
            self._apply(self._core.received(frames))
        else:
            self._pump_soon()
        acknowledgement = self._core.acknowledge()
        if acknowledgement:
            self._apply(acknowledgement)

    def _finish(self, delivery: Deliver) -> None:
        self._core.finish(delivery.id)
        self._pump_soon()

    def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        connected = self._core.phase is Phase.READY
        if connected and self._link is not None:
            for action in self._core.acknowledge():
                if isinstance(action, Send):
                    self._link.send(action.head)
            self._link.send(b"BYE\n")
        self._drop_link(linger=connected)
        self._end(Closed("the bus was closed"))

    def _end(self, error: EarshotError) -> None:
        """Nothing more will come: whoever waits is told."""
        for transfer in list(self._transfers.values()):
            self._reject(transfer, error)
        self._transfers.clear()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(error)
        for queue in self._watches.values():
            queue.end()
        self._watches.clear()
        if not self._greeted.done():
            self._greeted.set_exception(error)
            self._greeted.exception()

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
                    if transfer := self._transfers.pop(key, None):
                        self._reject(transfer, FetchFailed(*key, "removed", action.detail))
            elif isinstance(action, Greeted):
                self.broker = action.broker
                if not self._greeted.done():
                    self._greeted.set_result(None)
            elif isinstance(action, Reopen):
                self._drop_link()
                self._reopening = self._loop.call_later(action.after, self._open_link)
            elif isinstance(action, GiveUp):
                self._end(Refused(action.code, action.detail))
                self._close()
            else:
                assert isinstance(action, Note)
                _log.warning("%s", action.text)

    def _reject(self, transfer: Transfer, error: EarshotError) -> None:
        transfer._fail(error)
        if transfer._future.done() and not transfer._future.cancelled():
            transfer._future.exception()  # Ended by the caller's own doing: no complaint if nobody awaits it.

    def _settle(self, action: Settle) -> None:
        answer = self._answers.get(action.token)
        if answer is None or answer.done():
            return
        if action.answer is not None and action.answer.verb == "ERROR":
            answer.set_exception(Refused(action.answer.operands[0], action.answer.fields.get("detail", "")))
        else:
            answer.set_result(action.answer)

    def _deliver(self, delivery: Deliver) -> None:
        key = (delivery.terminal.operands[0], delivery.terminal.operands[1])
        if delivery.wanted:
            transfer = self._transfers.pop(key, None)
            found = self._terminal(delivery, transfer)
            if found is not None and transfer is not None and not transfer.done():
                value, hold = found
                if isinstance(value, FetchFailed) or value.body is not None:
                    hold.release()
                if isinstance(value, FetchFailed):
                    transfer._fail(value)
                else:
                    transfer._future.set_result(value)
        for token in delivery.watches:
            queue = self._watches.get(token)
            found = self._terminal(delivery, None)
            if queue is not None and found is not None:
                queue.put(*found)

    def _terminal(self, delivery: Deliver, transfer: Transfer | None) -> tuple[Terminal, Hold] | None:
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
            again = dataclasses.replace(transfer._fetch, request=f"{self._nonce}-{self._next()}", replace=False)
            transfer._fetch = again
            self._transfers[(again.handler, again.request)] = transfer
            self._apply(self._core.fetch(again))
            return None
        handler, request = delivery.terminal.operands[:2]
        lost = FetchFailed(handler, request, "internal", "the file of its body was gone before it could be opened")
        return lost, Hold(lambda: None)


def connect(runtime: str | os.PathLike[str] | None = None, *, private: bool = False, window: int | None = 256,
            timeout: float = 10.0, lease: float = 0.0) -> Bus:
    """The bus, to be entered: `async with earshot.connect() as bus:`.

    `runtime`: the broker's runtime folder, else `EARSHOT_RUNTIME`, else the user's usual one. `private`: a bus for this
    process alone, which lives as long as the process; its program is `EARSHOT_BINARY`, else `earshot` in the `PATH`.
    `window`: results that may be held at once, 1 to 4096; None: no limit, and files are kept for 60 s alone.
    `timeout`: seconds in which a broker that is being started again has to answer. `lease`: seconds for which the
    broker goes on with what this process wants when the connection breaks, at most 3600; also when the process is
    killed. Raises `NoBroker` on entering.
    """
    return Bus(runtime, private, window, timeout, lease)
