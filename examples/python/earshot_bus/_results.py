"""Terminals of requests: `Result` and `FetchFailed`, and the other exceptions of the package."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import secrets
import shutil
from collections.abc import Callable
from typing import IO, Final, Literal, TypeAlias

from ._messages import Headers, Message

ERROR_PAGE_BYTES = 1 << 20
"""Maximum number of bytes of an error page that a failure keeps."""


class EarshotError(Exception):
    """Base class of the exceptions of this package."""


class NoBroker(EarshotError):
    """No broker runs in the runtime directory, or it cannot be trusted."""


class Closed(EarshotError):
    """This program has closed the bus."""


class Refused(EarshotError):
    """The broker rejected a message, such as an invalid request or setting."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code = code
        """A code of protocols/8-codes.md, "Errors"."""
        self.detail = detail
        """Human-readable explanation, one sentence."""


class FetchFailed(EarshotError):
    """A request failed, or the server answered with a status of 400 or more."""

    def __init__(self, handler: str, request: str, code: str, detail: str = "", *, status: int | None = None,
                 headers: Headers = (), body: bytes = b"", url: str | None = None, attempts: int = 0,
                 retry_after: int | None = None) -> None:
        super().__init__(f"{code}{f' {status}' if status else ''}{': ' + detail if detail else ''}")
        self.handler = handler
        self.request = request
        self.code = code
        """A code of protocols/8-codes.md, "Failures". Treat an unknown one as `internal`."""
        self.detail = detail
        """Human-readable explanation, one sentence."""
        self.status = status
        """HTTP status of the response, from 400 to 999; None unless `code` is `http-status`."""
        self.headers = headers
        """Header fields of that response, in their order; else empty."""
        self.body = body
        """First MiB of the error page; empty if it could not be read, or `code` is not `http-status`."""
        self.url = url
        """URL that answered with the error page, after redirects, or that the last attempt asked for; None if unknown."""
        self.attempts = attempts
        """Number of attempts; 0 if the request failed before the first one."""
        self.retry_after = retry_after
        """Seconds until the end of the pause that the server requested; None unless `code` is `origin-cooling`."""

    @property
    def ok(self) -> Literal[False]:
        """False. Distinguishes a failure from a `Result`."""
        return False


class Hold:
    """Defers the acknowledgement of a terminal, and keeps its file open. Released once, at the latest with the last
    reference to it."""

    __slots__ = ("_descriptor", "_release")

    def __init__(self, release: Callable[[], object], path: str | None = None) -> None:
        self._release: Callable[[], object] | None = None
        self._descriptor = None if path is None else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._release = release

    @property
    def path(self) -> str:
        """A path of the open file, for this process."""
        return f"/proc/self/fd/{self._descriptor}"

    def read(self, most: int = -1) -> bytes:
        """Returns the file from its beginning, at most `most` bytes. Works also after the broker has ended."""
        if self._descriptor is None:
            raise ValueError("this result was released: read it before")
        with open(os.dup(self._descriptor), "rb") as file:
            file.seek(0)
            return file.read(most)

    def copy(self, target: pathlib.Path) -> None:
        """Copies the file to `target`."""
        if self._descriptor is None:
            raise ValueError("this result was released: save it before")
        with open(os.dup(self._descriptor), "rb") as file, open(target, "wb") as copy:
            file.seek(0)
            shutil.copyfileobj(file, copy, 1 << 20)

    def release(self) -> None:
        """Acknowledges the terminal and closes the file. Thread-safe and idempotent."""
        release, self._release = self._release, None
        if release is None:
            return
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
        release()

    __del__ = release


NOTHING = Hold(lambda: None)
"""Hold of a result whose body is in memory."""


