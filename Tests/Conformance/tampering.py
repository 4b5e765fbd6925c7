"""Fault injection: one fault in a stream of messages, which a scenario must notice."""

import copy

KINDS = ("drop", "duplicate", "swap", "change")


class Tampering:
    """Applies the fault to the message of this number, from 1. WELCOME and PROGRESS do not count: PROGRESS may be lost and
    repeated."""

    def __init__(self, kind, number=1):
        if kind not in KINDS:
            raise ValueError(f"a stream can be broken by {', '.join(KINDS)}, not by {kind}")
        self._kind = kind
        self._left = number
        self._kept = {}
        self.done = False

    def read(self, stream, read):
        """Returns the next message of `stream`, read with `read`."""
        if kept := self._kept.pop(stream, None):
            return kept
        received = read()
        if received is None or received.line.lower().startswith(("welcome ", "progress ")):
            return received
        self._left -= 1
        if self._left:
            return received
        self.done = True
        if self._kind == "drop":
            return read()
        if self._kind == "duplicate":
            self._kept[stream] = received
        elif self._kind == "swap":
            next_one = read()
            if next_one is None:
                return None
            self._kept[stream], received = received, next_one
        else:
            received = copy.copy(received)
            verb, _, rest = received.line.partition(" ")
            received.line = f"{verb} x{rest}" if rest else f"{verb}x"
        return received

    def left(self):
        """Returns messages held back by the fault."""
        return list(self._kept.values())


class Untouched:
    """No fault."""

    done = False

    def read(self, _stream, read):
        return read()

    def left(self):
        return []
