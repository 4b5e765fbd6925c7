"""File at the origin that can be requested in parts, breaks off, and changes: `/parts/NAME`.

A test creates it with `origin.publish(NAME, …)` and changes it between requests. It follows RFC 9110, sections 13.1.5 and 14,
except for deliberate lies.
"""

import gzip
import re
import threading

from . import faults

PIECE = 64 * 1024


class Version:
    """One representation."""

    def __init__(self, size, seed="", tag=None, modified=None, fields=()):
        self.content = faults.body(size, seed)
        self.tag = f'"{size}-{seed}"' if tag is None else tag
        self.modified = modified
        self.fields = list(fields)

    def validators(self):
        fields = [("ETag", self.tag)] if self.tag else []
        return fields + ([("Last-Modified", self.modified)] if self.modified else [])


class Published:
    """Current content of a name. `plan(n, start)` returns, for the n-th response from 0, which begins at offset `start`, a
    dictionary of

        cut      number of body bytes after which the connection closes
        rate     bytes per second
        held     number of body bytes after which it waits until the test opens the gate of this file's name, or
        gate     another one
        version  another version from now on
        lie      start, total, tag, weak, length, long, coding, ignore (Range), unsatisfied; early (a 206 that begins 100
                 bytes before the requested offset, and states that), other (a 206 of `version`, regardless of If-Range),
                 gzip (all of it in gzip, regardless of Range)
    """

    def __init__(self, version, plan=None):
        self.version = version
        self.plan = plan or (lambda number, start: {})
        self.answers = 0
        self.sent = 0
        """Number of body bytes."""
        self.ranges = []
        """`Range` of each request, None if absent."""
        self.lock = threading.Lock()


async def answer(connection, request, origin, name):
    published = origin.published[name]
    range_field = request.headers.get("range")
    start = int(re.fullmatch(r"bytes=(\d+)-\d*", range_field)[1]) if range_field else 0
    with published.lock:
        plan = published.plan(published.answers, start)
        published.answers += 1
        published.ranges.append(range_field)
        if "version" in plan:
            published.version = plan["version"]
        version = published.version
    lie = plan.get("lie")
    if lie == "early":
        start = max(0, start - 100)
    total = len(version.content)
    condition = request.headers.get("if-range")
    holds = condition is None or condition in (version.tag, version.modified) or lie == "other"
    fields = [*version.fields, ("Date", "Sun, 06 Nov 2044 08:49:37 GMT")]
    if range_field and holds and lie not in ("ignore", "gzip"):
        if start >= total or lie == "unsatisfied" or lie == "closed" and range_field.endswith("-"):
            await connection.send(faults.plain(416, b"no", [("Content-Range", f"bytes */{total}")]))
            return True
        status, content = 206, version.content[start:]
        false_ranges = {"start": f"{max(0, start - 1)}-{total - 1}/{total}", "total": f"{start}-{total - 1}/{total + 1}"}
        fields.append(("Content-Range", f"bytes {false_ranges.get(lie, f'{start}-{total - 1}/{total}')}"))
    else:
        status, content = 200, version.content
    if lie == "tag":
        fields.append(("ETag", '"another"'))
    elif lie == "weak":
        fields.append(("ETag", "W/" + version.tag))
    else:
        fields += version.validators()
    if lie == "gzip":
        fields.append(("Content-Encoding", "gzip"))
        content = gzip.compress(content, 1)
    if lie == "coding":
        # Random bytes are never a valid gzip stream; some of them could be valid brotli.
        fields.append(("Content-Encoding", "gzip"))
    length = len(content)
    if lie == "long":
        content += b"surplus"
        length += 7
    if lie == "length":
        length += 1
    await connection.send(faults.head(status, fields, length))
    cut = plan.get("cut")
    content = content if cut is None else content[:cut]
    held = plan.get("held", 0)
    await send(connection, content[:held], plan.get("rate"), published)
    if held:
        await origin.gate(plan.get("gate", name)).wait()
    await send(connection, content[held:], plan.get("rate"), published)
    return cut is None and lie != "length"


async def send(connection, content, rate, published):
    piece = PIECE if rate is None else max(1, min(PIECE, rate // 50))
    for offset in range(0, len(content), piece):
        part = content[offset:offset + piece]
        await connection.send(part)
        with published.lock:
            published.sent += len(part)
        # A lost connection is detected here.
        await faults.pace(len(part) / rate if rate else 0)
