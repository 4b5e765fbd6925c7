"""Core of a client: its pending requests, questions and subscriptions, across connections and brokers.

Pure: each event is a method that returns a list of actions. After each WELCOME the core repeats its state: first the
unanswered removals, then the subscriptions, the pending requests, and the other unanswered questions. Request IDs are
never reused, so a terminal belongs to a pending request or to none.

Each message has a number, which its answer names. With a lease, WELCOME can resume the session. Then the core repeats
only messages that the broker has not received. It recognizes redelivered terminals by their `seq`, and the broker sends
lost answers again.
"""

from __future__ import annotations

import enum
import functools
import itertools
import time
from collections import Counter, deque
from dataclasses import dataclass
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeAlias

from ._messages import Bodies, Fetch, Message, decimal, decode, encode, legible, matches
from ._pulling import OPEN_READS, Pull, Pulls

MOST_LOSSES = 3
"""Maximum number of repetitions of a request whose file vanished before it could be opened."""
FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.5
"""Exponential backoff in seconds after a connection that failed or ended without a WELCOME."""

MOST_NOTICES = 1000
"""Maximum number of messages that OK answers and that wait for a connection. With more the core gives up the session."""
MOST_OPEN = 256
"""Maximum number of unanswered messages, without FETCH and QUERY: the broker keeps as many answers. Further messages
wait."""
MOST_REFUSALS = 20
"""Maximum number of refusals `session-in-use` before the core starts a new session."""

Key = tuple[str, str]
"""Handler and request ID."""
DeliveryID = tuple[int, int]
"""Number of the session, and `seq` of the terminal."""


class Send(NamedTuple):
    """Sends a head."""

    head: bytes
    number: int = 0
    """Number of the message in the session; 0 for HELLO, ACK and READ, which have none."""


class Deliver(NamedTuple):
    """Delivers a terminal to the caller, if `wanted`, and to the watches. Each recipient calls `finish`."""

    id: DeliveryID
    terminal: Message
    wanted: bool
    watches: tuple[int, ...]


class Store(NamedTuple):
    """Stores a part of a body that is read by READ, until its terminal is delivered."""

    id: DeliveryID
    offset: int
    data: bytes


@dataclass(frozen=True)
class Discard:
    """Drops the stored parts of a body."""

    id: DeliveryID


@dataclass(frozen=True)
class Report:
    """Reports progress of a pending request."""

    key: Key
    received: int
    total: int | None


@dataclass(frozen=True)
class Resolve:
    """Ends a question with its answer; None if the answer is no longer relevant."""

    token: int
    answer: Message | None


@dataclass(frozen=True)
class Refuse:
    """Ends a request that the broker rejected."""

    key: Key
    code: str
    detail: str


@dataclass(frozen=True)
class Drop:
    """Ends requests as removed."""

    keys: tuple[Key, ...]
    detail: str


@dataclass(frozen=True)
class Greeted:
    """Reports the WELCOME of a broker."""

    broker: str


@dataclass(frozen=True)
class Reopen:
    """Closes the connection, and opens another one after some seconds."""

    after: float


@dataclass(frozen=True)
class Drain:
    """The broker ends after its running transfers. Another bus may take over."""


@dataclass(frozen=True)
class CloseBus:
    """Closes the bus, because the broker rejected the session."""

    code: str
    detail: str


@dataclass(frozen=True)
class Note:
    """Logs a warning."""

    text: str


Action: TypeAlias = (Send | Deliver | Store | Discard | Report | Resolve | Refuse | Drop | Greeted | Reopen | Drain | CloseBus
                     | Note)


class Phase(enum.Enum):
    """State of the connection: `DISCONNECTED -> GREETING -> READY`, from both back. `USELESS` is final."""

    DISCONNECTED = enum.auto()
    GREETING = enum.auto()
    READY = enum.auto()
    USELESS = enum.auto()


class _Wanted:
    __slots__ = ("fetch", "number", "order", "since", "was_sent")

    def __init__(self, fetch: Fetch, order: int, now: float) -> None:
        self.fetch = fetch
        self.order = order
        self.since = now
        """Time of its creation. The next broker learns the age of a request."""
        self.was_sent = False
        self.number = 0
        """Number of its message in the session; 0 if not sent."""

    def take_head(self, now: float) -> bytes:
        again, self.was_sent = self.was_sent, True
        return self.fetch.encode(again, int(1000 * (now - self.since)))


