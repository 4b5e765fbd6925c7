"""Client for asyncio: `_shell.Shell` in an event loop."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import secrets
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ._handler import Handler, Transfer
from ._link import Link
from ._messages import Bodies, FetchOptions, Message, check_handler, check_pattern
from ._network import Addresses
from ._protocol import Action, pages
from ._results import EarshotError
from ._shell import LONGEST_ACK_DELAY, BusLocation, Shell
from ._watch import Queue, Watch

if TYPE_CHECKING:
    from typing_extensions import Self


class Bus(Shell):
    """Connection to the broker, made by `connect` and opened by `async with`, for one event loop.

    If the broker ends, the bus connects to the next one and repeats its pending requests. Callers see a delay, but no
    error. Leaving the `async with` ends the session: pending requests are removed, and calls that wait raise `Closed`.
    """

    def __init__(self, location: BusLocation, window: int, timeout: float, lease: float | None, bodies: Bodies) -> None:
        super().__init__(location, window, timeout, lease, bodies)
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
        # Retrieves the exception, because a cancelled caller no longer does.
        greeted.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._folder = await asyncio.to_thread(self._find) if self._private else self._find()
        self._closed = False
        try:
            self._open_link()
            await asyncio.wait_for(asyncio.shield(greeted), self._connect_timeout)
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
        """Returns a handler, to be opened with `async with`.

        `name`: 1 to 200 bytes of visible ASCII, in segments separated by slashes. All programs of the user share the
        names. Without a name the handler has a unique one. Raises `ValueError` for an invalid name.
        """
        return Handler(self, check_handler(name or f"python/{secrets.token_hex(8)}"))

    def watch(self, pattern: str) -> Watch:
        """Subscribes to a handler, or with a trailing slash to all handlers below it. Returns an async iterator.

        It yields the results of all requests from now on, also of those from other programs. The bus acknowledges a
        result after the program has taken it. The broker then deletes a durable result from disk, so the program must
        have stored it, or it is lost. Raises `ValueError` for an invalid pattern, and `Closed`.
        """
        queue = Queue()
        return Watch(self, self._start_watch(check_pattern(pattern), queue), queue)

    async def remove(self, pattern: str) -> int:
        """Removes a handler, or with a trailing slash all handlers below it, with the requests of all programs.

        Returns the number of removed requests. They end as `FetchFailed` with the code `removed`.
        """
        answer = await self._remove(check_pattern(pattern), survives=True)
        return int(answer.operands[1]) if answer else 0

    async def cancel(self, handler: str, request: str) -> None:
        """Cancels one request, of this or another program. Does nothing if the request does not exist.

        If the broker dies first, the cancellation is repeated at the next one, and the call waits for that.
        """
        check_handler(handler)
        await self._await(lambda token: self._core.cancel((handler, request), token))

    async def retry(self, handler: str, request: str) -> None:
        """Repeats a durable request that has failed, with its own options. Any program may have made the request.

        Its failure must wait on disk for a subscriber. Returns once the request is pending there again, also if it was
        pending already. Raises `Refused`: with the code `unknown-request` there is no such failure, with `not-stored` it
        could not be deleted.
        """
        check_handler(handler)
        await self._await(lambda token: self._core.command(token, "RETRY", handler, request))

    async def query(self, *subject: str) -> dict[str, Any]:
        """Returns the answer to a QUERY, as parsed JSON. `subject`: its operands, see protocols/administration.md.

        Raises `Refused` for an unknown subject.
        """
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
        """Waits until the broker has processed all earlier messages of this connection."""
        await self.query("ping")

    async def status(self) -> dict[str, Any]:
        """Returns the broker's status: counters, queue, workers and origins, as in `earshot status --json`."""
        return await self.query("status")

    async def settings(self) -> list[dict[str, Any]]:
        """Returns the settings: a list of dictionaries with name, value and source."""
        rows: list[dict[str, Any]] = (await self.query("settings"))["settings"]
        return rows

    async def why(self, handler: str, request: str) -> dict[str, Any]:
        """Returns the state of one request, and the reason why it waits. `request`: its ID."""
        return await self.query("why", handler, request)

    async def set(self, name: str, *value: object) -> str:
        """Changes a setting of the broker: `set("slots", 32)`, `set("origin", "*.example.org", "limit=2")`.

        Returns the setting in normal form. Raises `Refused` with the code `bad-setting` for an unknown name or value.
        """
        answer = await self._await(lambda token: self._core.command(token, "SET", name, *map(str, value)))
        return " ".join(answer.operands) if answer else ""

    # Interface for handlers and transfers.

    def _fetch(self, handler: str, url: str, options: FetchOptions, replace: bool) -> Transfer:
        transfer = Transfer(self, self._make(handler, url, options, replace), options.get("on_progress"))
        self._begin(transfer)
        return transfer

    async def _remove(self, pattern: str, survives: bool) -> Message | None:
        return await self._await(lambda token: self._core.remove(pattern, token, survives))

    async def _await(self, command: Callable[[int], list[Action]]) -> Message | None:
        answer: asyncio.Future[Message | None] = asyncio.get_running_loop().create_future()
        token = self._start_question(command, answer)
        try:
            return await answer
        finally:
            self._answers.pop(token, None)

    # Hooks of `Shell`, on the event loop.

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
            self._acknowledging = self._loop.call_later(LONGEST_ACK_DELAY, self._acknowledge)

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
            pass  # The loop is closed, and with it this connection.


def connect(runtime: Addresses = None, *, private: bool = False, window: int = 256, timeout: float = 10.0,
            lease: float | None = None, bodies: Bodies = "path", key: str | os.PathLike[str] | None = None,
            server_key: str | Sequence[str] | None = None) -> Bus:
    """Returns a bus, to be opened: `async with earshot_bus.connect() as bus:`.

    - `runtime`: runtime directory of the broker; by default `EARSHOT_RUNTIME`, else `$XDG_RUNTIME_DIR/earshot`, else
      `earshot-UID` in the directory for temporary files. For a bus on a network its address, `tcp://HOST:PORT`, or a list
      of addresses to fail over between; by default those of `EARSHOT_BUS`. That needs pyzmq (the extra `tcp`).
    - `private`: whether to start a bus for this process alone, which ends with the process. Its program is
      `EARSHOT_BINARY`, else `earshot` in the `PATH`.
    - `window`: maximum number of unacknowledged results, 1 to 4096.
    - `timeout`: seconds to wait for a broker that is starting.
    - `lease`: seconds, at most 3600, for which the broker keeps the requests of a broken connection, also if this
      process was killed. 0: no lease. By default 60 over a network, and 0 on this machine.
    - `bodies`: `path` to open the broker's files, or `pull` to read bodies over the connection into unnamed files of
      this process. A program in a container needs `pull`. A bus of another user and a network impose it.
    - `key`, `server_key`: for a network, the path of this client's key file, and the public key of the bus or the path
      of its file; for several buses one for all, or one each. By default `EARSHOT_BUS_KEY` and `EARSHOT_SERVER_KEY`.

    Raises `ValueError` for an invalid address or key. It and opening raise `NoBroker` if no broker runs, answers, or
    accepts the key, or if pyzmq is missing.
    """
    return Bus(BusLocation(runtime, private, key, server_key), window, timeout, lease, bodies)