class Result:
    """Response of a server with a status below 400.

    A body of at most 64 KiB is in memory, in `body`. A larger one is a file of the broker, named by `path`. The broker
    keeps the file, and counts the result towards the window, until the first of: `read`, `save`, `release`, the end of
    a `with` over the result, or the last reference to it. Do not change the file, because other clients share it.
    """

    # The properties parse the message on demand, because most callers read only the body.
    __slots__ = ("__weakref__", "_hold", "_message", "body", "path")

    body: Final[bytes | None]
    """The decoded body; None if it is in a file."""
    path: Final[str | None]
    """Path of the file with the decoded body, readable until the result is released; None if the body is in memory."""

    def __init__(self, message: Message, path: str | None, hold: Hold) -> None:
        self._message = message
        self._hold = hold
        self.body = None if path is not None else message.body or b""
        self.path = path

    def __repr__(self) -> str:
        names = ("handler", "request", "status", "headers", "url", "source", "resumed_bytes", "length", "sha256",
                 "queued_ms", "elapsed_ms", "attempts", "path")
        return f"Result({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    @property
    def handler(self) -> str:
        """Name of the handler."""
        return self._message.operands[0]

    @property
    def request(self) -> str:
        """ID of the request."""
        return self._message.operands[1]

    @property
    def status(self) -> int:
        """HTTP status, from 100 to 399."""
        return int(self._message.operands[2])

    @property
    def headers(self) -> Headers:
        """Header fields as received, pairs of name and value in their order."""
        return self._message.headers

    @property
    def url(self) -> str:
        """URL of the response, after redirects."""
        return self._message.field("url") or ""

    @property
    def source(self) -> str:
        """Source of the response.

        `network`; `shared` with a request that started the transfer earlier; `resumed` after a broken attempt; `node`, if
        another node of the cluster received it; `cache`; or `revalidated`, if the server confirmed the cached response.
        """
        return self._message.field("source") or "network"

    @property
    def resumed_bytes(self) -> int:
        """Number of bytes of an earlier attempt with which the body begins; 0 unless `source` is `resumed`."""
        return self._message.number("resumed-bytes") or 0

    @property
    def length(self) -> int:
        """Size of the decoded body in bytes."""
        return self._message.number("length") or 0

    @property
    def sha256(self) -> str | None:
        """SHA-256 of the decoded body, 64 hexadecimal digits. None for a response without a body (HEAD, 204, 304)."""
        return self._message.field("sha-256")

    @property
    def queued_ms(self) -> int:
        """Milliseconds from the request to the start of the last attempt."""
        return self._message.number("queued-ms") or 0

    @property
    def redirects(self) -> tuple[tuple[int, str | None], ...]:
        """Status and target of each redirect that was followed.

        The target is None beyond 2 KiB of all targets.
        """
        words = (self._message.field("redirects") or "").split()
        return tuple([(int(status), None if url == "-" else url)
                      for status, url in zip(words[::2], words[1::2], strict=False) if status.isdecimal()])

    @property
    def elapsed_ms(self) -> int:
        """Milliseconds from the request to its end."""
        return self._message.number("elapsed-ms") or 0

    @property
    def attempts(self) -> int:
        """Number of attempts; 0 for a response from the cache."""
        return self._message.number("attempts") or 0

    @property
    def ok(self) -> Literal[True]:
        """True. Distinguishes a result from a `FetchFailed`."""
        return True

    def header(self, name: str) -> str | None:
        """Returns the value of the first header field with this name, ignoring case; None if there is none."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def read(self) -> bytes:
        """Returns the body, from memory or from the file, and releases the result.

        Raises `ValueError` on the second call if the body is in a file, and `OSError` if the file cannot be read.
        """
        if self.body is not None:
            return self.body
        try:
            return self._hold.read()
        finally:
            self._hold.release()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the body to `path`, and releases the result. Replaces `path` atomically, so it is never incomplete.

        Raises `OSError` if the file cannot be written, and `ValueError` if a body in a file was released.
        """
        target = pathlib.Path(path)
        # A random name: another program may have chosen the request's ID, and the target's name may have full length.
        part = target.with_name(f".earshot-{secrets.token_hex(8)}.part")
        try:
            if self.body is not None:
                part.write_bytes(self.body)
            else:
                self._hold.copy(part)
            part.replace(target)
        finally:
            with contextlib.suppress(OSError):
                part.unlink()
            self._hold.release()

    def release(self) -> None:
        """Acknowledges the result, so that the broker can delete the body. Thread-safe and idempotent."""
        self._hold.release()

    def __enter__(self) -> Result:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


Terminal: TypeAlias = Result | FetchFailed


def terminal(message: Message, release: Callable[[], object], part: IO[bytes] | OSError | None = None,
             ) -> tuple[Terminal, Hold]:
    """Returns the terminal of a RESULT or FAILED, with its file opened. `part`: a body that was read by READ.

    Raises `FileNotFoundError` if the file has vanished with its broker.
    """
    if not message.has_file:
        return in_memory(message), Hold(release)
    named = message.field("file")
    try:
        if named is not None:
            path = os.fsdecode(named.encode("latin-1"))
            hold = Hold(release, path)
        elif isinstance(part, OSError):
            raise part
        else:
            hold = Hold(release, _path_of(part))
            path = hold.path
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            raise FileNotFoundError(error.errno, error.strerror, named) from error
        handler, request = message.operands[:2]
        return FetchFailed(handler, request, "internal", f"cannot open the body: {error.strerror}"), Hold(release)
    if message.verb == "RESULT":
        return Result(message, path, hold), hold
    try:
        page = hold.read(ERROR_PAGE_BYTES)
    except OSError:
        page = b""  # The failure is reported without its page.
    return _failure(message, page), hold


def _path_of(part: IO[bytes] | None) -> str:
    """Returns a path under which this process can open an unnamed file once more."""
    return "" if part is None else f"/proc/self/fd/{part.fileno()}"


def in_memory(message: Message) -> Terminal:
    """Returns the terminal of a RESULT or FAILED without a file."""
    if message.verb == "FAILED":
        return _failure(message, (message.body or b"")[:ERROR_PAGE_BYTES])
    return Result(message, None, NOTHING)


def _failure(message: Message, body: bytes) -> FetchFailed:
    handler, request, word = message.operands[:3]
    return FetchFailed(handler, request, word, message.field("detail") or "", status=message.number("status"),
                       headers=message.headers, body=body, url=message.field("url"),
                       attempts=message.number("attempts") or 0,
                       retry_after=message.number("retry-after"))
