"""Responses of the origin of a chaos run. The URL determines them completely:

    /whim/NAME?FIELD=VALUE&…

    bytes=N      size of the body, whose bytes depend on name and generation alone (`content`)
    faults=A,B   faults of the first responses, one each, in order: cut, drop, reset, 503, 429, hang
    then=WHAT    all later responses: good (the default), 404, cut, drop, reset, garbage, coding, loop
    rate=N       bytes per second
    gzip=1       with Content-Encoding gzip
    change=S     a new generation every S seconds
    cc=C         `Cache-Control: C`; no-store by default
    hops=N       N redirects first, from port to port

A response names its generation in `X-Generation` and in its ETag, and supports ranges: a client may resume a broken
transfer, but never with bytes of another generation.
"""

import functools
import gzip
import random
import time
import urllib.parse

import checkout  # noqa: F401
from support import faults

PIECE = 32 * 1024

RETRIED = {"cut": "truncated", "drop": "reset", "reset": "reset", "503": "http-status", "429": "http-status",
           "hang": "timeout"}
"""Transient faults, with the code of a request whose last attempt had it."""

LASTING = {"404": "http-status", "cut": "truncated", "drop": "reset", "reset": "reset", "garbage": "protocol-error",
           "coding": "encoding-error", "loop": "redirect-loop"}
"""Permanent faults, with their codes."""

EPOCH = time.monotonic()


@functools.lru_cache(maxsize=256)
def content(name, generation, size):
    """Returns the bytes of a resource in one generation."""
    return random.Random(f"{name}/{generation}").randbytes(size)


class Whim:
    """Parsed URL of a response."""

    def __init__(self, target):
        parts = urllib.parse.urlsplit(target)
        self.name = parts.path.rpartition("/")[2]
        query = dict(urllib.parse.parse_qsl(parts.query))
        self.size = int(query.get("bytes", 100))
        self.faults = query["faults"].split(",") if query.get("faults") else []
        self.then = query.get("then", "good")
        self.rate = int(query.get("rate", 0))
        self.gzip = "gzip" in query
        self.period = float(query.get("change", 0))
        self.cache = query.get("cc", "no-store")
        self.hops = int(query.get("hops", 0))

    @property
    def fresh_seconds(self):
        """Freshness lifetime in a cache, in seconds."""
        return int(self.cache.removeprefix("max-age=")) if self.cache.startswith("max-age=") else 0

    def generation(self, now):
        """Returns the current generation."""
        return int((now - EPOCH) / self.period) if self.period else 0


def url(base, name, **fields):
    """Returns the URL of a whim."""
    return f"{base}/whim/{name}?{urllib.parse.urlencode(fields, safe=',=')}"


class Ledger:
    """Responses of each resource, (generation, start time), in order; and the number of its requests."""

    def __init__(self):
        self.answers = {}
        self.requested = {}

    def count_request(self, name):
        """Counts a request. Returns the number of earlier ones."""
        before = self.requested.get(name, 0)
        self.requested[name] = before + 1
        return before

    def answered(self, name, generation):
        self.answers.setdefault(name, []).append((generation, time.monotonic()))

    def served(self, name):
        """Returns all generations of a resource that were served."""
        return {generation for generation, _ in self.answers.get(name, [])}


async def answer(connection, request, origin, name):
    """Implements the fault `whim` of `faults.FAULTS`."""
    whim = Whim(request.target)
    if whim.hops:
        await go_on(connection, request, origin, whim.hops - 1)
        return True
    number = origin.ledger.count_request(name)
    fault = whim.faults[number] if number < len(whim.faults) else whim.then
    if fault == "loop":
        await faults.go_to(connection, faults.with_query(request, request.path))
        return True
    if fault in ("503", "429"):
        await connection.send(faults.plain(int(fault), b"not now\n", [("Retry-After", "1")]))
        return True
    if fault == "404":
        await connection.send(faults.plain(404, b"no such thing\n", [("Cache-Control", "no-store")]))
        return True
    if fault == "reset":
        return await faults.reset(connection)
    if fault == "garbage":
        return await faults.garbage(connection)
    if fault == "hang":
        await faults.forever()
    return await body(connection, request, origin, whim, fault)


async def go_on(connection, request, origin, hops):
    """Redirects to the same resource at the next port, with one hop less."""
    here = next(index for index, base in enumerate(origin.urls) if base.endswith(f":{request.port}"))
    query = request.query | {"hops": hops}
    target = f"{request.path}?{urllib.parse.urlencode(query, safe=',=')}"
    await faults.go_to(connection, origin.urls[(here + 1) % len(origin.urls)] + target)


async def body(connection, request, origin, whim, fault):
    """Sends a whole body, or one truncated by `fault` cut or drop. Returns whether another request may follow."""
    generation = whim.generation(time.monotonic())
    tag = f'"{generation}{"-gzip" if whim.gzip else ""}"'
    fields = [("ETag", tag), ("X-Generation", generation), ("Cache-Control", whim.cache)]
    origin.ledger.answered(whim.name, generation)
    if request.headers.get("if-none-match") == tag:
        await connection.send(faults.head(304, fields))
        return True
    whole = content(whim.name, generation, whim.size)
    status, start = 200, 0
    if whim.gzip:
        whole = gzip.compress(whole, 1, mtime=0)
        fields.append(("Content-Encoding", "gzip"))
    elif "range" in request.headers and request.headers.get("if-range", tag) == tag:
        start = int(request.headers["range"].removeprefix("bytes=").partition("-")[0])
        if start >= len(whole):
            await connection.send(faults.plain(416, b"", [("Content-Range", f"bytes */{len(whole)}")]))
            return True
        status = 206
        fields.append(("Content-Range", f"bytes {start}-{len(whole) - 1}/{len(whole)}"))
    if fault == "coding":
        whole = b"this is no gzip" + whole
        fields.append(("Content-Encoding", "gzip"))
    rest = whole[start:]
    await connection.send(faults.head(status, fields, len(rest)))
    if fault in ("cut", "drop"):
        await send(connection, rest[:max(0, len(rest) * 2 // 3 - 1)], whim.rate)
        return await faults.reset(connection) if fault == "drop" else False
    await send(connection, rest, whim.rate)
    return True


async def send(connection, data, rate):
    piece = max(1, min(PIECE, rate // 20)) if rate else PIECE
    for offset in range(0, len(data), piece):
        part = data[offset:offset + piece]
        await connection.send(part)
        await faults.pace(len(part) / rate if rate else 0)


faults.FAULTS["whim"] = answer
