"""Carries out the decisions of the schedule on the running processes, and reverts each when its time is over."""

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
"""Seconds until the next life of a killed client starts."""
SET_TRIES = 3
LOOK_SECONDS = 0.1
"""Poll interval while waiting for the replacement of a killed process, in seconds."""
SERVE_SECONDS = 25
"""Maximum time of a graceful shutdown of serve, in seconds."""


class Hand:
    """The disturber of a run. The caller calls `act` at the time of each decision, and `undo` as often as
    possible."""

    def __init__(self, bus, fleet, disk, timeline, plan_end):
        self.bus = bus
        self.fleet = fleet
        self.disk = disk
        self.timeline = timeline
        self.plan_end = plan_end
        self.violations = []
        self.done = {}
        self._later = []
        self._order = itertools.count()
        # Not those of the bus: they may outlive it and wait for the next one.
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
        """Carries out a decision, if it has a target."""
        if self._acts[decision.kind](decision) is None:
            self.done[decision.kind] = self.done.get(decision.kind, 0) + 1

    def undo(self, everything=False):
        """Reverts the states whose time is over, or all."""
        due = [entry for entry in self._later if everything or entry[0] <= time.monotonic()]
        self._later = [entry for entry in self._later if entry not in due]
        heapq.heapify(self._later)
        for _, _, call in sorted(due, key=lambda entry: entry[:2]):
            call()

    @property
    def next_end(self):
        """Time of the next reversal; None if there is none."""
        return self._later[0][0] if self._later else None

    def _at(self, seconds, call):
        heapq.heappush(self._later, (time.monotonic() + seconds, next(self._order), call))

    def pids(self, role):
        """Returns the children of the supervisor with the role `broker` or `worker`."""
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
        # The supervisor delays the restart of a process after each further death.
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
                pass  # Killed meanwhile, by this program or by the broker.
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
        """Sends SIGTERM, awaits the end, and starts the next serve."""
        self.undo(everything=True)
        state = self.timeline.begin_disturbance("serve", "SIGTERM of serve")
        self.bus.program.signal(signal.SIGTERM)
        status = self.bus.program.wait(SERVE_SECONDS)
        if status != 0:
            self.violations.append(f"serve ended with {status} after SIGTERM\n{self.bus.program.describe()}")
        self._start_again(state)

    def kill_serve(self, _):
        """Sends SIGKILL, checks that all processes of the bus died, and starts the next serve."""
        self.undo(everything=True)
        state = self.timeline.begin_disturbance("serve", "kill -9 of serve")
        self.bus.kill()
        self._start_again(state)

    def _start_again(self, state):
        self.keep_log()
        self.bus.await_no_survivors()
        self.bus.__enter__()
        self.timeline.end_disturbance(state, "the next serve is ready")

    def keep_log(self):
        """Saves the output of serve, and reports crashes in it."""
        program = self.bus.program
        with open(self.fleet.folder / "serve.log", "a") as file:
            file.write(program.stderr)
        if program.crash_lines:
            self.violations.append("a process crashed: " + "\n".join(program.crash_lines[:20]))

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
        """Starts the next life of a killed client, if there is time for one."""
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

    # Disk and settings.

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
        """Applies settings in order, in a separate thread: a change waits for the next broker while there is none."""
        while (change := self._settings.get()) is not None:
            name, value, state = change
            self._set(name, value)
            if state:
                self.timeline.end_disturbance(state, f"set {name} {value} again")

    def _set(self, name, value):
        """Changes a setting by the command, as users do."""
        for _ in range(SET_TRIES):
            program = self._commands.run("set", name, value, timeout=60)
            if program.status == 0:
                return
            self.timeline.note(f"set {name} {value} ended with {program.status}: {program.stderr.strip()[-200:]}")

    settings = {"origin-limit": "24", "slots": "64", "workers": "3", "inline-bytes": "65536", "origin-spacing": "0",
                "cache-size": "67108864", "requests-per-client": "1000000", "requests": "2000000", "cool-down": "600",
                "spool-size": "10737418240", "spool-free": "1048576"}
    """Settings without disturbances."""

    def heal(self):
        """Reverts everything, and applies all settings again: a restarted or reloaded serve has only the settings
        of its start."""
        self.undo(everything=True)
        self._settings.put(None)
        self._setter.join()
        for name, value in self.settings.items():
            self._set(name, value)
