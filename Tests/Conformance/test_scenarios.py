"""Plays the scenarios of `protocols/scenarios` against the broker and each client library, and requires each to fail
under injected faults. The runs are in parallel, each with a bus of its own, since most of their time is waiting."""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import tempfile

import play
import checkout
from adapters import ADAPTERS
from play import chosen, problem
from scenario import SCENARIOS, Block, Fault, Scenario, all_scenarios
from support.harness import PYTHON, Bus, TestCase
from tampering import KINDS, Tampering

POSITIONS = 4
"""Number of messages at the beginning of a scenario to which each fault is applied in turn. A scenario must notice one
of them, not all: some messages may come in any order."""

PARTS = 2
"""Number of buses on which the scenarios of a library are played with a fault."""

FORM = (SCENARIOS / "README.md").read_text()
CLIENT = "".join((checkout.ROOT / "protocols" / f"{name}.md").read_text()
                 for name in ("1-core", "1-requests", "2-sessions", "3-bodies", "5-durable", "7-reference",
                              "administration"))


def play_all(adapter):
    """Returns (scenario, problem) for all scenarios of an adapter; None is the broker itself."""
    with Bus(workers=1) as bus:
        return [(scenario, problem(scenario, bus, adapter)) for scenario in chosen(adapter)]


def notices(scenario, bus, adapter, kind):
    """Whether the scenario fails because of this fault in one of its first messages."""
    for number in range(1, POSITIONS + 1):
        tampering = Tampering(kind, number)
        if problem(scenario, bus, adapter, tampering) and tampering.done:
            return True
    return False


def unnoticed(kind, adapter, scenarios):
    with Bus(workers=1) as bus:
        return [scenario for scenario in scenarios if not notices(scenario, bus, adapter, kind)]


def play_broken(kind):
    """Returns the scenarios that do not notice a fault. The Python and Swift libraries play the scenarios of their kinds,
    the C library only those for libraries that give up."""
    names = {adapter.name: adapter for adapter in ADAPTERS}
    plays = [(None, chosen(None)), *((names[name], chosen(names[name])) for name in ("python", "swift"))]
    plays.append((names["c"], [scenario for scenario in chosen(names["c"]) if scenario.only_for]))
    # A dropped message is noticed at the end of a wait.
    parts = [(kind, adapter, scenarios[first::PARTS]) for adapter, scenarios in plays for first in range(PARTS)]
    with concurrent.futures.ThreadPoolExecutor(len(parts)) as pool:
        return [scenario for found in pool.map(lambda part: unnoticed(*part), parts) for scenario in found]


class SideBySide(TestCase):
    """Starts all work of a class at once, with one test for each piece."""

    work = {}

    @classmethod
    def setUpClass(cls):
        pool = cls.enterClassContext(concurrent.futures.ThreadPoolExecutor(len(cls.work)))
        cls.begun = {name: pool.submit(*call) for name, call in cls.work.items()}


class PlayTests(SideBySide):
    work = {"broker": (play_all, None), **{adapter.name: (play_all, adapter) for adapter in ADAPTERS}}

    def played(self, name):
        outcomes = self.begun[name].result()
        self.assertGreater(len(outcomes), 15)
        for scenario, what in outcomes:
            with self.subTest(scenario):
                self.assertIsNone(what, what)


class BrokenTests(SideBySide):
    work = {kind: (play_broken, kind) for kind in KINDS}

    def unnoticed(self, kind):
        self.assertEqual([str(scenario) for scenario in self.begun[kind].result()], [])


def _add_tests(case, method, sentence):
    """Adds a test for each piece of a class's work."""
    for name in case.work:
        def test(self, name=name):
            getattr(self, method)(name)
        setattr(case, f"test_{sentence.format(name)}", test)


_add_tests(PlayTests, "played", "{}_does_as_the_scenarios_say")
_add_tests(BrokenTests, "unnoticed", "no_scenario_passes_if_messages_{}")


