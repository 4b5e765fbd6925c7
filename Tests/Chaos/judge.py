"""Compares the journals of a run with its plans, its time line, and the ledgers of origin and broker. Pure: values in,
violations out."""

import hashlib
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import whims
from journal import End, Line

SLACK = 40.0
"""Maximum age of a transfer that a request may join, in seconds."""
STALE = 20.0
"""Seconds by which a response may exceed its cache lifetime: a stopped process may have held it."""
GRACE = 2.0
"""Calm seconds after the end of the last interest in which the origin may still receive requests."""

EXPLAINED = {
    "spool-full": ("disk",),
    "queue-full": ("queue",),
    "origin-cooling": ("cooling",),
}
"""Failures that a disturbance explains, with the subjects of such disturbances."""

DEATHS_OF_POISON = 3

AFTER_GREETING = 2.0
"""Seconds after a client's first terminal of a broker from which all its lines count for that broker."""


@dataclass
class Violation:
    """A violated rule, and the journal lines that show it."""

    rule: str
    what: str
    lines: list = field(default_factory=list)
    at: float | None = None

    def __str__(self):
        return "\n    ".join([f"{self.rule}: {self.what}", *map(str, self.lines)])


@dataclass
class Life:
    """One life of a client: the requests of its plan by name, its lines, and its death."""

    client: str
    planned_requests: dict
    lines: list
    died: float | None = None
    """Time of its death by SIGKILL."""
    lease: int = 0
    """Seconds for which its requests outlive it."""


class Story:
    """One request, as the journal of its client records it."""

    def __init__(self, planned, line, life):
        self.planned = planned
        self.submitted = line
        self.life = life
        self.ends = []
        self.dropped = None
        self.refused = None
        self.losses = 0

    @property
    def over(self):
        """Time at which the interest in the request ended; None if it has not."""
        moments = [line.at for line in (self.dropped, self.refused, *(end.line for end in self.ends[:1])) if line]
        if self.life.died is not None:
            moments.append(self.life.died + self.life.lease)
        return min(moments, default=None)

    @property
    def lines(self):
        return [self.submitted, *(line for line in (self.dropped, self.refused) if line), *(end.line for end in self.ends)]


