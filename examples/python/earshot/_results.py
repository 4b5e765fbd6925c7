"""What became of a request: a `Result`, or a `FetchFailed`."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import secrets
import shutil
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from ._messages import Headers, Message

ERROR_PAGE_BYTES = 1 << 20
"""The most bytes of an error page that are kept with a failure."""


class EarshotError(Exception):
    """All that this package raises of its own."""


class NoBroker(EarshotError):
    """No broker runs where this program looks for one."""


class Closed(EarshotError):
    """The connection to the bus was closed by this program."""


class Refused(EarshotError):
    """The broker did not carry out a message."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code = code
        """One of protocols/3-CODES.md, "Errors"."""
        self.detail = detail
        """A sentence for people."""


class FetchFailed(EarshotError):
    """A request was not answered, or answered with a status of 400 or more."""

    def __init__(self, handler: str, request: str, code: str, detail: str = "", *, status: int | None = None,
                 headers: Headers = (), body: bytes = b"", url: str | None = None, attempts: int = 0,
                 tag: str | None = None) -> None:
        super().__init__(f"{code}{f' {status}' if status else ''}{': ' + detail if detail else ''}")
        self.handler = handler
        self.request = request
        self.code = code
        """One of protocols/3-CODES.md, "Failures"; take one that you do not know as `internal`."""
        self.detail = detail
        """A sentence for people."""
        self.status = status
        """Of `http-status` alone: what the server answered."""
        self.headers = headers
        self.body = body
        """Of `http-status` alone: the first MiB of the error page; empty if that could not be read."""
        self.url = url
        """Of `http-status` alone: the URL that answered."""
        self.attempts = attempts
        self.tag = tag

    @property
    def ok(self) -> Literal[False]:
        """Tells a failure from a result."""
        return False


class Hold:
    """Keeps the broker from taking a terminal for received, and its file open. Released once, at the latest when the
    last reference goes."""

    __slots__ = ("_descriptor", "_release")

    def __init__(self, release: Callable[[], object], path: str | None = None) -> None:
        self._release: Callable[[], object] | None = None
        self._descriptor = None if path is None else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._release = release

    def read(self, most: int = -1) -> bytes:
        """The file from its beginning. It is there even if the broker is not."""
        if self._descriptor is None:
            raise ValueError("this result was released: read it before")
        with open(os.dup(self._descriptor), "rb") as file:
            file.seek(0)
            return file.read(most)

    def copy(self, target: pathlib.Path) -> None:
        """Copies the file."""
        if self._descriptor is None:
            raise ValueError("this result was released: save it before")
        with open(os.dup(self._descriptor), "rb") as file, open(target, "wb") as copy:
            file.seek(0)
            shutil.copyfileobj(file, copy, 1 << 20)

    def release(self) -> None:
        """Lets it go. Any thread may call it, and again."""
        release, self._release = self._release, None
        if release is None:
            return
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
        release()

    __del__ = release


NOTHING = Hold(lambda: None)
"""Of what came whole."""


class Result:
    """What a server answered with a status below 400.

    A body of more than 64 KiB is a file of the broker's, named by `path`. The broker keeps it, and counts the result
    among those that fill the window, until `read`, `save` or `release` was called, the `with` over the result ended,
    or the last reference to it went. Do not change the file: others have the same one.
    """

    # What it is asked for is taken from the message then: most are asked for their body alone.
    __slots__ = ("__weakref__", "_hold", "_message", "body", "path")

    body: Final[bytes | None]
    """The body if it came in the message; None if it is in a file."""
    path: Final[str | None]
    """The file, readable until this result is released."""

    def __init__(self, message: Message, path: str | None, hold: Hold) -> None:
        self._message = message
        self._hold = hold
        self.body = None if path is not None else message.body or b""
        self.path = path

    def __repr__(self) -> str:
        names = ("handler", "request", "status", "headers", "url", "source", "length", "sha256", "queued_ms",
                 "elapsed_ms", "attempts", "tag", "path")
        return f"Result({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    @property
    def handler(self) -> str:
        return self._message.operands[0]

    @property
    def request(self) -> str:
        return self._message.operands[1]

    @property
    def status(self) -> int:
        return int(self._message.operands[2])

    @property
    def headers(self) -> Headers:
        """As they came, in their order."""
        return self._message.headers

    @property
    def url(self) -> str:
        """The one that answered, after redirects."""
        return self._message.field("url") or ""

    @property
    def source(self) -> str:
        """`network`; `shared` if another request had begun the same transfer; `resumed` if it goes on where one broke
        off; `cache`, or `revalidated` if the server said that what was kept has not changed."""
        return self._message.field("source") or "network"

    @property
    def length(self) -> int:
        """Bytes of the body, decoded."""
        return self._message.number("length") or 0

    @property
    def sha256(self) -> str | None:
        """Of the body, decoded. None if the answer has none (HEAD, 204, 304)."""
        return self._message.field("sha-256")

    @property
    def queued_ms(self) -> int:
        """From the request to the start of the last attempt."""
        return self._message.number("queued-ms") or 0

    @property
    def elapsed_ms(self) -> int:
        """From the request to its end."""
        return self._message.number("elapsed-ms") or 0

    @property
    def attempts(self) -> int:
        return self._message.number("attempts") or 0

    @property
    def tag(self) -> str | None:
        return self._message.field("tag")

    @property
    def ok(self) -> Literal[True]:
        """Tells a result from a failure."""
        return True

    def header(self, name: str) -> str | None:
        """The first header field of this name, in whatever case."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def read(self) -> bytes:
        """The body, wherever it is; then the result is released. Of a file this works once."""
        if self.body is not None:
            return self.body
        try:
            return self._hold.read()
        finally:
            self._hold.release()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the body to `path`, which is whole whenever it is there; then the result is released."""
        target = pathlib.Path(path)
        # Nothing of the request's ID, which anybody may have chosen, or of the target's name, which may be of full length.
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
        """The body is not needed, or not any more."""
        self._hold.release()

    def __enter__(self) -> Result:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


Terminal: TypeAlias = Result | FetchFailed


def terminal(message: Message, release: Callable[[], object]) -> tuple[Terminal, Hold]:
    """What a RESULT or FAILED says, its file opened.

    Raises `FileNotFoundError` if the file is gone with its broker.
    """
    named = message.field("file")
    if named is None:
        return in_memory(message), Hold(release)
    path = os.fsdecode(named.encode("latin-1"))
    try:
        hold = Hold(release, path)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            raise FileNotFoundError(error.errno, error.strerror, path) from error
        handler, request = message.operands[:2]
        return FetchFailed(handler, request, "internal", f"cannot open the body: {error.strerror}",
                           tag=message.field("tag")), Hold(release)
    if message.verb == "RESULT":
        return Result(message, path, hold), hold
    try:
        page = hold.read(ERROR_PAGE_BYTES)
    except OSError:
        page = b""  # What became of the request is told all the same.
    return _failure(message, page), hold


def in_memory(message: Message) -> Terminal:
    """What a RESULT or FAILED without a file says."""
    if message.verb == "FAILED":
        return _failure(message, (message.body or b"")[:ERROR_PAGE_BYTES])
    return Result(message, None, NOTHING)


def _failure(message: Message, body: bytes) -> FetchFailed:
    handler, request, word = message.operands[:3]
    return FetchFailed(handler, request, word, message.field("detail") or "", status=message.number("status"),
                       headers=message.headers, body=body, url=message.field("url"),
                       attempts=message.number("attempts") or 0, tag=message.field("tag"))
