"""Ways to break a chaos run on purpose: each must be found by the judge.

Those of `PENS` are a client's that writes into its journal what is not so; those of `RUNS` are the runner's.
"""

RUNS = {
    "ghost": "something is fetched that nobody wants any more",
    "descriptors": "the broker has connections in the end that it did not have before",
    "ledger": "the broker's ledger has one answer more than it told of",
    "forgetful": "the broker's ledger, even as it is, lacks what clients heard of it",
    "origin": "the origin's ledger lacks what it answered",
}
"""What is broken by each, in the runner."""

EVERY = 7
"""Of so many lines that a canary could break it breaks one."""


class Crooked:
    """A pen that does not write what it is told."""

    def __init__(self, pen, change):
        self._pen = pen
        self._change = change
        self._count = 0

    def note(self, verb, *words):
        for line in self._change(self, verb, list(words)):
            self._pen.note(*line)

    def turn(self):
        """Whether it is time."""
        self._count += 1
        return self._count % EVERY == 0


def silent(pen, verb, words):
    """Acknowledges without writing it down."""
    return [] if verb == "end" and pen.turn() else [(verb, *words)]


def double(pen, verb, words):
    """Has a terminal twice."""
    return [(verb, *words)] * (2 if verb == "end" and pen.turn() else 1)


def twice_heard(pen, verb, words):
    """Hears a terminal twice that the library delivers once."""
    return [(verb, *words)] * (2 if verb == "heard" and pen.turn() else 1)


def lied_hash(pen, verb, words):
    """Has read other bytes."""
    if verb == "end" and words[6] != "-" and pen.turn():
        words[6] = "0" * 64
    return [(verb, *words)]


def unasked(pen, verb, words):
    """Has an answer to what it never asked for."""
    extra = [("end", "999.9-9", *words[1:])] if verb == "end" and pen.turn() else []
    return [(verb, *words), *extra]


def wrong_code(pen, verb, words):
    """Has a failure that nothing explains."""
    if verb == "end" and words[2] == "-" and pen.turn():
        words[2:] = ["internal", "-", 0, "-", "-", "-"]
    return [(verb, *words)]


def after_removal(pen, verb, words):
    """Hears of what it has removed."""
    if verb == "drop":
        pen.dropped = words[0]
    if verb in ("removed", "cancelled") and getattr(pen, "dropped", None):
        return [(verb, *words), ("heard", "chaos/x", "9", pen.dropped, "200", "-")]
    return [(verb, *words)]


PENS = {"silent": silent, "double": double, "twice-heard": twice_heard, "lied-hash": lied_hash, "unasked": unasked,
        "wrong-code": wrong_code, "after-removal": after_removal}

NAMES = [*PENS, *RUNS]


def pen(name, honest):
    """The pen of a client that has this canary."""
    return Crooked(honest, PENS[name]) if name in PENS else honest
