"""Web server on 127.0.0.1 for the page, its events and its pictures.

    GET  /                   the page
    GET  /page.js            its program
    GET  /icon.svg           its icon
    GET  /events?cells=N     opens a screen of N cells, and sends its events (server-sent events) until the page leaves
    POST /screen/NAME        {"first": ITEM}: scrolls the screen to ITEM
    GET  /picture/NAME/ITEM  the picture of an item on the screen, after its event; nothing once it has left
"""

from __future__ import annotations

import asyncio
import json
import pathlib
import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

import earshot_bus
from screen import MOST_CELLS, Screen

HERE = pathlib.Path(__file__).resolve().parent
FILES = {"/": ("page.html", "text/html; charset=utf-8"), "/page.js": ("page.js", "text/javascript; charset=utf-8"),
         "/icon.svg": ("icon.svg", "image/svg+xml")}
POLICY = "default-src 'none'; img-src 'self'; connect-src 'self'; script-src 'self'; style-src 'unsafe-inline'"

MOST_HEAD_BYTES = 16 << 10
MOST_BODY_BYTES = 4 << 10
MOST_SCREENS = 16
"""Maximum number of open pages. Each keeps the pictures of its cells in memory."""

TIMEOUT = 10.0
"""Maximum time in seconds to receive a request, and to send a response."""

COUNTERS_EVERY = 0.5
"""Seconds between two updates of the counters."""


