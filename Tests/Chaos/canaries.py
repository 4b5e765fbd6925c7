"""Deliberate faults of a chaos run. The judge must find each.

The canaries of `PENS` falsify a client's journal; those of `RUNS` are faults of the runner.
"""

RUNS = {
    "ghost": "something is fetched that nobody wants any more",
    "descriptors": "the broker has connections in the end that it did not have before",
    "ledger": "the broker's ledger has one answer more than it sent",
    "forgetful": "the broker's ledger, even as it is, lacks what clients received from it",
    "origin": "the origin's ledger lacks what it answered",
}
"""Faults of the runner, by name."""

EVERY = 7
"""A canary falsifies one of this many lines that it could falsify."""


class Crooked:
    """A pen that falsifies its lines."""

    def __init__(self, pen, change):
        self._pen = pen
        self._change = change
        self._count = 0

    def note(self, verb, *words):
        for line in self._change(self, verb, list(words)):
            self._pen.note(*line)

    def turn(self):
        """Whether this line must be falsified."""
        self._count += 1
        return self._count % EVERY == 0


def silent(pen, verb, words):
    """Acknowledges a terminal without writing it down."""
    return [] if verb == "end" and pen.turn() else [(verb, *words)]


def double(pen, verb, words):
    """Records an end twice."""
    return [(verb, *words)] * (2 if verb == "end" and pen.turn() else 1)


def delivered_twice(pen, verb, words):
    """Records a terminal twice that the library delivered once."""
    return [(verb, *words)] * (2 if verb == "received" and pen.turn() else 1)


def lied_hash(pen, verb, words):
    """Records another hash of the bytes read."""
    if verb == "end" and words[6] != "-" and pen.turn():
        words[6] = "0" * 64
    return [(verb, *words)]


def unrequested(pen, verb, words):
    """Records an end of a request that it never made."""
    extra = [("end", "999.9-9", *words[1:])] if verb == "end" and pen.turn() else []
    return [(verb, *words), *extra]


def wrong_code(pen, verb, words):
    """Records a failure that no disturbance explains."""
    if verb == "end" and words[2] == "-" and pen.turn():
        words[2:] = ["internal", "-", 0, "-", "-", "-"]
    return [(verb, *words)]


def after_removal(pen, verb, words):
    """Records a terminal of a request after its removal."""
    if verb == "drop":
        pen.dropped = words[0]
    if verb in ("removed", "cancelled") and getattr(pen, "dropped", None):
        return [(verb, *words), ("received", "chaos/x", "9", pen.dropped, "200", "-")]
    return [(verb, *words)]


PENS = {"silent": silent, "double": double, "delivered-twice": delivered_twice, "lied-hash": lied_hash, "unrequested": unrequested,
        "wrong-code": wrong_code, "after-removal": after_removal}

NAMES = [*PENS, *RUNS]


def pen(name, honest):
    """Returns the pen of a client with this canary."""
    return Crooked(honest, PENS[name]) if name in PENS else honest
