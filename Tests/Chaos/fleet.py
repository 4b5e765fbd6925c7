"""The clients of a run: processes in two languages, each with one or more lives."""

import os
import signal
import time

import checkout
import journal
import plans
from judge import Life
from support.harness import PYTHON
from support.processes import Program


class Fleet:
    """Starts, kills and collects clients. In `folder`, `NUMBER.LIFE.journal` is a journal and `NUMBER.LIFE.plan` a
    plan."""

    def __init__(self, folder, runtime, lab, seed, count, bases, canary=None):
        self.folder = folder
        self.runtime = runtime
        self.lab = lab
        self.seed = seed
        self.count = count
        self.bases = bases
        self.canary = canary
        self.running = {}
        self.lives = []
        self._times = {}

    def start(self, number, begin, seconds):
        """Starts the next life of a client, with a plan for this many seconds."""
        life = self._times.get(number, 0) + 1
        self._times[number] = life
        name = f"{number}.{life}"
        plan, path = self.folder / f"{name}.plan", self.folder / f"{name}.journal"
        plan.write_text(plans.Planner(self.seed, number, life, begin, seconds, self.count, self.bases).text())
        if plans.language(number) == "python":
            arguments = [PYTHON, "-B", checkout.HERE / "follower.py", plan, path, self.runtime]
            if self.canary and number == 0:
                arguments.append(self.canary)
        else:
            arguments = [self.lab, "client", plan, path, "--runtime", self.runtime]
        program = Program(arguments, dict(os.environ), self.folder)
        program.name = name
        program.is_stopped = False
        self.running[number] = program

    def kill(self, number):
        """Kills a client with SIGKILL. Returns the time of its death."""
        program = self.running.pop(number)
        program.kill()
        moment = time.monotonic()
        self._collect(program, moment)
        return moment

    def stop(self, number):
        self.running[number].is_stopped = True
        self.running[number].signal(signal.SIGSTOP)

    def resume(self, program):
        program.is_stopped = False
        program.signal(signal.SIGCONT)

    def await_idle(self, deadline):
        """Returns the numbers of clients with unfinished requests at the deadline."""
        late = []
        for number, program in self.running.items():
            try:
                program.await_line("idle", "stdout", max(0.01, deadline - time.monotonic()))
            except AssertionError:
                late.append(number)
        return late

    def dismiss(self):
        """Tells all clients to leave. Returns faults: their ends."""
        for program in self.running.values():
            program.write(b"")
        violations = []
        for program in list(self.running.values()):
            try:
                status = program.wait()
            except AssertionError as error:
                violations.append(f"client {program.name}: {error}")
                continue
            if status != 0 or program.crash_lines:
                violations.append(f"client {program.name} ended with {status}\n{program.describe()}")
        return violations

    def ended_by_themselves(self):
        """Returns the clients that ended without being told to."""
        return [program for program in self.running.values() if not program.running]

    def abort(self):
        """Kills all remaining clients."""
        for number, program in list(self.running.items()):
            if program.running:
                self.kill(number)

    def collect(self):
        """Collects all clients and returns their lives."""
        for program in self.running.values():
            self._collect(program, None)
        self.running = {}
        return self.lives

    def _collect(self, program, died):
        first, *steps = (self.folder / f"{program.name}.plan").read_text().splitlines()
        found = {planned.name: planned for planned in map(plans.PlannedRequest.of, steps) if planned}
        lines = journal.read(self.folder / f"{program.name}.journal", program.name)
        self.lives.append(Life(program.name, found, lines, died, int(first.split(" ")[3])))
