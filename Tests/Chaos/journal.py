"""What clients wrote down, as values. The lines of a journal, each after the milliseconds of the monotonic clock:

    ask NAME HANDLER URL          it is about to ask for this
    end NAME BROKER CODE STATUS LENGTH TOLD READ GENERATION
                                  the one end: CODE is `-` of a result, TOLD the SHA-256 that the broker says, READ that
                                  of the bytes as they were read, GENERATION the one that the origin says
    heard HANDLER REQUEST NAME WORD BROKER
                                  a terminal came out of the client's library, its own or one that it watches
    drop NAME                     it is about to say that it no longer wants this
    cancelled NAME                that was answered
    remove PATTERN, removed PATTERN COUNT
    refused NAME CODE             the broker says that it was no request
    lost NAME                     the file of its body was gone before it was read; it is asked for again
    watch PATTERN, unwatch PATTERN, state WORDS
    idle                          all that was asked for has ended
    bye                           it leaves
"""

from dataclasses import dataclass

WORDS = {"ask": 3, "end": 8, "heard": 5, "drop": 1, "cancelled": 1, "remove": 1, "removed": 2, "refused": 2, "lost": 1,
         "watch": 1, "unwatch": 1, "idle": 0, "bye": 0}
"""How many words follow each verb; those that are not here have any number."""


@dataclass(frozen=True)
class Line:
    """One fact. `at` is in seconds."""

    at: float
    verb: str
    words: tuple
    client: str

    def __str__(self):
        return f"{self.at:.3f} {self.client}: {self.verb} {' '.join(self.words)}"


@dataclass(frozen=True)
class End:
    """How a wish ended. `code` is None of a result."""

    line: Line
    code: str | None
    status: str
    length: int
    told: str
    read: str
    generation: str
    broker: str

    @classmethod
    def of(cls, line):
        _, broker, code, status, length, told, read, generation = line.words
        return cls(line, None if code == "-" else code, status, int(length), told, read, generation, broker)


def read(path, client):
    """The whole lines of a journal; the last one of a killed client may have been cut off."""
    lines = []
    for text in path.read_text().split("\n")[:-1] if path.exists() else []:
        at, verb, *words = text.split(" ")
        if len(words) != WORDS.get(verb, len(words)):
            raise ValueError(f"{path.name}: not a line of a journal: {text}")
        lines.append(Line(int(at) / 1000, verb, tuple(words), client))
    return lines
