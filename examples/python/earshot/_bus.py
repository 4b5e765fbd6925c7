"""The asyncio form: `_shell.Shell` in an event loop."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import secrets
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import _place
from ._handler import Handler, Transfer
from ._link import Link
from ._messages import FetchOptions, Message, check_handler, check_pattern
from ._protocol import Action, pages
from ._results import EarshotError
from ._shell import LONGEST_OWED, Shell
from ._watch import Queue, Watch

if TYPE_CHECKING:
    from typing_extensions import Self


class Bus(Shell):
    """A connection to the broker. All calls belong to the event loop in which it was entered.

    When the broker ends, what is still wanted is asked of the next one, and nobody has to notice.
    """

    def __init__(self, runtime: str | os.PathLike[str] | None, private: bool, window: int | None,
                 timeout: float, lease: float) -> None:
        super().__init__(runtime, private, window, timeout, lease)
        self._reopening: asyncio.TimerHandle | None = None
        self._acknowledging: asyncio.TimerHandle | None = None
        self._is_pumping = False
        self._thread = 0
        self._loop: asyncio.AbstractEventLoop

    async def __aenter__(self) -> Self:
        self._enter()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._greeted = greeted = self._loop.create_future()
        # Whoever enters may have been cancelled, and no complaint then if there is no broker.
        greeted.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._folder = await asyncio.to_thread(_place.private_folder) if self._private else self._find()
        self._closed = False
        try:
            self._open_link()
            await asyncio.wait_for(asyncio.shield(greeted), self._patience)
        except asyncio.TimeoutError:
            self._close()
            raise self._unanswered() from None
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
        """What becomes of a handler's requests from now on; with a slash at its end, of all handlers below it.

        A result is acknowledged once the program has taken it. The result of a durable request is then gone from the
        broker's disk: the program stores it, or loses it."""
        queue = Queue()
        return Watch(self, self._hear(check_pattern(pattern), queue), queue)

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
        questions = pages(subject)
        question = next(questions)
        while True:
            answer = await self._await(functools.partial(self._core.query, question))
            try:
                question = questions.send(json.loads(answer.body or b"{}") if answer else {})
            except StopIteration as end:
                found: dict[str, Any] = end.value
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

    def _fetch(self, handler: str, url: str, options: FetchOptions, replace: bool) -> Transfer:
        transfer = Transfer(self, self._make(handler, url, options, replace), options.get("on_progress"))
        self._begin(transfer)
        return transfer

    async def _remove(self, pattern: str, survives: bool) -> Message | None:
        return await self._await(lambda token: self._core.remove(pattern, token, survives))

    async def _await(self, ask: Callable[[int], list[Action]]) -> Message | None:
        answer: asyncio.Future[Message | None] = asyncio.get_running_loop().create_future()
        token = self._ask(ask, answer)
        try:
            return await answer
        finally:
            self._answers.pop(token, None)

    # What the shell needs of the loop.

    def _attach(self, link: Link) -> None:
        self._loop.add_reader(link.descriptor, self._pump, True)

    def _detach(self, link: Link) -> None:
        self._loop.remove_reader(link.descriptor)
        self._loop.remove_writer(link.descriptor)

    def _await_room(self, link: Link) -> None:
        if link.is_full:
            self._loop.add_writer(link.descriptor, self._pump)
        else:
            self._loop.remove_writer(link.descriptor)

    def _reopen(self, after: float | None) -> None:
        if self._reopening is not None:
            self._reopening.cancel()
        self._reopening = None if after is None else self._loop.call_later(after, self._open_link)

    def _pump_soon(self) -> None:
        if not self._is_pumping:
            self._is_pumping = True
            self._loop.call_soon(self._pump)

    def _acknowledge_in_time(self) -> None:
        if self._acknowledging is None:
            self._acknowledging = self._loop.call_later(LONGEST_OWED, self._acknowledge)

    def _acknowledge(self) -> None:
        if self._acknowledging is not None:
            self._acknowledging.cancel()
            self._acknowledging = None
        super()._acknowledge()

    def _pump(self, is_readable: bool = False) -> None:
        if not is_readable:
            self._is_pumping = False
        super()._pump(is_readable)

    def _later(self, call: Callable[..., object], *arguments: object) -> None:
        try:
            if threading.get_ident() == self._thread:
                self._loop.call_soon(call, *arguments)
            else:
                self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            pass  # The loop has ended, and this connection with it.


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
