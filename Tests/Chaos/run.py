"""One run: from the start of all processes to the verdict."""

import threading
import time
from collections import Counter

import checkout  # noqa: F401
import footprint
import plans
import schedule
import whims
from disk import Disk
from fleet import Fleet
from hand import Hand
from judge import Judge, Violation
from support import harness
from support.client import Client
from support.origin import Origin
from support.processes import eventually
from timeline import Timeline

WARM_UP, LONGEST_WARM_UP = 0.15, 12
"""Undisturbed part at the beginning of a run, as a fraction, and its maximum in seconds."""
CALM_END = 3
"""Undisturbed seconds at the end of the plans."""
TIMEOUT = 100
"""Seconds after the end of the plans until all requests must have ended: a cool-down lasts a minute at most."""
GHOST_SECONDS = 10
"""Seconds after the end at which the canary `ghost` sends its request."""


def disturbed(seconds):
    """Returns begin and end of the disturbed part of a run, in seconds."""
    return min(WARM_UP * seconds, LONGEST_WARM_UP), seconds - CALM_END


class Run:
    """A run. `violations` is empty if everything agrees."""

    def __init__(self, options):
        self.options = options
        self.seconds = options.minutes * 60
        self.folder = harness.temporary_folder()
        (self.folder / "clients").mkdir()
        self.timeline = Timeline()
        self.violations = []
        self.before = self.after = ()
        self.hand = self.judge = self.fleet = None
        self.ledger = {}
        self.connections = []

    def go(self):
        with Origin(ports=plans.ORIGINS) as origin, Disk(self.folder / "disk") as disk:
            origin.ledger = whims.Ledger()
            bus = self.make_bus(disk)
            try:
                with bus:
                    self.disturb(bus, origin, disk)
                self.hand.keep_log()
            except AssertionError as error:
                self.report_fault("bus", f"{error} {' '.join(getattr(error, '__notes__', []))}")
            finally:
                if self.fleet:
                    self.fleet.abort()
                    self.fleet.collect()
            self.verdict(origin)

    def make_bus(self, disk):
        settings = [word for name, value in Hand.settings.items() if name not in ("workers", "slots")
                    for word in (f"--{name}", value)]
        bus = harness.Bus(workers=Hand.settings["workers"], slots=Hand.settings["slots"], folder=self.folder,
                          arguments=["--cache-folder", disk.path / "cache", "--drain-seconds", "2", *settings])
        bus.spool = disk.path / "spool"
        return bus

    def disturb(self, bus, origin, disk):
        options = self.options
        self.fleet = Fleet(self.folder / "clients", bus.runtime, harness.lab(), options.seed, options.clients, origin.urls,
                           options.canary)
        for number in range(options.clients):
            self.fleet.start(number, 0, self.seconds)
        with Client(bus.runtime) as client:
            eventually(lambda: client.query("status")["clients"] > options.clients, "all clients are there", 60)
        self.timeline.begin = time.monotonic()
        plan_end = self.timeline.begin + self.seconds
        self.hand = Hand(bus, self.fleet, disk, self.timeline, plan_end)
        begin, end = disturbed(self.seconds)
        self.wait(self.timeline.begin + begin)
        self.before = footprint.take(self.pids())
        self.timeline.note("warm")
        for decision in schedule.schedule(options.seed, begin, end):
            self.wait(self.timeline.begin + decision.at)
            self.hand.act(decision)
            self.look_for_the_dead()
        self.wait(plan_end)
        self.timeline.note("the plans are over")
        self.hand.heal()
        self.timeline.note("everything is healed")
        self.come_to_rest(bus, plan_end)

    def wait(self, until):
        """Waits until a time, and reverts disturbances that end before."""
        while (now := time.monotonic()) < until:
            following = self.hand.next_end
            pause(min(until, following if following is not None else until) - now)
            self.hand.undo()

    def look_for_the_dead(self):
        for program in self.fleet.ended_by_themselves():
            self.report_fault("client", f"client {program.name} ended by itself\n{program.describe()}")

    def come_to_rest(self, bus, plan_end):
        """Requires that all requests end, both ledgers balance, and no process has grown."""
        late = self.fleet.await_idle(plan_end + TIMEOUT)
        self.timeline.note(f"{self.options.clients - len(late)} clients have all their results")
        with Client(bus.runtime) as client:
            if late:
                self.explain(client, late)
            else:
                self.await_quiet(client)
        self.break_run(bus)
        self.after = footprint.take(self.pids())
        for violation in footprint.growth(self.before, self.after):
            self.report_fault("footprint", violation)
        for violation in self.fleet.dismiss():
            self.report_fault("client", violation)
        with Client(bus.runtime) as client:
            self.await_nothing(client)

    def await_quiet(self, client):
        def even():
            self.ledger = client.query("ledger")
            return self.ledger["requests"]["pending"] == 0 and self.ledger["deliveries"]["outstanding"] == 0
        try:
            eventually(even, lambda: f"nothing pending or outstanding: {self.ledger}", 15)
            if self.options.canary == "ledger":
                self.ledger["requests"]["answered"] += 1
            harness.check_ledgers(self.ledger)
            if self.options.canary == "forgetful":
                self.ledger["deliveries"]["due"] = 0
            for handler in client.query("handlers")["handlers"]:
                check_handler(handler)
        except AssertionError as error:
            self.report_fault("ledger", str(error))

    def await_nothing(self, client):
        """Requires that all state ends with the last client."""
        status = {}

        def empty():
            status.update(client.query("status"))
            return status["clients"] == 1 and status["handlers"] == 0 and not any(status["flights-now"].values())
        try:
            eventually(empty, lambda: f"a bus without clients has nothing: {status}", 15)
        except AssertionError as error:
            self.report_fault("rest", str(error))

    def explain(self, client, late):
        """Complains about unfinished requests, with the broker's reasons."""
        for number in late:
            program = self.fleet.running[number]
            lines = (self.folder / f"clients/{program.name}.journal").read_text().splitlines()
            submitted = {words[2]: words for words in (line.split(" ") for line in lines) if words[1] == "request"}
            for line in lines:
                words = line.split(" ")
                if words[1] in ("end", "drop", "refused"):
                    submitted.pop(words[2], None)
            answers = []
            for name, words in list(submitted.items())[:5]:
                # The Python package chooses request IDs itself.
                reason = client.query(f"why {words[3]} {name}") if plans.language(number) == "swift" else ""
                answers.append(f"{name} {words[4]} {reason}")
            self.report_fault("late", f"client {program.name} still waits for {len(submitted)} ends", answers)

    def pids(self):
        return {role: self.hand.pids(role) for role in ("broker", "worker")}

    def break_run(self, bus):
        """Carries out the faults of canaries of the runner."""
        if self.options.canary == "descriptors":
            self.connections = [Client(bus.runtime) for _ in range(80)]
        if self.options.canary == "ghost":
            self.haunt(bus)

    def haunt(self, bus):
        """Requests a URL that a client requested earlier."""
        journal = next((self.folder / "clients").glob("*.journal")).read_text()
        url = next(line.split(" ")[4] for line in journal.splitlines()
                   if line.split(" ")[1] == "request" and "/o-" in line)
        pause(GHOST_SECONDS)
        with Client(bus.runtime) as client:
            client.fetch("ghost", 1, url)
            client.terminal()

    def report_fault(self, rule, what, lines=()):
        self.violations.append(Violation(rule, what, list(lines), time.monotonic()))

    # The verdict.

    def verdict(self, origin):
        if self.options.canary == "origin":
            for answers in origin.ledger.answers.values():
                answers[:] = [(generation + 1, at) for generation, at in answers]
        self.timeline.note("the verdict")
        lives = self.fleet.lives if self.fleet else []
        self.judge = Judge(lives, self.timeline, origin.log(), origin.ledger, self.ledger)
        self.violations += self.judge.judge()
        self.violations += [Violation("bus", violation) for violation in self.hand.violations] if self.hand else []

    def summary(self):
        lines = []
        if self.judge:
            verbs = Counter(line.verb for life in self.fleet.lives for line in life.lines)
            killed = sum(life.died is not None for life in self.fleet.lives)
            lines.append(f"{len(self.fleet.lives)} lives of clients, {killed} killed: {verbs['request']} requests, "
                         f"{verbs['end']} ended, {verbs['drop']} given up, {verbs['received']} terminals received, "
                         f"{len(self.judge.requests)} requests at the origin")
            if late := sorted(self.judge.lateness):
                lines.append(f"{len(late)} transfers that nobody wanted any more were cut off, half of them within "
                             f"{late[len(late) // 2] * 1000:.0f} ms, the last after {late[-1]:.2f} calm s")
            lines.append("ends: " + ", ".join(f"{n} {code}" for code, n in self.judge.counts.most_common()))
        if self.hand:
            lines.append("done: " + ", ".join(f"{n} {kind}" for kind, n in sorted(self.hand.done.items())))
        if self.after:
            lines.append(footprint.table(self.before, self.after))
        lines.append("all agree" if not self.violations else f"{len(self.violations)} VIOLATIONS")
        return "\n".join(lines)


def check_handler(handler):
    """Requires the ledger of one handler to balance."""
    counts = handler["requests"] if "requests" in handler else handler
    failed = counts["failed"]
    ends = (counts["answered"] + (sum(failed.values()) if isinstance(failed, dict) else failed) + counts["removed"]
            + counts["orphaned"] + counts["pending"])
    if counts["submitted"] != ends:
        raise AssertionError(f"a handler does not balance: {handler}")


def pause(seconds):
    """Lets time pass: waiting is part of a run."""
    threading.Event().wait(max(0.0, seconds))
