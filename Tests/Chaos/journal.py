"""Journals of clients as values. Each line begins with milliseconds of the monotonic clock:

    request NAME HANDLER URL      it is about to send this request
    end NAME BROKER CODE STATUS LENGTH STATED READ GENERATION
                                  the end of a request. CODE is `-` for a result, STATED the SHA-256 of the terminal,
                                  READ that of the bytes read, GENERATION the one that the origin stated
    received HANDLER REQUEST NAME WORD BROKER
                                  the library delivered a terminal, of its own or of a watched handler
    drop NAME                     it is about to cancel or remove the request
    cancelled NAME                the broker answered that
    remove PATTERN, removed PATTERN COUNT
    refused NAME CODE             the broker refused the message
    lost NAME                     the file of the body was missing before it was read; the request is repeated
    watch PATTERN, unwatch PATTERN, state WORDS
    idle                          all requests have ended
    bye                           it leaves
"""

from dataclasses import dataclass

WORDS = {"request": 3, "end": 8, "received": 5, "drop": 1, "cancelled": 1, "remove": 1, "removed": 2, "refused": 2, "lost": 1,
         "watch": 1, "unwatch": 1, "idle": 0, "bye": 0}
"""Number of words after each verb; other verbs have any number."""


@dataclass(frozen=True)
class Line:
    """One line. `at` is in seconds."""

    at: float
    verb: str
    words: tuple
    client: str

    def __str__(self):
        return f"{self.at:.3f} {self.client}: {self.verb} {' '.join(self.words)}"


@dataclass(frozen=True)
class End:
    """The end of a request. `code` is None for a result."""

    line: Line
    code: str | None
    status: str
    length: int
    stated: str
    read: str
    generation: str
    broker: str

    @classmethod
    def of(cls, line):
        _, broker, code, status, length, stated, read, generation = line.words
        return cls(line, None if code == "-" else code, status, int(length), stated, read, generation, broker)


def read(path, client):
    """Returns the complete lines of a journal; the last line of a killed client may be partial."""
    lines = []
    for text in path.read_text().split("\n")[:-1] if path.exists() else []:
        at, verb, *words = text.split(" ")
        if len(words) != WORDS.get(verb, len(words)):
            raise ValueError(f"{path.name}: not a line of a journal: {text}")
        lines.append(Line(int(at) / 1000, verb, tuple(words), client))
    return lines
