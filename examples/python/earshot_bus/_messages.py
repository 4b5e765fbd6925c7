"""Encoder and decoder of EAR/1 messages (protocols/1-core.md). Pure: no sockets, no clock."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypedDict, get_args

Bodies = Literal["path", "pull"]
Priority = Literal["background", "low", "normal", "high"]
CacheMode = Literal["default", "explicit", "no-store", "reload", "no-cache", "force-cache", "only-if-cached"]
Headers = tuple[tuple[str, str], ...]

HEAD_BYTES = 65_536
"""Maximum size of a message's head, in bytes."""
_RESERVE = 64
"""Bytes of the fields that are added to a message later."""
URL_BYTES = 8_192
HANDLER_BYTES = 200
IDENTIFIER_BYTES = 64
LONGEST_SECONDS = 86_400.0

_HANDLER = re.compile(r"[!-.0-~]+(?:/[!-.0-~]+)*")
_IDENTIFIER = re.compile(rf"[!-~]{{1,{IDENTIFIER_BYTES}}}")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SPACE_OR_CONTROL = re.compile(r"[\x00-\x20\x7f]")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")

# Minimum number of operands of each verb of the broker, and whether it may have more. REMOVED has three of one request.
_OPERANDS = {"WELCOME": (1, False), "RESULT": (3, False), "FAILED": (3, False), "PROGRESS": (3, False),
             "REMOVED": (2, True), "ACCEPTED": (2, False), "ANSWER": (1, True), "CHANGED": (2, True), "TAKEN": (1, True),
             "DATA": (2, True), "ERROR": (1, False), "OK": (0, False), "GOODBYE": (0, False)}
# The same for the broker's messages to workers, protocols/6-workers.md.
_WORKER_OPERANDS = {"LIMITS": (0, False), "JOB": (2, False), "RAISE": (1, False), "CANCEL": (1, False),
                    "PING": (0, False), "DRAIN": (0, False), "ERROR": (1, False)}


class Progress(NamedTuple):
    """Progress of a transfer. `received` falls if another attempt starts from the beginning."""

    received: int
    """Decoded bytes received so far."""
    total: int | None
    """Decoded bytes of the whole body; None if unknown."""


class FetchOptions(TypedDict, total=False):
    """Options of a request. All are optional. Times in seconds range from 0.001 to 86,400."""

    priority: Priority
    """Urgency: `background`, `low`, `normal` or `high`. Default: `normal`."""
    method: Literal["GET", "HEAD"]
    """HTTP method. Default: `GET`."""
    headers: Mapping[str, str] | Iterable[tuple[str, str]]
    """HTTP header fields to send, a mapping or pairs of name and value. Default: none."""
    timeout: float
    """Maximum time in seconds without a byte from the server. Default: 60."""
    deadline: float
    """Maximum time in seconds for the request, including the queue. Restarts with another broker. Default: none."""
    max_bytes: int
    """Maximum size of the decoded body in bytes; a larger one fails as `too-large`. Default: none."""
    redirect: Literal["follow", "error", "manual"]
    """Redirects: follow, fail as `redirect-refused`, or return the redirect itself. Default: `follow`."""
    retries: int
    """Maximum number of retries after transient failures, 0 to 20. Default: 2."""
    wait_ms: int
    """Maximum time in milliseconds of a wait for a server that has requested a pause, 0 for none; a longer one fails as
    `origin-cooling`, at once if its end is known. Default: no limit."""
    sha256: str
    """Required SHA-256 of the body, 64 hexadecimal digits; another body fails as `digest-mismatch`. Default: none."""
    cache: CacheMode
    """Cache mode: one of the Fetch standard, or `explicit`, which estimates no freshness. Default: `default`."""
    cookies: bool
    """Whether to use the cookie jar of the first segment of the handler's name. Default: False."""
    decode: bool
    """Whether content codings such as gzip are undone. If false, the body is requested without a coding and keeps any.
    Default: True."""
    warm: bool
    """Whether to fetch into the cache only, without delivery of the body. Default: False."""
    on_progress: Callable[[Progress], object]
    """Callback for each `Progress`, called in the thread of the event loop, which it must not block. With
    `earshot_bus.blocking` any thread that waits may call it, but never two at once. Default: none."""
    progress_ms: int
    """Minimum time between two progress reports in milliseconds, at least 50. Default: 250."""


