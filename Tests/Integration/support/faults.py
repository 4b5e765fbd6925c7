"""Responses of the test origin, by path.

    /bytes/N?seed=S        N bytes that depend only on N and S (`body(N, S)` returns the same bytes)
    /chunked/N?seed=S      the same, without a Content-Length
    /gzip-bomb/N           N zero bytes, gzip encoded: small on the wire; with `gate=NAME` the last of them wait for it
    /coded/CODING/NAME     the bytes that the test stored as NAME in `origin.coded`, with that Content-Encoding; `&status=S` is
                           another status, `location=U` adds that field, `cut=N` sends the first N bytes
                           as if they were all, `framing=chunked` or `close` omits the Content-Length, `rate=N`
                           sends N bytes per second, `gate=NAME` holds back the last bytes until the test opens that gate
    /slow/SECONDS?bytes=N  sends nothing for this long, then as /bytes/N
    /gate/NAME?bytes=N     sends nothing until the test opens gate NAME, then as /bytes/N
    /first/COUNT/NAME?bytes=N  as /slow/0.02 for the first COUNT requests of any target, then as /gate/NAME
    /drip?bytes=N&seconds=S  N bytes spread evenly over S seconds
    /drip-head?bytes=N&seconds=S  a header in N even parts over S seconds, nearly all of it one line; then `ok`
    /steps/NAME/…?bytes=N  N bytes in one more even part than there are names: before each part but the first it
                           waits until the test opens the gate of that name
    /stall/BYTES           announces twice as many and one more, sends BYTES, then nothing; with `gate=NAME` it sends
                           nothing until the test opens that gate
    /cut/BYTES/OF          announces OF, sends BYTES, closes
    /hang                  accepts the request and sends nothing
    /reset                 resets the connection (RST)
    /garbage               responds with something that is not HTTP
    /status/CODE           that status and a body that names it; `?retry-after=S` adds the field
    /flaky/N?status=C      status C (503) the first N times, then as /bytes/1000: counted by whole target
    /redirect/N            N redirects, then a short body
    /redirect-to?url=U     one redirect to U; `&status=C` by status C (302)
    /loop/a, /loop/b       each redirects to the other, with the same query
    /parts/NAME            a file published by the test: in parts, broken off, changing (`parts.py`)
    /kept/NAME?cc=C        with `Cache-Control: C` and the ETag of the version that the test gave NAME (0): 304 if the request
                           has that tag, otherwise `bytes=N` bytes that depend on name and version. `vary=F` adds `Vary: F` and
                           makes the bytes depend on the value of F; `last-modified=D` adds that field
    /headers               the request as received by the origin, in JSON
    /set-cookie/COOKIE     as /headers, and sets that cookie (percent-decoded) for every path; with `?location=U` redirects to U
"""

import asyncio
import hashlib
import json
import socket
import struct
import urllib.parse
import zlib

PIECE = 64 * 1024
"""Size of the block that bodies repeat, so that a large one needs no memory."""

REASONS = {200: "OK", 204: "No Content", 302: "Found", 304: "Not Modified", 400: "Bad Request", 404: "Not Found",
           429: "Too Many Requests", 500: "Internal Server Error", 503: "Service Unavailable"}


class BadRequest(Exception):
    """The path names no fault, or is incomplete."""


def block(size, seed=""):
    """Returns the block that a body of `size` bytes repeats."""
    return hashlib.shake_128(f"{size}/{seed}".encode()).digest(min(size, PIECE))