class Judge:
    """Judge of a run.

    `requests`: requests at the origin, with `target`, `path`, `started`, `ended`, `aborted`. `ledger`: responses of the
    origin. `broker`: ledger of the last broker, if there is one.
    """

    def __init__(self, lives, timeline, requests, ledger, broker=None):
        self.lives = lives
        self.timeline = timeline
        self.requests = requests
        self.ledger = ledger
        self.broker = broker
        self.violations = []
        self.stories = {}
        self.counts = Counter()
        self.lateness = []
        """Calm seconds for which aborted transfers ran after the end of the last interest."""

    def judge(self):
        """Returns all violations."""
        for life in self.lives:
            self.read(life)
        self.removals = [removal for life in self.lives for removal in self.removals_of(life)]
        for story in self.stories.values():
            self.judge_number_of_ends(story)
            for end in story.ends[:1]:
                self.judge_end(story, end)
        for life in self.lives:
            self.judge_removals(life)
            self.judge_received(life)
        self.judge_origin()
        if self.broker:
            self.judge_broker(self.broker["broker"])
        return self.violations

    def report_fault(self, rule, what, lines=(), at=None):
        lines = list(lines)
        self.violations.append(Violation(rule, what, lines, at if at is not None else lines[-1].at if lines else None))

    # Each journal by itself.

    def read(self, life):
        """Sorts the lines of a life into stories."""
        for line in life.lines:
            if line.verb == "request":
                planned = life.planned_requests.get(line.words[0])
                if planned is None:
                    self.report_fault("requested", "what no plan contains", [line])
                else:
                    self.stories[planned.name] = Story(planned, line, life)
            elif line.verb in ("end", "drop", "refused", "lost"):
                story = self.stories.get(line.words[0])
                if story is None or story.life is not life:
                    self.report_fault("unrequested", "of what it never requested", [line])
                elif line.verb == "end":
                    story.ends.append(End.of(line))
                elif line.verb == "drop":
                    story.dropped = line
                elif line.verb == "refused":
                    story.refused = line
                else:
                    story.losses += 1

    def judge_number_of_ends(self, story):
        """Requires one end, or none for a dropped request or a dead client."""
        count = len(story.ends)
        if count > 1:
            self.report_fault("once", f"{count} ends of {story.planned.name}", story.lines)
        if count and story.dropped and story.ends[0].line.at > story.dropped.at:
            self.report_fault("removed", f"an end of {story.planned.name} after it was given up", story.lines)
        if story.refused:
            self.report_fault("refused", f"{story.planned.name} was taken for no request", story.lines)
        if count == 0 and not story.dropped and not story.refused and story.life.died is None:
            self.report_fault("lost", f"{story.planned.name} has no end: {story.planned.url}", story.lines)

    @staticmethod
    def removals_of(life):
        """Yields request time, answer time and pattern of each removal. A stopped broker may carry one out late. A client
        that died got no answer, so its last line counts."""
        for number, line in enumerate(life.lines):
            if line.verb == "remove":
                answers = (later.at for later in life.lines[number:]
                           if later.verb == "removed" and later.words[0] == line.words[0])
                yield line.at, next(answers, life.lines[-1].at), line.words[0]

    def judge_removals(self, life):
        """Requires that no terminal of a request follows the answer to its removal or cancellation."""
        dropped, final = {}, {}
        for line in life.lines:
            if line.verb == "drop":
                dropped[line.words[0]] = line
            elif line.verb == "cancelled":
                final[line.words[0]] = line
            elif line.verb == "removed":
                for name, drop in dropped.items():
                    story = self.stories.get(name)
                    if story and matches(line.words[0], story.planned.handler):
                        final.setdefault(name, line)
            elif line.verb == "received" and line.words[2] in final:
                answer = final[line.words[2]]
                drop = dropped.get(line.words[2], answer)
                # After a lost connection an answer does not order terminals of the earlier one.
                if not self.was_disconnected(life.client, drop.at - 1, line.at):
                    self.report_fault("removed", f"{line.words[2]} got a terminal after its removal was answered",
                                  [drop, answer, line])

    def judge_received(self, life):
        """Requires each terminal once, and only of requests that some client made."""
        received = defaultdict(list)
        for line in life.lines:
            if line.verb == "received" and line.words[2] != "-":
                received[(line.words[2], line.words[1])].append(line)
        for (name, _), lines in received.items():
            story = self.stories.get(name)
            if story is None:
                if not any(name in other.planned_requests for other in self.lives):
                    self.report_fault("unrequested", f"a terminal of {name}, which nobody requested", lines)
            elif story.life is life and len(lines) > 1 + story.losses:
                self.report_fault("once", f"{len(lines)} terminals of {name}", [*story.lines, *lines])

    def was_disconnected(self, client, begin, end):
        """Whether a client may have lost its connection between two times."""
        number = client.split(".")[0]
        return self.timeline.count(("broker", "serve", f"client {number}"), begin - 2, end) > 0

    # Ends against plans.

    def judge_end(self, story, end):
        """Requires results to be possible and correct, and failures to be explained."""
        whim = story.planned.whim
        self.counts[end.code or "result"] += 1
        if end.code is None:
            self.judge_result(story, end, whim)
            return
        if whim.then != "good" and end.code in self.codes_of(whim):
            return
        if end.code == "too-large" and whim.size > int(story.planned.options.get("max-bytes", whim.size)):
            return
        if end.code == "deadline" and "deadline" in story.planned.options:
            # A broker that is stopped during a pass continues with the clock from before the stop.
            was_stopped = self.timeline.count(("broker",), story.submitted.at, end.line.at) > 0
            if end.line.at - story.submitted.at < float(story.planned.options["deadline"]) - 0.1 and not was_stopped:
                self.report_fault("early", f"the deadline of {story.planned.name} was not over", story.lines)
            return
        if not self.is_explained(story, end):
            self.report_fault("unexplained", f"{story.planned.name} failed as {end.code}: {story.planned.url}", story.lines)

    def codes_of(self, whim):
        """Returns the possible failures of a resource that never succeeds."""
        codes = {whims.LASTING[whim.then]}
        return codes | {"truncated", "reset"} if whim.then in ("cut", "drop", "reset") else codes

    def is_explained(self, story, end):
        begin, now = story.submitted.at - SLACK, end.line.at
        if end.code in EXPLAINED:
            return self.timeline.count(EXPLAINED[end.code], begin, now) > 0
        if end.code == "poisonous":
            return self.timeline.count(("worker", "serve"), begin, now) >= DEATHS_OF_POISON
        if end.code == "internal":
            # The client gave up after each broker in turn had died with the file of the body.
            return 0 < story.losses <= self.timeline.count(("broker", "serve"), begin, now)
        if end.code == "removed":
            return any(sent <= now and answered >= story.submitted.at - 1 and matches(pattern, story.planned.handler)
                       for sent, answered, pattern in self.removals)
        return False

    def judge_result(self, story, end, whim):
        if whim.then != "good":
            self.report_fault("impossible", f"{story.planned.name} has a result of what cannot go well", story.lines)
            return
        if whim.size > int(story.planned.options.get("max-bytes", whim.size)):
            self.report_fault("impossible", f"{story.planned.name} is larger than it may be", story.lines)
        if not end.generation.isdigit():
            self.report_fault("generation", f"the result of {story.planned.name} names none", story.lines)
            return
        generation = int(end.generation)
        right = digest(whim.name, generation, whim.size)
        if end.read != right or end.stated != right or end.length != whim.size:
            self.report_fault("bytes", f"{story.planned.name} is not generation {generation} of {whim.name}", story.lines)
        if generation not in self.ledger.served(whim.name):
            self.report_fault("origin", f"{whim.name} was never answered in generation {generation}", story.lines)
        elif whim.period:
            gone = whims.EPOCH + (generation + 1) * whim.period
            if gone + whim.fresh_seconds + STALE < story.submitted.at:
                self.report_fault("stale", f"{story.planned.name} got generation {generation}, gone since "
                              f"{story.submitted.at - gone:.1f} s", story.lines)

    # The broker against all journals.

    def judge_broker(self, instance):
        """Requires the broker's ledger to count each terminal that clients received, and each request with a
        result."""
        received, answered = [], []
        for life in self.lives:
            lines = [line for line in life.lines if line.verb == "received" and line.words[4] == instance]
            received += [line for line in lines if line.at >= lines[0].at + AFTER_GREETING]
        answered = {line.words[2]: line for line in received
                    if line.words[3].isdigit() and line.words[2] in self.stories}
        due = self.broker["deliveries"]["due"]
        if due < len(received):
            self.report_fault("ledger", f"clients received {len(received)} terminals of a broker that sent {due}", received[-1:])
        if self.broker["requests"]["answered"] < len(answered):
            self.report_fault("ledger", f"clients have {len(answered)} results of a broker that has answered "
                          f"{self.broker['requests']['answered']}", list(answered.values())[-1:])

    # The origin against all journals.

    def judge_origin(self):
        """Requires that the origin gets no request, and no transfer continues, a while after the end of the last
        interest."""
        wanted = defaultdict(list)
        for story in self.stories.values():
            wanted[story.planned.whim.name].append((story.submitted.at, story.over, story))
        for request in self.requests:
            name = request.path.rpartition("/")[2]
            spans = wanted.get(name)
            if not spans:
                self.report_fault("unwanted", f"{request.target} was requested from the origin and by nobody", (),
                              request.started)
                continue
            self.judge_request(request, name, spans)

    def judge_request(self, request, name, spans):
        stopped = request.ended or request.aborted or float("inf")
        before = [span for span in spans if span[0] <= request.started + 0.1]
        if not before:
            self.report_fault("unwanted", f"{name} was requested from the origin before anybody wanted it",
                          [spans[0][2].submitted], request.started)
            return
        last = self.latest(before)
        if last is not None and self.timeline.calm(last, request.started) > GRACE:
            self.report_fault("unwanted", f"{name} was requested from the origin {request.started - last:.1f} s after nobody "
                          "wanted it any more", self.evidence(before), request.started)
            return
        last = self.latest(spans)
        now = min(stopped, self.timeline.lines[-1][0])
        if last is None or now <= last:
            return
        calm = self.timeline.calm(max(last, request.started), now)
        if request.aborted:
            self.lateness.append(calm)
        if calm > GRACE:
            self.report_fault("unwanted", f"{name} was still fetched {now - last:.1f} s after nobody wanted it any more",
                          self.evidence(spans), request.started)

    def latest(self, spans):
        """Returns the end of the last interest; None if one has not ended."""
        overs = [over for _, over, _ in spans]
        return None if None in overs else max(overs)

    def evidence(self, spans):
        story = max(spans, key=lambda span: span[1] or 0)[2]
        died = story.life.died
        dead = [Line(died, "killed", (), story.life.client)] if died is not None else []
        return [*story.lines, *dead]


def matches(pattern, handler):
    """Whether a pattern matches a handler."""
    return handler.startswith(pattern) if pattern.endswith("/") else handler == pattern


DIGESTS = {}


def digest(name, generation, size):
    key = (name, generation, size)
    if key not in DIGESTS:
        DIGESTS[key] = hashlib.sha256(whims.content(*key)).hexdigest()
    return DIGESTS[key]