class FormTests(TestCase):
    """The form of the files."""

    def lines(self, steps):
        for step in steps:
            if isinstance(step, Block):
                yield from self.lines(step.steps)
            else:
                yield step

    def test_each_verb_of_the_protocol_is_in_a_scenario(self):
        spoken = {step.text.split(" ")[0] for scenario in all_scenarios() for step in self.lines(scenario.steps)}
        verbs = re.findall(r'^\w+ += %s"([A-Z]+)"', CLIENT, re.MULTILINE)
        self.assertGreater(len(verbs), 20)
        self.assertEqual([verb for verb in verbs if verb not in spoken], [])

    def test_a_library_leaves_out_only_what_is_for_the_other_kind(self):
        everything = {str(scenario) for folder in ("library", "stand-in") for scenario in all_scenarios(folder)}
        for adapter in ADAPTERS:
            left_out = everything - {str(scenario) for scenario in chosen(adapter)}
            other = "give up" if adapter.reconnects else "reconnect"
            self.assertEqual(left_out, {str(s) for s in all_scenarios() if s.only_for == other}, adapter.name)
        self.assertEqual({path.parent.name for path in SCENARIOS.glob("*/*")}, {"broker", "library", "stand-in"})

    def test_each_scenario_has_gates_of_its_own(self):
        users = {}
        for scenario in all_scenarios():
            for name in set(re.findall(r"/(?:gate|steps)/([a-z-]+)", scenario.path.read_text())):
                users.setdefault(name, []).append(str(scenario))
        self.assertGreater(len(users), 20)
        self.assertEqual({name: found for name, found in users.items() if len(found) > 1}, {})

    def test_each_path_of_a_scenario_is_documented(self):
        paths = {path for scenario in all_scenarios()
                 for path in re.findall(r"\$origin(/[a-z]+)", scenario.path.read_text())}
        self.assertEqual([path for path in sorted(paths) if f"`{path}" not in FORM], [])

    def test_a_message_that_no_step_receives_fails_the_scenario(self):
        with tempfile.TemporaryDirectory() as folder, Bus(workers=1) as bus:
            path = pathlib.Path(folder, "written.txt")
            path.write_text("# title\na sends HELLO EAR/1\na receives WELCOME EAR/1\na sends REMOVE nothing\n")
            self.assertIn("REMOVED nothing 0", problem(Scenario(path), bus))

    def test_a_refusal_that_no_step_receives_fails_the_scenario(self):
        """The question after it has a number, so that its answer is no refusal."""
        with tempfile.TemporaryDirectory() as folder, Bus(workers=1) as bus:
            path = pathlib.Path(folder, "written.txt")
            greeting = "# title\na sends HELLO EAR/1\n    lease: 60\na receives WELCOME EAR/1\n"
            for rest, found in (("a receives nothing\n", None), ("a sends REMOVE nothing\na receives nothing\n", "bad-message"),
                                ("a sends REMOVE nothing\n", "bad-message")):
                with self.subTest(rest):
                    path.write_text(greeting + rest)
                    self.assertIn(found or "None", str(problem(Scenario(path), bus)))

    def test_an_adapter_from_elsewhere_is_given_on_the_command_line(self):
        examples = checkout.ROOT / "examples" / "python"

        def played(adapter, *names):
            return subprocess.run([PYTHON, "-B", play.__file__, "--reconnects", "--adapter", adapter, *names],
                                  env={**os.environ, "PYTHONPATH": str(examples)}, text=True, capture_output=True, check=False)

        done = played(f"{PYTHON} -B '{examples}/tests/adapter.py'", "removal", "redelivery")
        self.assertEqual((done.returncode, done.stdout), (0, "library/removal: passed\nstand-in/redelivery: passed\n"),
                         done.stderr)
        self.assertEqual(played("true", "removal").returncode, 1)

    def test_what_cannot_be_read_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            for text in ("a sends HELLO EAR/1\n", "# title\na\n", "# title\na sends X\n  two: spaces\n"):
                path = pathlib.Path(folder, "bad.txt")
                path.write_text(text)
                with self.assertRaises(Fault):
                    Scenario(path)

    def test_a_step_that_nobody_knows_is_no_step_that_passes(self):
        with tempfile.TemporaryDirectory() as folder, Bus(workers=1) as bus:
            path = pathlib.Path(folder, "written.txt")

            def played(text):
                path.write_text(f"# title\na sends HELLO EAR/1\na receives WELCOME EAR/1\n{text}\n")
                return problem(Scenario(path), bus)

            self.assertIsNone(played("    window: 256\n    broker: *"))
            for text in ("a sings", "origin forgets /bytes/1", "broker sings", "program sings", "    window: 255",
                         "    colour: *", "    [without broker]", "    [nobody knows]", "a sends FETCH a 1 $unknown"):
                with self.subTest(text):
                    self.assertIsNotNone(played(text))