class Refusal(Exception):
    """Error with the HTTP status of the response."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class Request:
    """Complete HTTP request."""

    def __init__(self, head: list[str]) -> None:
        parts = head[0].split(" ")
        if len(parts) != 3:
            raise Refusal(HTTPStatus.BAD_REQUEST)
        self.method = parts[0]
        self.path, _, query = parts[1].partition("?")
        self.query = parse_qs(query, max_num_fields=8)
        fields = (line.partition(":") for line in head[1:])
        self.fields = {name.lower(): value.strip() for name, _, value in fields}
        self.body = b""

    @classmethod
    async def read(cls, reader: asyncio.StreamReader) -> Request:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").rstrip("\r\n").split("\r\n")
        try:
            request = cls(head)
            length = int(request.fields.get("content-length", "0"))
        except ValueError:
            raise Refusal(HTTPStatus.BAD_REQUEST) from None
        if not 0 <= length <= MOST_BODY_BYTES:
            raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        request.body = await reader.readexactly(length)
        return request


class Pages:
    """Web server for the list `urls`: `async with Pages(bus, urls, port) as pages:`."""

    def __init__(self, bus: earshot_bus.Bus, urls: Sequence[str], port: int) -> None:
        self._bus = bus
        self._urls = urls
        self._port = port
        self._screens: dict[str, Screen] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._late_bytes = 0
        """Late bytes of closed screens."""

    @property
    def url(self) -> str:
        """URL of the page."""
        return f"http://127.0.0.1:{self._port}/"

    async def __aenter__(self) -> Pages:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self._port, limit=MOST_HEAD_BYTES)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await asyncio.wait_for(Request.read(reader), TIMEOUT)
            self._check_sender(request)
            if (request.method, request.path) == ("GET", "/events"):
                await self._serve_events(request, reader, writer)
            else:
                await self._send(writer, *self._answer(request))
        except Refusal as refusal:
            await self._refuse(writer, refusal.status)
        except asyncio.LimitOverrunError:
            await self._refuse(writer, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except (OSError, EOFError, asyncio.TimeoutError, earshot_bus.EarshotError):
            pass  # The page or the bus is gone. The page will reconnect.
        finally:
            writer.close()

    def _check_sender(self, request: Request) -> None:
        """Rejects requests of other web pages in the same browser, which can reach this port too."""
        hosts = {f"127.0.0.1:{self._port}", f"localhost:{self._port}"}
        origin = request.fields.get("origin")
        if request.fields.get("host") not in hosts or origin not in {None, *(f"http://{host}" for host in hosts)}:
            raise Refusal(HTTPStatus.FORBIDDEN)

    def _answer(self, request: Request) -> tuple[HTTPStatus, str, bytes]:
        """Returns status, Content-Type and body."""
        if request.method == "GET" and request.path in FILES:
            name, content_type = FILES[request.path]
            return HTTPStatus.OK, content_type, (HERE / name).read_bytes()
        if request.method == "POST" and (found := re.fullmatch("/screen/([0-9a-f]+)", request.path)):
            self._screen(found[1]).move(self._first(request.body))
            return HTTPStatus.NO_CONTENT, "text/plain", b""
        if request.method == "GET" and (found := re.fullmatch("/picture/([0-9a-f]+)/([0-9]{1,9})", request.path)):
            screen = self._screens.get(found[1])
            picture = screen.picture(int(found[2])) if screen is not None else None
            if picture is None:  # It has left the screen since its event. Browsers log other statuses as errors.
                return HTTPStatus.NO_CONTENT, "text/plain", b""
            is_image = re.fullmatch("image/[a-z0-9.+-]+", picture.content_type)
            return HTTPStatus.OK, picture.content_type if is_image else "application/octet-stream", picture.data
        raise Refusal(HTTPStatus.NOT_FOUND)

    def _screen(self, name: str) -> Screen:
        screen = self._screens.get(name)
        if screen is None:
            raise Refusal(HTTPStatus.NOT_FOUND)
        return screen

    def _first(self, body: bytes) -> int:
        try:
            first = json.loads(body)["first"]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise Refusal(HTTPStatus.BAD_REQUEST) from None
        if type(first) is not int or not 0 <= first < max(1, len(self._urls)):
            raise Refusal(HTTPStatus.BAD_REQUEST)
        return first

    # Events of a screen, which exists as long as their connection.

    async def _serve_events(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wanted = request.query.get("cells", [""])[0]
        if not re.fullmatch("[0-9]{1,3}", wanted) or not 1 <= int(wanted) <= MOST_CELLS:
            raise Refusal(HTTPStatus.BAD_REQUEST)
        if len(self._screens) >= MOST_SCREENS:
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE)
        screen = Screen(self._bus, self._urls, int(wanted))
        self._screens[screen.name] = screen
        try:
            async with screen:
                screen.queue_event("screen", {"screen": screen.name, "items": len(self._urls), "cells": int(wanted)})
                parts = [asyncio.create_task(part) for part in (
                    self._write_events(screen, writer), self._count(screen), self._await_leaving(reader))]
                try:
                    await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for part in parts:
                        part.cancel()
                    await asyncio.gather(*parts, return_exceptions=True)
        finally:
            del self._screens[screen.name]
            self._late_bytes += screen.late_bytes

    async def _write_events(self, screen: Screen, writer: asyncio.StreamWriter) -> None:
        writer.write(head(HTTPStatus.OK, "text/event-stream"))
        while True:
            for event in await screen.events():
                writer.write(f"data: {json.dumps(event)}\n\n".encode())
            await writer.drain()

    async def _count(self, screen: Screen) -> None:
        """Sends the counters when they change. They cover the whole bus since its start."""
        last = None
        while True:
            counters = await self._counters()
            if counters != last:
                screen.queue_event("counters", {"counters": counters})
                last = counters
            await asyncio.sleep(COUNTERS_EVERY)

    async def _counters(self) -> dict[str, Any]:
        ledger = await self._bus.query("ledger")
        requests, flights = ledger["requests"], ledger["flights"]
        late = self._late_bytes + sum(screen.late_bytes for screen in self._screens.values())
        return {"requested": requests["submitted"], "fetched": flights["assigned"], "cached": ledger["cache"]["used"],
                "dropped": requests["removed"] + requests["orphaned"], "working": requests["pending"],
                "unwanted": flights["bytes-unwanted"] + late}

    async def _await_leaving(self, reader: asyncio.StreamReader) -> None:
        while await reader.read(MOST_HEAD_BYTES):
            pass

    # Responses.

    async def _send(self, writer: asyncio.StreamWriter, status: HTTPStatus, content_type: str, body: bytes) -> None:
        writer.write(head(status, content_type, len(body)) + body)
        await asyncio.wait_for(writer.drain(), TIMEOUT)

    async def _refuse(self, writer: asyncio.StreamWriter, status: HTTPStatus) -> None:
        try:
            await self._send(writer, status, "text/plain", f"{status.phrase}\n".encode())
        except (OSError, asyncio.TimeoutError):
            pass  # The client is gone.


def head(status: HTTPStatus, content_type: str, length: int | None = None) -> bytes:
    """Returns the head of a response. The policy sandboxes pictures, because they come from other servers."""
    policy = POLICY if content_type.startswith(("text/html", "text/javascript")) else "default-src 'none'; sandbox"
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", f"Content-Type: {content_type}", "Cache-Control: no-store",
             "X-Content-Type-Options: nosniff", f"Content-Security-Policy: {policy}", "Connection: close"]
    if length is not None and status is not HTTPStatus.NO_CONTENT:
        lines.append(f"Content-Length: {length}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