def body(size, seed=""):
    """Returns the bytes of the response to `/bytes/SIZE?seed=SEED`."""
    whole = block(size, seed)
    return (whole * (size // PIECE + 1))[:size]


def head(status, fields, length=None):
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}"]
    lines += [f"{name}: {value}" for name, value in fields]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def plain(status, content, fields=()):
    return head(status, [("Content-Type", "text/plain"), *fields], len(content)) + content


async def answer(connection, request, origin):
    """Responds to `request` on `connection`. Returns whether another request may follow there."""
    name, *operands = request.path.strip("/").split("/")
    fault = FAULTS.get(name)
    if fault is None:
        raise BadRequest(f"no such path: {request.path}")
    try:
        return await fault(connection, request, origin, *operands)
    except (TypeError, ValueError, KeyError) as error:
        raise BadRequest(f"{request.target}: {error!r}") from error


async def bytes_(connection, request, _, size):
    size = int(size)
    await connection.send(head(200, [("Content-Type", "application/octet-stream")], size))
    if request.method != "HEAD":
        await send_body(connection, size, request.query.get("seed", ""))
    return True


async def send_body(connection, size, seed):
    piece = block(size, seed)
    for start in range(0, size, PIECE):
        await connection.send(piece[:size - start])


async def chunked(connection, request, _, size):
    size = int(size)
    await connection.send(head(200, [("Transfer-Encoding", "chunked")]))
    piece = block(size, request.query.get("seed", ""))
    for start in range(0, size, PIECE):
        part = piece[:size - start]
        await connection.send(f"{len(part):x}\r\n".encode() + part + b"\r\n")
    await connection.send(b"0\r\n\r\n")
    return True


async def gzip_bomb(connection, request, origin, size):
    await connection.send(head(200, [("Content-Encoding", "gzip"), ("Connection", "close")]))
    encoder = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(1 << 20)
    for start in range(0, int(size), len(zeros)):
        await connection.send(encoder.compress(zeros[:int(size) - start]))
        await asyncio.sleep(0)
    if "gate" in request.query:
        await origin.gate(request.query["gate"]).wait()
    await connection.send(encoder.flush())
    return False


async def coded(connection, request, origin, coding, name):
    query = request.query
    content = origin.coded[name]
    content = content[:int(query.get("cut", len(content)))]
    framing = query.get("framing", "length")
    fields = [("Content-Encoding", coding), ("Content-Type", "text/plain"), ("Cache-Control", query.get("cc", "no-store"))]
    fields += [("Location", query["location"])] if "location" in query else []
    fields += {"length": [], "chunked": [("Transfer-Encoding", "chunked")], "close": [("Connection", "close")]}[framing]
    await connection.send(head(int(query.get("status", 200)), fields, len(content) if framing == "length" else None))
    rate = int(query["rate"]) if "rate" in query else None
    step = max(1, rate // 50) if rate else max(1, len(content))
    held = 1 if "gate" in query else 0
    for start in range(0, len(content) - held, step):
        await send_framed(connection, content[start:min(start + step, len(content) - held)], framing)
        if rate:
            await pace(1 / 50)
    if held:
        await origin.gate(query["gate"]).wait()
        await send_framed(connection, content[-held:], framing)
    if framing == "chunked":
        await connection.send(b"0\r\n\r\n")
    return framing != "close"


async def send_framed(connection, data, framing):
    if data:
        await connection.send(f"{len(data):x}\r\n".encode() + data + b"\r\n" if framing == "chunked" else data)


async def slow(connection, request, origin, seconds):
    await asyncio.sleep(float(seconds))
    return await bytes_(connection, request, origin, request.query.get("bytes", 100))


async def gate(connection, request, origin, name):
    await origin.gate(name).wait()
    return await bytes_(connection, request, origin, request.query.get("bytes", 100))


async def first(connection, request, origin, count, name):
    if request.turn <= int(count):
        return await slow(connection, request, origin, 0.02)
    return await gate(connection, request, origin, name)


async def drip(connection, request, _):
    size, seconds = int(request.query["bytes"]), float(request.query["seconds"])
    whole = body(size, request.query.get("seed", ""))
    steps = max(1, min(size, int(seconds * 20)))
    await connection.send(head(200, [], size))
    for step in range(steps):
        await connection.send(whole[size * step // steps:size * (step + 1) // steps])
        await asyncio.sleep(seconds / steps)
    return True


async def steps(connection, request, origin, *gates):
    whole = body(int(request.query["bytes"]), request.query.get("seed", ""))
    ends = [len(whole) * part // (len(gates) + 1) for part in range(len(gates) + 2)]
    await connection.send(head(200, [], len(whole)) + whole[:ends[1]])
    for gate, start, end in zip(gates, ends[1:], ends[2:]):
        await origin.gate(gate).wait()
        await connection.send(whole[start:end])
    return True


async def stall(connection, request, origin, size):
    size = int(size)
    if "gate" in request.query:
        await origin.gate(request.query["gate"]).wait()
    await connection.send(head(200, [], 2 * size + 1))
    await send_body(connection, size, request.query.get("seed", ""))
    await forever()


async def cut(connection, request, _, size, promised):
    await connection.send(head(200, [], int(promised)))
    await send_body(connection, int(size), request.query.get("seed", ""))
    return False


async def drip_head(connection, request, _):
    count, seconds = int(request.query["bytes"]), float(request.query["seconds"])
    whole = head(200, [("X-Drip", "x" * 2 * count)], 2)
    for part in range(count):
        await connection.send(whole[len(whole) * part // count:len(whole) * (part + 1) // count])
        await pace(seconds / count)
    await connection.send(b"ok")
    return True


async def hang(*_):
    await forever()


async def pace(seconds):
    """Waits for this time before the next bytes."""
    await asyncio.sleep(seconds)


async def forever():
    await asyncio.get_running_loop().create_future()


async def reset(connection, *_):
    raw = connection.transport.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.transport.abort()
    return False


async def garbage(connection, *_):
    await connection.send(b"\x16\x03\x01 this is not HTTP \xff\xfe\r\n\r\n")
    return False


async def status(connection, request, _, code):
    code = int(code)
    fields = [("Retry-After", request.query["retry-after"])] if "retry-after" in request.query else []
    if code in (204, 304):
        await connection.send(head(code, fields))
    else:
        await connection.send(plain(code, f"the origin answers {code}\n".encode(), fields))
    return True


async def flaky(connection, request, origin, times):
    if origin.count(request.target) <= int(times):
        return await status(connection, request, origin, request.query.get("status", "503"))
    return await bytes_(connection, request, origin, 1000)


async def redirect(connection, _request, _origin, times):
    if int(times) == 0:
        await connection.send(plain(200, b"arrived\n"))
    else:
        await go_to(connection, f"/redirect/{int(times) - 1}")
    return True


async def redirect_to(connection, request, _):
    await go_to(connection, request.query["url"], int(request.query.get("status", 302)))
    return True


async def loop(connection, request, _origin, side):
    await go_to(connection, with_query(request, "/loop/b" if side == "a" else "/loop/a"))
    return True


def with_query(request, path):
    return path + request.target[len(request.path):]


async def go_to(connection, location, status=302):
    await connection.send(plain(status, b"elsewhere\n", [("Location", location)]))


async def headers(connection, request, _, fields=()):
    seen = {"method": request.method, "target": request.target, "headers": request.headers,
            "body": request.body.decode("latin-1")}
    await connection.send(plain(200, json.dumps(seen).encode(), fields))
    return True


async def set_cookie(connection, request, origin, cookie):
    fields = [("Set-Cookie", f"{urllib.parse.unquote(cookie)}; Path=/")]
    if "location" in request.query:
        await connection.send(plain(302, b"elsewhere\n", [*fields, ("Location", request.query["location"])]))
        return True
    return await headers(connection, request, origin, fields)


async def parts_(connection, request, origin, name):
    from . import parts
    return await parts.answer(connection, request, origin, name)


async def kept(connection, request, origin, name):
    query = request.query
    version = origin.versions.get(name, 0)
    tag = f'"{version}"'
    fields = [("Cache-Control", query["cc"])] if "cc" in query else []
    fields += [("ETag", tag), *((field, query[field]) for field in ("vary", "last-modified") if field in query)]
    if request.headers.get("if-none-match") == tag:
        await connection.send(head(304, fields))
        return True
    content = body(int(query.get("bytes", 100)), kept_seed(name, version, request.headers.get(query.get("vary"), "")))
    await connection.send(head(200, fields, len(content)))
    if request.method != "HEAD":
        await connection.send(content)
    return True


def kept_seed(name, version=0, variant=""):
    """Returns the seed of the bytes of `/kept/NAME`."""
    return f"{name}/{version}/{variant}"


FAULTS = {
    "bytes": bytes_, "chunked": chunked, "gzip-bomb": gzip_bomb, "coded": coded, "slow": slow, "gate": gate, "first": first,
    "drip": drip, "drip-head": drip_head, "steps": steps, "stall": stall, "cut": cut, "hang": hang, "reset": reset, "garbage": garbage, "status": status,
    "flaky": flaky,
    "redirect": redirect, "redirect-to": redirect_to, "loop": loop,
    "headers": headers, "set-cookie": set_cookie, "parts": parts_, "kept": kept,
}