class Message:
    """Message from the broker. Its fields are parsed on demand, because most callers read only two of them."""

    __slots__ = ("_lines", "body", "header_lines", "operands", "sequence", "verb")

    def __init__(self, verb: str, operands: tuple[str, ...], lines: str, header_lines: str, body: bytes | None) -> None:
        self.verb = verb
        self.operands = operands
        self._lines = lines
        self.header_lines = header_lines
        """HTTP header fields as received, one a line."""
        self.body = body
        """The second frame; None if absent."""
        self.sequence = 0
        """`seq` of a terminal; 0 for a FAILED without it, which needs no acknowledgement."""

    @property
    def headers(self) -> Headers:
        """HTTP header fields in their order."""
        parts = [line.partition(":") for line in self.header_lines.split("\n") if line]
        return tuple([(name, value.strip(" \t")) for name, _, value in parts])

    def field(self, name: str) -> str | None:
        """Returns a field of the head, the last one of this name; None if there is none."""
        start = self._lines.rfind(f"\n{name}:")
        if start < 0:
            return None
        start += len(name) + 2
        end = self._lines.find("\n", start)
        return self._lines[start:end if end >= 0 else None].strip(" ")

    @property
    def has_file(self) -> bool:
        """Whether the body is in a file, which the client opens or reads by READ."""
        return self.field("file") is not None or self.field("pull") == "yes"

    def number(self, name: str) -> int | None:
        """Returns a field as a number; None if it is absent or not a number."""
        text = self.field(name)
        return None if text is None else decimal(text)


def decimal(text: str) -> int | None:
    """Returns the value of at most 20 decimal digits; None for any other text."""
    # Latin-1 has only ten decimal digits.
    return int(text) if text.isdecimal() and len(text) <= 20 else None


def decode(frames: Sequence[bytes]) -> Message:
    """Decodes a message from the broker to a client. Raises `ValueError` if it is malformed."""
    message = _decode(frames, _OPERANDS)
    if message.verb in ("RESULT", "FAILED"):
        sequence = message.number("seq")
        # The refusal of a durable request has no seq.
        if sequence is None and (message.verb == "RESULT" or message.field("seq") is not None):
            raise ValueError(f"{message.verb} without a seq")
        if message.verb == "RESULT" and decimal(message.operands[2]) is None:
            raise ValueError("RESULT without a status")
        message.sequence = sequence or 0
    return message


def decode_for_worker(frames: Sequence[bytes]) -> Message:
    """Decodes a message from the broker to a worker. Raises `ValueError` if it is malformed."""
    return _decode(frames, _WORKER_OPERANDS)


def legible(frames: Sequence[bytes]) -> Message:
    """Returns the legible part of a malformed message. It can have any operands; `sequence` is 0 if illegible."""
    lines, _, header_lines = frames[0].decode("latin-1").partition("\n\n")
    verb, *operands = lines.partition("\n")[0].split(" ")
    message = Message(verb, tuple(operands), lines, header_lines, None)
    message.sequence = message.number("seq") or 0
    return message


def _decode(frames: Sequence[bytes], verbs: Mapping[str, tuple[int, bool]]) -> Message:
    lines, _, header_lines = frames[0].decode("latin-1").partition("\n\n")
    verb, *operands = lines.partition("\n")[0].split(" ")
    least, more = verbs.get(verb, (-1, False))
    if len(operands) != least and (len(operands) < least or not more):
        raise ValueError(f"not a message of the broker: {verb[:20]!r} with {len(operands)} operands")
    return Message(verb, tuple(operands), lines, header_lines, frames[1] if len(frames) > 1 else None)


def encode(*words: str, fields: Iterable[tuple[str, object]] = (), headers: Headers = ()) -> bytes:
    """Encodes a head. Raises `ValueError` for a word or value that could inject other words or fields."""
    line = " ".join(words)
    # Fast path: one check of the whole line.
    if not (line.isascii() and line.isprintable() and line.count(" ") == len(words) - 1 and all(words)):
        for word in words:
            if not word or _SPACE_OR_CONTROL.search(word):
                raise ValueError(f"empty, or with spaces or control characters: {word!r}")
    for name, value in fields:
        line += f"\n{name}: {value}"
    head = line.encode() + b"\n"
    if headers:
        lines = []
        for name, value in headers:
            if not _TOKEN.fullmatch(name):
                raise ValueError(f"not the name of a header field: {name!r}")
            if _CONTROL.search(value):
                raise ValueError(f"a control character in the header field {name}")
            lines.append(f"{name}: {value}\n".encode("latin-1"))
        head = b"\n".join((head, b"".join(lines)))
    if len(head) > HEAD_BYTES:
        raise ValueError(f"a message of {len(head)} bytes; at most {HEAD_BYTES} are allowed")
    return head


def check_handler(name: str) -> str:
    """Returns the name if it is valid. Raises `ValueError` otherwise."""
    if len(name) > HANDLER_BYTES or not _HANDLER.fullmatch(name):
        raise ValueError(f"not a handler (visible ASCII, a slash between two parts, at most 200 bytes): {name!r}")
    return name


def check_pattern(pattern: str) -> str:
    """Returns the pattern, a handler's name with an optional trailing slash. Raises `ValueError` if it is invalid."""
    check_handler(pattern.removesuffix("/"))
    return pattern


def matches(pattern: str, handler: str) -> bool:
    """Returns whether a pattern matches a handler."""
    return handler.startswith(pattern) if pattern.endswith("/") else handler == pattern


