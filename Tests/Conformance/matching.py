"""Matching of scenario lines with received messages: wild cards, captures and remarks in square brackets."""

import json
import re
import urllib.parse

from support.faults import body

_MARK = re.compile(r"\*|\$[a-z][a-z-]*")
_BYTES = re.compile(r"/bytes/\d+(\?seed=\w+)?")


class Mismatch(AssertionError):
    """The received message differs from the expected one."""


class Received:
    """A message as scenarios see it: first line, fields, HTTP fields and body."""

    def __init__(self, line, fields=None, headers=(), body=None):
        self.line = line
        self.fields = fields or {}
        self.headers = headers
        self.body = body

    def content(self):
        """Returns the body, from frame 2 or from its file."""
        if "file" in self.fields:
            with open(self.fields["file"], "rb") as file:
                return file.read()
        return self.body or b""

    def __repr__(self):
        lines = [self.line, *(f"    {name}: {value}" for name, value in self.fields.items())]
        if self.body is not None:
            lines.append(f"    [body is {self.body[:200]!r}]")
        return "\n".join(lines)


class Names:
    """Captured texts by name."""

    def __init__(self, **known):
        self.known = known

    def fill(self, text):
        """Returns `text` with each name replaced by its text."""
        def value(match):
            if match[0] == "*":
                return "*"
            name = match[0][1:]
            if name not in self.known:
                raise Mismatch(f"${name} stands for nothing yet")
            return self.known[name]
        return _MARK.sub(value, text)

    def match(self, pattern, text):
        """Whether `text` matches `pattern`. A new name captures the text at its place."""
        expression, position, found = "", 0, {}
        for mark in _MARK.finditer(pattern):
            expression += re.escape(pattern[position:mark.start()])
            position = mark.end()
            name = mark[0][1:]
            if mark[0] == "*":
                expression += ".*"
            elif name in self.known:
                expression += re.escape(self.known[name])
            else:
                group = f"g{len(found)}"
                found[group] = name
                expression += f"(?P<{group}>[^ ]+)"
        match = re.fullmatch(expression + re.escape(pattern[position:]), text)
        if match:
            self.known.update({name: match[group] for group, name in found.items()})
        return bool(match)


def bytes_of(text):
    """Returns the bytes of `[body is …]`: those of the test server for a path, otherwise the text itself."""
    if _BYTES.fullmatch(text):
        path, _, query = text.partition("?")
        return body(int(path.rpartition("/")[2]), urllib.parse.parse_qs(query).get("seed", [""])[0])
    return text.replace("\\n", "\n").encode()


def compare(step, names, received):
    """Raises `Mismatch` unless the received message matches the step."""
    def fail(why):
        raise Mismatch(f"{step.location}: expected\n    {step.line}\n{why}; received\n    {received}")

    if not names.match(step.text, received.line):
        fail("another message")
    in_http = False
    for line in step.below:
        if line.startswith("["):
            in_http = in_http or line == "[http]"
            if line != "[http]" and not _remark_holds(line, names, received):
                fail(f"not so: {line}")
            continue
        name, _, value = line.partition(": ")
        values = [found for key, found in received.headers if key.lower() == name] if in_http else [received.fields.get(name)]
        if not any(found is not None and names.match(value, found.strip()) for found in values):
            fail(f"{name} is {values}")


def _remark_holds(remark, names, received):
    what, _, text = remark[1:].removesuffix("]").partition(" ")
    if what == "body":
        verb, _, rest = text.partition(" ")
        if verb == "is":
            return received.content() == bytes_of(names.fill(rest))
        if verb == "holds":
            return names.fill(rest).encode() in received.content()
    if remark == "[no body]":
        return not received.body and "file" not in received.fields
    if what == "without":
        return text not in received.fields
    if what == "json":
        path, _, value = text.partition(" ")
        found = json.loads(received.content())
        for part in path.split("."):
            found = found[int(part)] if part.isdigit() else found.get(part) if isinstance(found, dict) else None
        return names.match(value, found if isinstance(found, str) else json.dumps(found))
    raise Mismatch(f"nobody knows what {remark} means")
