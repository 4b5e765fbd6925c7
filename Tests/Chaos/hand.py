"""Carries out what the schedule decides, on the processes that are there, and takes it back when its time is over."""

import heapq
import itertools
import queue
import signal
import threading
import time

import cutting
from support.harness import Commands
from support.processes import Watched, children, command
from support.processes import kill as kill_process

REBIRTH_SECONDS = 0.5
"""Until a killed client's next life begins."""
SET_TRIES = 3
LOOK_SECONDS = 0.1
"""Between two looks whether what was killed is there again."""
SERVE_SECONDS = 25
"""How long a serve that was told to end may take."""


class Hand:
    """One for a run. `act` is called at the time of each decision, and `take_back` as often as there is time."""

    def __init__(self, bus, fleet, disk, timeline, plan_end):
        self.bus = bus
        self.fleet = fleet
        self.disk = disk
        self.timeline = timeline
        self.plan_end = plan_end
        self.complaints = []
        self.done = {}
        self._later = []
        self._order = itertools.count()
        # Not the bus's own: they may outlive it, waiting for the next.
        self._commands = Commands(bus.runtime, bus.folder)
        self._settings = queue.SimpleQueue()
        self._setter = threading.Thread(target=self._set_in_order, daemon=True)
        self._setter.start()
        self._acts = {
            "kill worker": self.kill_worker, "stop worker": self.stop_worker, "cut worker": self.cut_worker,
            "kill broker": self.kill_broker, "stop broker": self.stop_broker, "terminate serve": self.terminate,
            "kill serve": self.kill_serve, "reload": self.reload, "kill client": self.kill_client,
            "stop client": self.stop_client, "cut client": self.cut_client, "fill disk": self.fill_disk,
            "small spool": self.small_spool, "no room": self.no_room, "set": self.set,
        }

    def act(self, decision):
        """Does it, if there is something to do it to."""
        if self._acts[decision.kind](decision) is None:
            self.done[decision.kind] = self.done.get(decision.kind, 0) + 1

    def take_back(self, everything=False):
        """Ends what is over by now, or everything that lasts."""
        due = [entry for entry in self._later if everything or entry[0] <= time.monotonic()]
        self._later = [entry for entry in self._later if entry not in due]
        heapq.heapify(self._later)
        for _, _, call in sorted(due, key=lambda entry: entry[:2]):
            call()

    @property
    def next_end(self):
        """The moment of the next end; None if there is none."""
        return self._later[0][0] if self._later else None

    def _at(self, seconds, call):
        heapq.heappush(self._later, (time.monotonic() + seconds, next(self._order), call))

    def pids(self, role):
        """The children of the supervisor that are `broker` or `worker`."""
        return [pid for pid in children(self.bus.supervisor) if role in command(pid)[1:2]]

    def _victim(self, role, decision):
        pids = self.pids(role)
        return pids[decision.victim % len(pids)] if pids else None

    def _nobody(self, decision):
        self.timeline.note(f"{decision.kind}: nobody there")
        return False

    # The bus.

    def kill_worker(self, decision):
        return self._kill("worker", decision)

    def kill_broker(self, decision):
        return self._kill("broker", decision)

    def _kill(self, role, decision):
        pid = self._victim(role, decision)
        if pid is None:
            return self._nobody(decision)
        state = self.timeline.begin_disturbance(role, f"kill -9 of {role} {pid}")
        try:
            kill_process(pid)
        except ProcessLookupError:
            self.timeline.end_disturbance(state)
            return self._nobody(decision)
        # One that dies often is started again later each time.
        self._await_successor(role, len(self.pids(role)), state)
        return None

    def _await_successor(self, role, left, state):
        if len(self.pids(role)) > left:
            self.timeline.end_disturbance(state)
        else:
            self._at(LOOK_SECONDS, lambda: self._await_successor(role, left, state))

    def stop_worker(self, decision):
        return self._stop("worker", decision)

    def stop_broker(self, decision):
        return self._stop("broker", decision)

    def _stop(self, role, decision):
        pid = self._victim(role, decision)
        if pid is None:
            return self._nobody(decision)
        try:
            watched = Watched(pid)
            watched.signal(signal.SIGSTOP)
        except ProcessLookupError:
            return self._nobody(decision)
        state = self.timeline.begin_disturbance(role, f"SIGSTOP of {role} {pid}")

        def go_on():
            try:
                watched.signal(signal.SIGCONT)
            except ProcessLookupError:
                pass  # It was killed meanwhile, by us or by the broker.
            watched.close()
            self.timeline.end_disturbance(state)
        self._at(decision.lasting, go_on)
        return None

    def cut_worker(self, decision):
        pid = self._victim("worker", decision)
        return self._nobody(decision) if pid is None else self._cut(decision, pid, "work", "worker")

    def _cut(self, decision, pid, name, about):
        state = self.timeline.begin_disturbance(about, f"cut of {pid}'s connection to {name} ({about})")
        try:
            count = cutting.cut(pid, name)
        except cutting.NotPermitted as error:
            self.timeline.end_disturbance(state, f"no connection can be cut here: {error}")
            return False
        state.ended = time.monotonic()
        return None if count else self._nobody(decision)

    def terminate(self, _):
        """SIGTERM, the end awaited, and the next one started."""
        self.take_back(everything=True)
        state = self.timeline.begin_disturbance("serve", "SIGTERM of serve")
        self.bus.program.signal(signal.SIGTERM)
        status = self.bus.program.wait(SERVE_SECONDS)
        if status != 0:
            self.complaints.append(f"serve ended with {status} after SIGTERM\n{self.bus.program.describe()}")
        self._start_again(state)

    def kill_serve(self, _):
        """`kill -9`, and whether all its processes died with it."""
        self.take_back(everything=True)
        state = self.timeline.begin_disturbance("serve", "kill -9 of serve")
        self.bus.kill()
        self._start_again(state)

    def _start_again(self, state):
        self.keep_log()
        self.bus.await_no_survivors()
        self.bus.__enter__()
        self.timeline.end_disturbance(state, "the next serve is ready")

    def keep_log(self):
        """Puts what serve has said so far aside, and complains of crashes in it."""
        program = self.bus.program
        with open(self.fleet.folder / "serve.log", "a") as file:
            file.write(program.stderr)
        if program.crash_lines:
            self.complaints.append("a process crashed: " + "\n".join(program.crash_lines[:20]))

    def reload(self, _):
        self.timeline.note("SIGHUP of serve")
        self.bus.program.signal(signal.SIGHUP)

    # Clients.

    def _client(self, decision):
        numbers = sorted(self.fleet.running)
        return numbers[decision.victim % len(numbers)] if numbers else None

    def kill_client(self, decision):
        number = self._client(decision)
        if number is None:
            return self._nobody(decision)
        self.timeline.add(f"client {number}", f"kill -9 of client {self.fleet.running[number].name}")
        self.fleet.kill(number)
        self._at(REBIRTH_SECONDS, lambda: self.bear_client(number))
        return None

    def bear_client(self, number):
        """The next life of a killed client, if there is time for one."""
        now = time.monotonic()
        if self.plan_end - now > 1:
            self.fleet.start(number, now - self.timeline.begin, self.plan_end - now)
            self.timeline.note(f"client {self.fleet.running[number].name} begins")

    def stop_client(self, decision):
        number = self._client(decision)
        if number is None or self.fleet.running[number].is_stopped:
            return self._nobody(decision)
        program = self.fleet.running[number]
        state = self.timeline.begin_disturbance(f"client {number}", f"SIGSTOP of client {program.name}")
        self.fleet.stop(number)

        def go_on():
            if program.running:
                self.fleet.resume(program)
            self.timeline.end_disturbance(state)
        self._at(decision.lasting, go_on)
        return None

    def cut_client(self, decision):
        number = self._client(decision)
        if number is None:
            return self._nobody(decision)
        return self._cut(decision, self.fleet.running[number].pid, "bus", f"client {number}")

    # The disk, and settings.

    def fill_disk(self, decision):
        if not self.disk.is_own:
            return self._nobody(decision)
        state = self.timeline.begin_disturbance("disk", "the disk is full")
        self.disk.fill()

        def clear():
            self.disk.clear()
            self.timeline.end_disturbance(state)
        self._at(decision.lasting, clear)
        return None

    def small_spool(self, decision):
        return self._set_for_a_while(decision, "disk", "spool-size", 1 << 20)

    def no_room(self, decision):
        return self._set_for_a_while(decision, "disk", "spool-free", 1 << 40)

    def set(self, decision):
        about = {"requests": "queue", "requests-per-client": "queue", "cool-down": "cooling"}
        return self._set_for_a_while(decision, about.get(decision.words[0], "setting"), *decision.words)

    def _set_for_a_while(self, decision, about, name, value):
        state = self.timeline.begin_disturbance(about, f"set {name} {value}")
        self._settings.put((name, value, None))
        self._at(decision.lasting, lambda: self._settings.put((name, self.settings[name], state)))
        return None

    def _set_in_order(self):
        """A thread of its own: what is set while the broker is away waits for the next one."""
        while (change := self._settings.get()) is not None:
            name, value, state = change
            self._set(name, value)
            if state:
                self.timeline.end_disturbance(state, f"set {name} {value} again")

    def _set(self, name, value):
        """By the program itself, as a user does."""
        for _ in range(SET_TRIES):
            program = self._commands.run("set", name, value, timeout=60)
            if program.status == 0:
                return
            self.timeline.note(f"set {name} {value} ended with {program.status}: {program.stderr.strip()[-200:]}")

    settings = {"origin-limit": "24", "slots": "64", "workers": "3", "inline-bytes": "65536", "origin-spacing": "0",
                "cache-size": "67108864", "requests-per-client": "1000000", "requests": "2000000", "cool-down": "600",
                "spool-size": "10737418240", "spool-free": "1048576"}
    """What holds when nothing is disturbed."""

    def heal(self):
        """Takes everything back, and sets everything again: a serve that was started anew or read its files again
        has only what it was started with."""
        self.take_back(everything=True)
        self._settings.put(None)
        self._setter.join()
        for name, value in self.settings.items():
            self._set(name, value)