class Fetch(NamedTuple):
    """Request in the form that is sent, and sent again to the next broker."""

    head: bytes
    """The first form of the message."""
    handler: str
    request: str
    url: str
    fields: tuple[tuple[str, object], ...]
    headers: Headers
    replace: bool

    @classmethod
    def make(cls, handler: str, request: str, url: str, options: FetchOptions, replace: bool = False) -> Fetch:
        """Builds a request. Raises `ValueError` or `TypeError` for errors that the broker could not attribute to it."""
        if options and (unknown := options.keys() - FetchOptions.__annotations__.keys()):
            raise TypeError(f"no such option: {', '.join(sorted(unknown))}")
        if len(url.encode()) > URL_BYTES:
            raise ValueError(f"a URL of more than {URL_BYTES} bytes")
        if not options:
            return cls._validated(handler, request, url, (), (), replace)
        headers = options.get("headers", ())
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        return cls._validated(handler, request, url, tuple(_fields(options)), tuple([(str(n), str(v)) for n, v in pairs]),
                              replace)

    @classmethod
    def _validated(cls, handler: str, request: str, url: str, fields: tuple[tuple[str, object], ...], headers: Headers,
                   replace: bool) -> Fetch:
        all_fields = (*fields, ("replace", "yes")) if replace else fields
        head = encode("FETCH", handler, request, url, fields=all_fields, headers=headers)
        return cls(head, handler, request, url, fields, headers, replace)

    def anew(self, request: str) -> Fetch:
        """Returns the request with another ID. It replaces nothing, because later requests of the handler must stay."""
        return self._validated(self.handler, request, self.url, self.fields, self.headers, replace=False)

    def prioritized(self, priority: str) -> Fetch:
        """Returns the request with another priority."""
        fields = tuple(pair for pair in self.fields if pair[0] != "priority") + (("priority", priority),)
        return self._validated(self.handler, self.request, self.url, fields, self.headers, self.replace)

    def encode(self, again: bool, age_ms: int = 0) -> bytes:
        """Returns the message. `again`: a repetition, which replaces nothing, because later requests must stay.
        `age_ms`: milliseconds since the program made the request. A message without room for it does not state it."""
        replace = self.replace and not again
        if len(self.head) > HEAD_BYTES - _RESERVE:
            age_ms = 0
        if not age_ms and replace == self.replace:
            return self.head
        fields = (*self.fields, ("age-ms", min(age_ms, 86_400_000))) if age_ms else self.fields
        return self._validated(self.handler, self.request, self.url, fields, self.headers, replace).head


def _fields(options: FetchOptions) -> Iterable[tuple[str, object]]:
    if "priority" in options:
        yield "priority", check_priority(options["priority"])
    if "method" in options:
        yield "method", _fitting(_IDENTIFIER, "method", options["method"])
    if "timeout" in options:
        yield "timeout", _seconds("timeout", options["timeout"])
    if "deadline" in options:
        yield "deadline", _seconds("deadline", options["deadline"])
    if "max_bytes" in options:
        yield "max-bytes", _number("max_bytes", options["max_bytes"], 0, 2**63 - 1)
    if "redirect" in options:
        yield "redirect", _one_of(("follow", "error", "manual"), "redirect", options["redirect"])
    if "retries" in options:
        yield "retries", _number("retries", options["retries"], 0, 20)
    if "on_progress" in options or "progress_ms" in options:
        yield "progress", _number("progress_ms", options.get("progress_ms", 250), 50, 86_400_000)
    if "sha256" in options:
        yield "digest", "sha-256=" + _fitting(re.compile("[0-9a-f]{64}"), "sha256", options["sha256"].lower())
    if "cache" in options:
        yield "cache", _one_of(get_args(CacheMode), "cache", options["cache"])
    if options.get("cookies"):
        yield "cookies", "yes"
    if not options.get("decode", True):
        yield "decode", "no"
    if options.get("warm"):
        yield "warm", "yes"
    if "wait_ms" in options:
        yield "wait-ms", _number("wait_ms", options["wait_ms"], 0, 86_400_000)


def check_priority(name: str) -> str:
    """Returns the priority if it is valid. Raises `ValueError` otherwise."""
    return _one_of(get_args(Priority), "priority", name)


def _one_of(choice: tuple[str, ...], name: str, value: str) -> str:
    if value not in choice:
        raise ValueError(f"{name} is one of {', '.join(choice)}, not {value!r}")
    return value


def _fitting(form: re.Pattern[str], name: str, value: str) -> str:
    if not form.fullmatch(value):
        raise ValueError(f"{name} cannot be {value!r}")
    return value


def _number(name: str, value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        raise ValueError(f"{name} is from {least} to {most}, not {value}")
    return int(value)


def _seconds(name: str, value: float) -> str:
    if not 0.001 <= value <= LONGEST_SECONDS:
        raise ValueError(f"{name} is from 0.001 to {LONGEST_SECONDS:.0f} seconds, not {value}")
    return f"{value:.3f}".rstrip("0").rstrip(".")