@dataclass(frozen=True)
class _Question:
    token: int
    verb: str
    operands: tuple[str, ...]
    survives: bool
    after: str | None = None

    def head(self) -> bytes:
        return encode(self.verb, *self.operands, fields=() if self.after is None else (("after", self.after),))


class Query(NamedTuple):
    """Subject of a QUERY, and the start of a page of its table; None: the first page."""

    subject: tuple[str, ...]
    after: str | None = None


def pages(subject: tuple[str, ...]) -> Generator[Query, dict[str, Any], dict[str, Any]]:
    """Generates the questions of a QUERY: the QUERY itself, then those for further pages of its tables.

    Receives their answers, and returns the complete answer.
    """
    found = yield Query(subject)
    for name in ("handlers", "origins", "workers", "settings"):
        while (after := found.pop(f"{name}-next", None)) is not None:
            page = yield Query((name,), after)
            found[name] += page[name]
            if f"{name}-next" in page:
                found[f"{name}-next"] = page[f"{name}-next"]
    return found


_ANSWERS = {"REMOVED", "ANSWER", "CHANGED", "ACCEPTED"}


class Core:
    """State machine of one client.

    `window`: maximum number of unacknowledged terminals, 1 to 4096. `lease`: seconds for which the broker keeps the session of a broken connection, 0 to 3600.
    `bodies`: `pull` to read bodies in files by READ. A broker may impose it. `reads`: number of READs without an answer.
    """

    def __init__(self, window: int = 256, lease: float = 0,
                 bodies: Bodies = "path", reads: int = OPEN_READS, clock: Callable[[], float] = time.monotonic) -> None:
        if not 1 <= window <= 4096:
            raise ValueError(f"a window is from 1 to 4096, not {window}")
        if not 0 <= lease <= 3600:
            raise ValueError(f"a lease is from 0 to 3600 seconds, not {lease}")
        if bodies not in ("path", "pull"):
            raise ValueError(f"bodies are 'path' or 'pull', not {bodies!r}")
        self._hello: list[tuple[str, object]] = [("window", window)]
        if lease:
            self._hello.append(("lease", f"{lease:.3f}"))
        if bodies == "pull":
            self._hello.append(("bodies", bodies))
        self._clock = clock
        self._pulls = Pulls(reads)
        self._session: str | None = None
        self._refusals = 0
        self._last_number = 0
        """Number of the last message in the session."""
        self._answered_last = 0
        """Highest number with an answer."""
        self._open: dict[int, None] = {}
        """Numbers without an answer that count, in their order."""
        self._ownerless: set[int] = set()
        """Questions without a caller that waits for the answer."""
        self._message_numbers: dict[int, int] = {}
        """Numbers of questions by token, and the other way round."""
        self._tokens: dict[int, int] = {}
        self._fetches: dict[int, Key] = {}
        """Pending requests by the numbers of their messages, because an ERROR names only the number."""
        self._notices: deque[tuple[int, bytes]] = deque()
        """Messages that the broker may not have received and that OK answers, with their numbers."""
        self._held: deque[Send] = deque()
        """Messages that wait for the answers to earlier ones."""
        self.phase = Phase.DISCONNECTED
        self.draining = False
        self._failures = 0
        self._count = 0
        self._wanted: dict[str, dict[str, _Wanted]] = {}
        self._questions: dict[int, _Question] = {}
        self._ending: Counter[tuple[str, ...]] = Counter()
        self._watches: dict[int, str] = {}
        self._link = 0
        self._seen = self._acknowledged = 0
        self._unfinished: dict[int, int] = {}

    # The connection.

    def opened(self) -> list[Action]:
        """Handles the start of a connection. Messages wait until its handshake is complete."""
        if self._session is None:
            self._reset()
        self.phase = Phase.GREETING
        unanswered = min(next(iter(self._open), self._last_number + 1), self._answered_last + 1)
        token = [("token", self._session), ("unanswered", unanswered)] if self._session else []
        return [Send(encode("HELLO", "EAR/1", fields=(*self._hello, *token)))]

    def lost(self, is_torn: bool = False) -> list[Action]:
        """Handles the end of a connection. The session ends with it, unless there is a lease.

        `is_torn`: the count of sent messages is wrong after an interrupt, so the session cannot be resumed.
        """
        if self.phase is Phase.USELESS:
            return []
        if is_torn or len(self._notices) > MOST_NOTICES:
            self._session = None
        self._held.clear()
        pause = 0.0
        if self.phase is not Phase.READY:
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(self._failures, 10))
            self._failures += 1
        self.draining = False
        if self._session is None:
            self._reset()
        self.phase = Phase.DISCONNECTED
        unanswered = [question for question in self._questions.values()
                 if not question.survives and question.token not in self._ownerless]
        return [*(self._disown(question) for question in unanswered), Reopen(pause)]

    def received(self, frames: list[bytes]) -> list[Action]:
        """Handles a message from the broker."""
        return self._pace(self._handle(frames))

    def _handle(self, frames: list[bytes]) -> list[Action]:
        try:
            message = decode(frames)
        except ValueError as error:
            part = legible(frames)
            return [*self._malformed(part, self._question_of(part)), Note(str(error))]
        question = self._question_of(message)
        if message.verb in ("RESULT", "FAILED"):
            return self._terminal(message, question)
        if message.verb == "DATA":
            return self._data(message)
        if message.verb in _ANSWERS:
            return self._answered(message, question)
        if message.verb == "PROGRESS":
            return self._progress(message)
        if message.verb == "WELCOME":
            return self._welcomed(message)
        if message.verb == "ERROR":
            return self._refused(message, question)
        if message.verb == "OK":
            return []
        if message.field("reason") == "draining":
            self.draining = True
            return [Drain()]
        return self.lost()

    def may_move(self) -> bool:
        """Returns whether the broker drains and another bus can take over: no body is being read."""
        return self.draining and not self._pulls.all()

    def unacknowledged(self) -> int:
        """Returns the number of terminals that can be acknowledged."""
        if self.phase is not Phase.READY:
            return 0
        return self._finished() - self._acknowledged

    def acknowledge(self) -> list[Action]:
        """Acknowledges all finished terminals with one ACK."""
        if self.unacknowledged() <= 0:
            return []
        self._acknowledged = self._finished()
        return self._pace([Send(encode("ACK", str(self._acknowledged)))])

    # Calls of the application.

    def fetch(self, fetch: Fetch) -> list[Action]:
        """Starts a request."""
        actions: list[Action] = []
        if fetch.replace:
            actions += self._forget(fetch.handler, "it was replaced")
        self._count += 1
        wanted = _Wanted(fetch, self._count, self._clock())
        self._wanted.setdefault(fetch.handler, {})[fetch.request] = wanted
        if self.phase is Phase.READY and not self.draining:
            actions.append(self._send_fetch(wanted, wanted.since))
        return self._pace(actions)

    def cancel(self, key: Key, token: int) -> list[Action]:
        """Cancels one request, of this or another client."""
        mine = self._take(key)
        if mine is not None and not mine.number and self.phase is not Phase.READY:
            # The broker does not know the request. While disconnected such messages would accumulate without bound.
            return [Drop((key,), "it was cancelled"), Resolve(token, None)]
        actions = self._drop_pulls(lambda name: name == key)
        actions += self._pace(self._start_question(_Question(token, "REMOVE", key, survives=True)))
        return [Drop((key,), "it was cancelled"), *actions] if mine else actions

    def remove(self, pattern: str, token: int, survives: bool) -> list[Action]:
        """Removes the handlers that match `pattern`.

        `survives`: the caller waits for the next broker if the connection ends. Otherwise the end of the connection
        ends the question, and a removal without a connection is not sent. A removal without an answer is repeated
        in any case.
        """
        actions = self._forget(pattern, "its handler was removed")
        actions += self._start_question(_Question(token, "REMOVE", (pattern,), survives))
        actions += [action for head in self._subscribing_again(pattern) for action in self._send_notice(head)]
        return self._pace(actions)

    def command(self, token: int, verb: str, *operands: str) -> list[Action]:
        """Sends a QUERY, a SET or a RETRY."""
        return self._pace(self._start_question(_Question(token, verb, operands, survives=True)))

    def query(self, question: Query, token: int) -> list[Action]:
        """Sends a QUERY, possibly for a further page of a table."""
        page = _Question(token, "QUERY", question.subject, survives=True, after=question.after)
        return self._pace(self._start_question(page))

    def watch(self, token: int, pattern: str) -> list[Action]:
        """Starts a watch."""
        known = pattern in self._watches.values()
        self._watches[token] = pattern
        return [] if known else self._pace(self._send_notice(encode("SUBSCRIBE", pattern)))

    def unwatch(self, token: int) -> list[Action]:
        """Ends a watch. The subscription stays if another watch or a pending request needs it."""
        pattern = self._watches.pop(token, None)
        needed = pattern is None or pattern in self._watches.values() or pattern in self._wanted
        return [] if needed else self._pace(self._send_notice(encode("UNSUBSCRIBE", str(pattern))))

    def prioritize(self, key: Key, priority: str) -> list[Action]:
        """Changes the priority of a pending request."""
        wanted = self._wanted.get(key[0], {}).get(key[1])
        if wanted is None:
            return []
        wanted.fetch = wanted.fetch.prioritized(priority)
        return self._pace(self._send_notice(encode("PRIORITY", *key, priority))) if wanted.was_sent else []

    def finish(self, id: DeliveryID) -> None:
        """Notes that one recipient released a terminal. Ignores terminals of an earlier session."""
        link, sequence = id
        if link != self._link or sequence not in self._unfinished:
            return
        self._unfinished[sequence] -= 1
        if not self._unfinished[sequence]:
            del self._unfinished[sequence]

    def wants(self, key: Key) -> bool:
        """Returns whether a request is pending."""
        return key[1] in self._wanted.get(key[0], {})

    def is_unanswered(self, token: int) -> bool:
        """Returns whether a question is unanswered."""
        return token in self._questions

    # Messages of the broker.

    def _welcomed(self, message: Message) -> list[Action]:
        if self.phase is not Phase.GREETING:
            return [Note("unexpected WELCOME from the broker")]
        self.phase, self._failures, self._refusals = Phase.READY, 0, 0
        actions: list[Action] = [Greeted(message.field("broker") or "")]
        everything = [wanted for requests in self._wanted.values() for wanted in requests.values()]
        everything.sort(key=lambda wanted: wanted.order)
        received = message.number("resumed")
        if received is not None:
            if self._session is None:
                return self.lost()  # Too many notices since HELLO: the resumed session does not know them.
            return actions + self._resumed(received, everything)
        if self._session is not None:
            self._reset()
        self._restart_numbering(0)
        self._session = message.field("token")
        # After a subscription or a request a removal would end it.
        removals = [question for question in self._questions.values() if question.verb == "REMOVE"]
        others = [question for question in self._questions.values() if question.verb != "REMOVE"]
        actions += [self._send_question(question) for question in removals]
        for pattern in sorted(set(self._watches.values())):
            actions.append(self._notify(encode("SUBSCRIBE", pattern)))
        actions += [self._send_fetch(wanted) for wanted in everything]
        actions += [self._send_question(question) for question in others]
        return actions

    def _resumed(self, received: int, everything: list[_Wanted]) -> list[Action]:
        """Resumes the session. `received`: number of the last message that the broker knows; later ones are repeated.

        The broker sends lost answers again, except those to queries.
        """
        self._forget_notices(received)
        actions: list[Action] = []
        unreceived: list[tuple[int, Callable[[], Send]]] = []
        for question in self._questions.values():
            number = self._message_numbers[question.token]
            if number > received or question.verb == "QUERY":
                unreceived.append((number, functools.partial(self._send_question, question)))
        unreceived += [(number, functools.partial(self._notify, head)) for number, head in self._notices]
        for wanted in everything:
            if wanted.number > received:
                wanted.was_sent = False
                unreceived.append((wanted.number, functools.partial(self._send_fetch, wanted)))
        last = self._last_number
        unreceived += [(last + wanted.order, functools.partial(self._send_fetch, wanted))
                       for wanted in everything if not wanted.number]
        self._notices.clear()
        self._restart_numbering(received)
        if self._acknowledged:
            actions.append(Send(encode("ACK", str(self._acknowledged))))
        unreceived.sort(key=lambda entry: entry[0])
        actions += [send() for _, send in unreceived]
        self._pulls.detach()
        return actions + self._read_on()

    def _restart_numbering(self, last: int) -> None:
        """Continues after a number: later ones were not received, and are used again."""
        self._last_number = last
        self._answered_last = min(self._answered_last, last)
        self._open = {number: None for number in self._open if number <= last}
        self._tokens = {number: token for number, token in self._tokens.items() if number <= last}
        self._fetches = {number: key for number, key in self._fetches.items() if number <= last}

    def _question_of(self, message: Message) -> _Question | None:
        """Records an answer. Returns the question that it names."""
        number = message.number("to") if self.phase is Phase.READY else None
        if number is None:
            return None
        self._answered_last = max(self._answered_last, number)
        self._open.pop(number, None)
        self._forget_notices(number)
        question = self._questions.get(self._tokens.get(number, -1))
        # A QUERY that was asked again has another number.
        return question if question is not None and self._message_numbers[question.token] == number else None

    def _malformed(self, message: Message, question: _Question | None) -> list[Action]:
        """Handles the legible part of a malformed message.

        An answer ends the question that it names. A terminal counts as received, and ends its request.
        """
        if self.phase is not Phase.READY:
            return []
        if question is not None:
            is_awaited = question.token not in self._ownerless
            # Only a removal has an outcome without the answer.
            failed = Message("ERROR", ("internal",), "\ndetail: the answer of the broker was malformed", "", None)
            resolved = self._resolve(question, None if question.verb == "REMOVE" else failed)
            return [resolved] if is_awaited else []
        if message.verb not in ("RESULT", "FAILED") or 0 < message.sequence <= self._seen:
            return []
        self._seen = max(self._seen, message.sequence)
        key = (message.operands[0], message.operands[1]) if len(message.operands) > 1 else ("", "")
        if self._is_ending(key) or self._take(key) is None:
            return []
        return [Refuse(key, "internal", "the broker sent a malformed result")]

    def _terminal(self, message: Message, question: _Question | None) -> list[Action]:
        sequence, key = message.sequence, (message.operands[0], message.operands[1])
        if self.phase is Phase.READY and message.field("seq") is None:
            return [self._resolve(question, message)] if question else []
        if self.phase is not Phase.READY or sequence <= self._seen:
            return []
        self._seen = sequence
        if self._is_ending(key):
            return []
        if message.verb == "FAILED" and message.operands[2] == "stopping" and self.wants(key):
            wanted = self._wanted[key[0]][key[1]]
            self._fetches.pop(wanted.number, None)
            wanted.number = 0
            return []  # The broker is about to end without an answer: the next one will answer.
        watches = tuple([token for token, pattern in self._watches.items() if matches(pattern, key[0])])
        is_pulled = message.field("pull") == "yes"
        # A request whose body is being read is still pending, so that a new session repeats it.
        mine = self._wanted.get(key[0], {}).get(key[1]) if is_pulled else self._take(key)
        if mine is not None:
            self._forget_notices(mine.number)
        if mine is None and not watches:
            return []
        if is_pulled:
            self._unfinished[sequence] = 1
            pull = Pull(sequence, message)
            self._pulls.begin(pull)
            return self._read_on() if pull.missing else self._pulled(pull)
        self._unfinished[sequence] = (mine is not None) + len(watches)
        return [Deliver((self._link, sequence), message, mine is not None, watches)]

    def _data(self, message: Message) -> list[Action]:
        sequence, offset = decimal(message.operands[0]), decimal(message.operands[1])
        pull = None if sequence is None else self._pulls.get(sequence)
        if pull is None or offset is None:
            return []  # The body is no longer wanted.
        if message.field("error") is not None:
            return self._lost_body(pull)
        data = pull.take(offset, message.body or b"")
        if data is None:
            return []
        if not data:
            return self._lost_body(pull)
        stored = Store((self._link, pull.sequence), offset, data)
        return [stored, *(self._read_on() if pull.missing else self._pulled(pull))]

    def _read_on(self) -> list[Action]:
        """Sends the READs for which there is room."""
        return [Send(head) for head in self._pulls.reads()]

    def _pulled(self, pull: Pull) -> list[Action]:
        """Delivers a terminal whose body was read, or lost."""
        self._pulls.end(pull.sequence)
        id, key = (self._link, pull.sequence), (pull.terminal.operands[0], pull.terminal.operands[1])
        watches = tuple([token for token, pattern in self._watches.items() if matches(pattern, key[0])])
        mine = self._take(key)
        if mine is None and not watches:
            return [*self._drop_pull(pull), *self._read_on()]
        self._unfinished[pull.sequence] = (mine is not None) + len(watches)
        return [Deliver(id, pull.terminal, mine is not None, watches), *self._read_on()]

    def _lost_body(self, pull: Pull) -> list[Action]:
        """Delivers a terminal without its body, which the broker has lost."""
        return [Discard((self._link, pull.sequence)), *self._pulled(pull)]

    def _drop_pull(self, pull: Pull) -> list[Action]:
        self._pulls.end(pull.sequence)
        self._unfinished.pop(pull.sequence, None)
        return [Discard((self._link, pull.sequence))]

    def _drop_pulls(self, is_removed: Callable[[Key], bool]) -> list[Action]:
        """Stops reading bodies of removed requests: the broker answers no more READs for them."""
        pulls = [pull for pull in self._pulls.all()
                 if is_removed((pull.terminal.operands[0], pull.terminal.operands[1]))]
        return [action for pull in pulls for action in self._drop_pull(pull)]

    def _progress(self, message: Message) -> list[Action]:
        key = (message.operands[0], message.operands[1])
        received, _, total = message.operands[2].partition("/")
        count = decimal(received)
        if count is None or not self.wants(key):
            return []
        return [Report(key, count, decimal(total))]

    def _answered(self, message: Message, question: _Question | None) -> list[Action]:
        if question is None:
            return []
        is_awaited = question.token not in self._ownerless
        resolved = self._resolve(question, message)
        return [resolved] if is_awaited else []

    def _refused(self, message: Message, question: _Question | None) -> list[Action]:
        code, detail = message.operands[0], message.field("detail") or ""
        if code == "hello-required":
            # The broker sends one for each message in transit; the first one suffices.
            if self.phase is not Phase.READY:
                return []
            self._session = None
            return self.opened()
        if code == "session-in-use":
            # The broker has not noticed the end of the old connection.
            self._refusals += 1
            if self._refusals >= MOST_REFUSALS:
                self._session = None
            return self.lost()
        if self.phase is Phase.GREETING and message.field("to") is not None:
            return []  # About an earlier message: the refusal of HELLO has no number.
        if self.phase is Phase.GREETING or code == "version":
            self.phase = Phase.USELESS
            return [CloseBus(code, detail)]
        key = self._fetches.get(message.number("to") or 0)
        if key is not None and self._take(key):
            return [Refuse(key, code, detail)]
        if question is not None:
            return [self._resolve(question, message)]
        # A PRIORITY may come after the end of its request.
        return [] if code == "unknown-request" else [Note(f"the broker refused a message with {code}: {detail}")]

    # Internal steps.

    def _reset(self) -> None:
        self._link += 1
        self._session = None
        self._restart_numbering(0)
        self._notices.clear()
        self._held.clear()
        for requests in self._wanted.values():
            for wanted in requests.values():
                wanted.number = 0
        self.draining = False
        self._seen = self._acknowledged = 0
        self._unfinished.clear()
        self._pulls.clear()

    def _finished(self) -> int:
        """Returns the `seq` up to which all terminals are finished."""
        return next(iter(self._unfinished)) - 1 if self._unfinished else self._seen

    def _numbered(self, head: bytes) -> Send:
        self._last_number += 1
        if not head.startswith((b"FETCH ", b"QUERY ")):
            self._open[self._last_number] = None
        return Send(head.replace(b"\n", b"\nnumber: %d\n" % self._last_number, 1), self._last_number)

    def _pace(self, actions: list[Action]) -> list[Action]:
        """Holds back messages behind `MOST_OPEN` unanswered ones, and returns messages held before if these are fewer.

        Messages without a number do not wait. All calls that return actions of a standing connection end with it.
        """
        is_full = len(self._open) > MOST_OPEN
        if not is_full and not self._held:
            return actions
        # The messages from the first one beyond the maximum on have to wait.
        end = next(itertools.islice(self._open, MOST_OPEN, None)) if is_full else self._last_number + 1
        waiting = [action for action in actions if isinstance(action, Send) and action.number >= end]
        rest = [action for action in actions if not (isinstance(action, Send) and action.number >= end)]
        released: list[Action] = []
        while self._held and self._held[0].number < end:
            released.append(self._held.popleft())
        self._held.extend(waiting)
        return released + rest

    def _send_fetch(self, wanted: _Wanted, now: float | None = None) -> Send:
        send = self._numbered(wanted.take_head(self._clock() if now is None else now))
        wanted.number = self._last_number
        self._fetches[self._last_number] = (wanted.fetch.handler, wanted.fetch.request)
        return send

    def _send_question(self, question: _Question) -> Send:
        send = self._numbered(question.head())
        self._message_numbers[question.token] = self._last_number
        self._tokens[self._last_number] = question.token
        return send

    def _notify(self, head: bytes) -> Send:
        """Sends a message without a relevant answer, and keeps it until the broker confirms it."""
        sent = self._numbered(head)
        if self._session is not None:
            self._notices.append((self._last_number, head))
            if len(self._notices) > MOST_NOTICES and self.phase is not Phase.READY:
                self._session = None
        return sent

    def _send_notice(self, head: bytes) -> list[Action]:
        """Sends a message now, or when the session resumes."""
        if self.phase is not Phase.READY and self._session is None:
            return []
        sent = self._notify(head)
        return [sent] if self.phase is Phase.READY else []

    def _subscribing_again(self, pattern: str) -> list[bytes]:
        """Returns the SUBSCRIBE messages to repeat after a REMOVE, which ends subscriptions to the removed handlers.

        Subscriptions to a subtree remain.
        """
        ended = {p for p in self._watches.values() if not p.endswith("/") and matches(pattern, p)}
        return [encode("SUBSCRIBE", p) for p in sorted(ended)]

    def _forget_notices(self, number: int) -> None:
        while self._notices and self._notices[0][0] <= number:
            self._notices.popleft()

    def _start_question(self, question: _Question) -> list[Action]:
        if self.phase is not Phase.READY and not question.survives:
            self._send_notice(question.head())
            return [Resolve(question.token, None)]
        self._questions[question.token] = question
        if question.verb == "REMOVE":
            self._ending[question.operands] += 1
        send = self._send_question(question)
        return [send] if self.phase is Phase.READY else []

    def _resolve(self, question: _Question, answer: Message | None) -> Resolve:
        del self._questions[question.token]
        self._tokens.pop(self._message_numbers.pop(question.token), None)
        self._ownerless.discard(question.token)
        if question.verb == "REMOVE":
            self._ending[question.operands] -= 1
            if not self._ending[question.operands]:
                del self._ending[question.operands]
        return Resolve(question.token, answer)

    def _disown(self, question: _Question) -> Resolve:
        """Ends the wait of a caller of a question without an answer. The next connection still repeats the question."""
        self._ownerless.add(question.token)
        return Resolve(question.token, None)

    def _is_ending(self, key: Key) -> bool:
        """Returns whether the terminal precedes a removal whose answer is pending."""
        if not self._ending:
            return False
        segments = key[0].split("/")
        names = [key[0], *("/".join(segments[:count]) + "/" for count in range(1, len(segments)))]
        return key in self._ending or any((name,) in self._ending for name in names)

    def _take(self, key: Key) -> _Wanted | None:
        requests = self._wanted.get(key[0], {})
        wanted = requests.pop(key[1], None)
        if not requests:
            self._wanted.pop(key[0], None)
        if wanted is not None:
            self._fetches.pop(wanted.number, None)
        return wanted

    def _forget(self, pattern: str, detail: str) -> list[Action]:
        if pattern.endswith("/"):
            handlers = [handler for handler in self._wanted if matches(pattern, handler)]
        else:
            handlers = [pattern] if pattern in self._wanted else []
        forgotten = [(handler, self._wanted.pop(handler)) for handler in handlers]
        for _, requests in forgotten:
            for wanted in requests.values():
                self._fetches.pop(wanted.number, None)
        keys = tuple((handler, request) for handler, requests in forgotten for request in requests)
        dropped = self._drop_pulls(lambda key: matches(pattern, key[0]))
        return [Drop(keys, detail), *dropped] if keys else dropped
