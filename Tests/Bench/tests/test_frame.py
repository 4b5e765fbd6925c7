"""The framework: statistics, targets, tables, arguments and failures."""

import contextlib
import io
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from bench import against, cpu, folders, programs, suites, table  # noqa: E402
from bench.__main__ import main  # noqa: E402
from bench.frame import Contender, Context, Failed, Measurement, Sample, Spread, Target  # noqa: E402


def fixed(name, values, is_ours=False, extra=None):
    """A contender with these values, one for each round."""
    return Contender(name, f"run {name}", lambda number: Sample(values[number], extra or {}), is_ours)


def failing(name, is_ours=False):
    def run(_):
        raise Failed("it is\nbroken")
    return Contender(name, f"run {name}", run, is_ours)


class Rounds(unittest.TestCase):
    def test_contenders_take_turns_and_each_round_begins_with_the_next(self):
        calls = []

        def contender(name):
            return Contender(name, name, lambda number: calls.append(f"{name}{number}") or Sample(1))
        Measurement("", "", [contender("a"), contender("b"), contender("c")]).run(4)
        self.assertEqual(calls, ["a0", "b0", "c0", "b1", "c1", "a1", "c2", "a2", "b2", "a3", "b3", "c3"])

    def test_rounds_continue_after_those_of_another_run(self):
        measurement = Measurement("", "", [fixed("a", [1, 2, 3]), fixed("b", [4, 5, 6])]).run(1, first=2)
        self.assertEqual((measurement.figures("a"), measurement.figures("b")), ({2: 3}, {2: 6}))

    def test_who_failed_is_not_asked_again_and_the_others_are(self):
        calls = []

        def run(number):
            calls.append(number)
            raise Failed("no")
        measurement = Measurement("", "", [Contender("a", "", run), fixed("b", [1, 2, 3])]).run(3)
        self.assertEqual(calls, [0])
        self.assertEqual(measurement.failures, {"a": "no"})
        self.assertEqual(measurement.figures("b"), {0: 1, 1: 2, 2: 3})

    def test_a_fault_of_the_suite_is_told_with_its_place(self):
        measurement = Measurement("", "", [Contender("a", "", lambda _: {}["key"])]).run(1)
        self.assertRegex(measurement.failures["a"], r"^KeyError: 'key' \(test_frame.py:\d+\)$")


class Pairs(unittest.TestCase):
    def test_the_ratio_of_pairs_is_the_mean_with_its_standard_error(self):
        mean, error = against.ratio([(1, 1), (4, 2), (9, 3)])
        self.assertAlmostEqual(mean, 2)
        self.assertAlmostEqual(error, 1 / 3**0.5)
        self.assertTrue(math.isnan(against.ratio([(1, 1)])[1]))


class Figures(unittest.TestCase):
    def test_the_ratio_is_that_within_a_round_and_its_median_is_told(self):
        # The ratio of the medians would be 10.
        measurement = Measurement("", "", [fixed("we", [10, 100, 20], True), fixed("it", [10, 50, 1])]).run(3)
        self.assertEqual(measurement.ratio("we", "it"), Spread(2, 1, 20))

    def test_targets_are_ratios_differences_or_values_of_any_figure(self):
        we, it = fixed("we", [30], True, {"p99_us": 5}), fixed("it", [20], extra={"p99_us": 2})
        for target, found, reached in [
                (Target("we", "it", at_least=1.5), 1.5, True), (Target("we", "it", at_least=1.6), 1.5, False),
                (Target("we", "it", at_most=1.5), 1.5, True), (Target("we", "it", at_most=1.4), 1.5, False),
                (Target("we", "it", at_most=3, of="p99_us", by="difference"), 3, True),
                (Target("we", at_most=4, of="p99_us", by="value"), 5, False)]:
            measurement = Measurement("", "", [we, it], [target]).run(1)
            self.assertEqual(measurement.found(target).median, found, target)
            self.assertIs(measurement.is_reached(target), reached, target)

    def test_of_what_failed_no_target_is_known(self):
        target = Target("we", "it", at_least=1)
        measurement = Measurement("", "", [fixed("we", [1], True), failing("it")], [target]).run(1)
        self.assertIsNone(measurement.is_reached(target))
        self.assertIn("UNKNOWN", table.verdict(measurement, target))

    def test_wrong_targets_and_names_are_refused(self):
        for wrong in [lambda: Target("we", "it"), lambda: Target("we", "it", at_least=1, at_most=2),
                      lambda: Target("we", at_least=1), lambda: Target("we", "it", at_least=1, by="value"),
                      lambda: Measurement("", "", [fixed("a", []), fixed("a", [])]),
                      lambda: Measurement("", "", [fixed("a", [])], [Target("a", "b", at_least=1)])]:
            self.assertRaises(ValueError, wrong)


class Output(unittest.TestCase):
    def setUp(self):
        targets = [Target("we", "it", at_least=3), Target("we", "it", at_least=1)]
        self.measurement = Measurement("Files <1>", "files/s", [
            fixed("we", [1000, 3000, 2000], True, {"p99_us": 1.234}), fixed("it", [1000, 1000, 1000]),
            failing("broken")], targets).run(3)

    def test_the_table_tells_all_rows_commands_and_targets(self):
        lines = table.render(self.measurement)
        self.assertEqual([line for line in lines if line], [
            "## Files <1>",
            "|        | files/s |     min – max | we / it | p99, µs |",
            "| ------ | ------: | ------------: | ------: | ------: |",
            "| we     |   2,000 | 1,000 – 3,000 |         |    1.23 |",
            "| it     |   1,000 | 1,000 – 1,000 |  2.00 × |         |",
            "| broken |  failed |               |         |         |",
            "- we: `run we`", "- it: `run it`", "- broken: `run broken`", "  FAILED: it is broken",
            "- NOT REACHED: we: at least 3 × it; it is 2.00 (1.00 – 3.00)",
            "- reached: we: at least 1 × it; it is 2.00 (1.00 – 3.00)"])

    def test_the_json_has_each_sample_ratio_and_target(self):
        value = json.loads(json.dumps(self.measurement.as_json()))
        self.assertEqual(value["contenders"][0]["samples"][1], {"round": 1, "value": 3000, "p99_us": 1.234})
        self.assertEqual(value["contenders"][2]["failure"], "it is broken")
        self.assertEqual(value["ratios"][0], {"ours": "we", "peer": "it",
                                              "ratio": {"median": 2, "low": 1, "high": 3}})
        self.assertEqual([target["reached"] for target in value["targets"]], [False, True])


class Processes(unittest.TestCase):
    def test_the_cpu_of_another_process_is_counted(self):
        with programs.Server("busy", ["/bin/sh", "-c", "while :; do :; done"], tempfile.mkdtemp()) as server:
            with cpu.Meter([server.pid]) as meter:
                deadline = time.monotonic() + 10
                while cpu.seconds(server.pid) < 0.02 and time.monotonic() < deadline:
                    pass
            self.assertGreaterEqual(meter.seconds, 0.01)
            pid = server.pid
        self.assertEqual(cpu.seconds(pid), 0)

    def test_a_program_that_fails_or_does_not_end_is_an_error(self):
        self.assertEqual(programs.run(["sh", "-c", "echo a; echo b >&2"]).stdout, b"a\n")
        with self.assertRaisesRegex(Failed, "sh: status 3: sorry"):
            programs.run(["sh", "-c", "echo sorry >&2; exit 3"])
        with self.assertRaisesRegex(Failed, "no end in time"):
            programs.run(["sleep", "100"], timeout=0.05)

    def test_a_program_ends_with_the_processes_that_it_left_and_their_cpu_counts(self):
        with tempfile.TemporaryDirectory() as folder:
            busy = "import time, pathlib\nwhile time.process_time() < 0.1: pass\npathlib.Path('done').touch()"
            finished = programs.run(["sh", "-c", '"$0" -c "$1" & exit 0', sys.executable, busy], cwd=folder)
            self.assertTrue(pathlib.Path(folder, "done").exists())
            self.assertGreaterEqual(finished.cpu_seconds, 0.1)

    def test_a_server_that_ends_is_an_error_with_its_log(self):
        class Gone(programs.Server):
            def await_readiness(self):
                self.await_condition(lambda: False)
        with self.assertRaisesRegex(Failed, "gone ended: goodbye"):
            with Gone("gone", ["/bin/sh", "-c", "echo goodbye"], tempfile.mkdtemp()):
                pass

    def test_too_little_memory_for_the_outputs_is_an_error_that_says_what_to_do(self):
        with tempfile.TemporaryDirectory() as folder:
            for memory in (pathlib.Path(folder), pathlib.Path(folder, "missing")):
                with mock.patch("bench.folders.MEMORY", memory), self.assertRaisesRegex(Failed, f"{memory} has .* mount a larger"):
                    folders.check_room(1 << 60)
            with mock.patch("bench.folders.MEMORY", pathlib.Path(folder)):
                folders.check_room(1)

    def test_outputs_of_who_was_killed_are_removed_and_those_of_who_lives_are_not(self):
        gone = subprocess.Popen(["true"])
        gone.wait()
        with tempfile.TemporaryDirectory() as parent:
            left, lives, other = (pathlib.Path(parent, name) for name in (
                f"earshot-bench-{gone.pid}-x", f"earshot-bench-{os.getpid()}-x", "earshot-bench"))
            for folder in (left, lives, other):
                folder.mkdir()
            folders.remove_left_over(pathlib.Path(parent))
            self.assertEqual({entry.name for entry in pathlib.Path(parent).iterdir()}, {lives.name, other.name})


class Program(unittest.TestCase):
    """The program as bin/bench starts it, with one suite of the test."""

    def run_main(self, words, rows, names=("own",)):
        suite = mock.Mock(NAME="own", TITLE="Own things", rows=rows)
        with tempfile.TemporaryDirectory() as folder, \
                mock.patch("bench.folders.MADE", pathlib.Path(folder)), \
                mock.patch.object(suites, "NAMES", list(names)), mock.patch.object(suites, "load", lambda name: suite), \
                contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            try:
                status = main([*words, "--json", f"{folder}/it.json"])
            except SystemExit as end:
                status = end.code
            files = {entry.name: entry.read_text() for entry in pathlib.Path(folder).iterdir()}
        return status, out.getvalue(), err.getvalue(), files

    def test_table_and_json_are_written(self):
        def rows(context, quick):
            self.assertTrue(quick)
            yield context.measure("One", "files/s", [fixed("we", [1, 2], True), failing("peer")],
                                  [Target("we", at_least=2, by="value")])
        status, out, _, files = self.run_main(["own", "--quick", "--rounds", "2"], rows)
        self.assertEqual(status, 0)  # A peer's failure and a missed target are reported and are no errors.
        self.assertIn("FAILED: it is broken", out)
        self.assertIn("Targets: 0 reached, 1 not, 0 unknown.", out)
        self.assertEqual(json.loads(files["it.json"])["measurements"][0]["suite"], "own")

    def test_quick_without_names_runs_its_suites_and_fewer_rounds(self):
        ran = []

        def rows(context, quick):
            ran.append((quick, context.rounds))
            yield context.measure("One", "files/s", [fixed("we", [1] * 5, True)])
        for words, suites_and_rounds in [(["--quick"], [(True, 2)]), (["--quick", "all"], [(True, 2)] * 2), ([], [(False, 5)] * 2)]:
            with mock.patch.object(suites, "QUICK", ["own"]):
                self.assertEqual(self.run_main(words, rows, names=["own", "slow"])[0], 0)
            self.assertEqual(ran, suites_and_rounds, words)
            ran.clear()

    def test_two_programs_take_turns_and_their_ratios_are_printed(self):
        tried = []

        def rows(context, quick):
            tried.append((folders.earshot(), context.first, context.rounds))
            rate = 300 if folders.earshot() == "/bin/true" else 200
            yield context.measure("One", "files/s", [fixed("we", [rate + number for number in range(3)], True, {"cpu_us": 10})])
        with mock.patch.dict(os.environ, EARSHOT_BINARY="/bin/true"):
            status, out, _, files = self.run_main(["own", "--rounds", "3", "--against", "/bin/false"], rows)
        self.assertEqual((status, files), (0, {}))
        self.assertEqual(tried, [("/bin/true", 0, 1), ("/bin/false", 0, 1), ("/bin/false", 1, 1), ("/bin/true", 1, 1),
                                 ("/bin/true", 2, 1), ("/bin/false", 2, 1)])
        mean, error = against.ratio([(300, 200), (301, 201), (302, 202)])
        self.assertIn(f"| we |     301 |   201 | {mean:.3f} ± {error:.3f} |   10.00 | 10.00 | 1.000 ± 0.000 |", out)

    def test_a_failure_of_one_of_two_programs_is_an_error(self):
        def rows(context, quick):
            yield context.measure("One", "files/s", [failing("we", folders.earshot() == "/bin/false")])
        with mock.patch.dict(os.environ, EARSHOT_BINARY="/bin/true"):
            status, _, err, _ = self.run_main(["own", "--rounds", "1", "--against", "/bin/false"], rows)
        self.assertEqual(status, 1)
        self.assertIn("FAILED: we in One: it is broken", err)

    def test_what_fails_of_ours_is_an_error(self):
        def rows(context, quick):
            yield context.measure("One", "files/s", [failing("we", True)])
        status, _, err, _ = self.run_main(["own"], rows)
        self.assertEqual(status, 1)
        self.assertIn("FAILED: we in One", err)

    def test_a_suite_that_breaks_keeps_what_was_measured(self):
        def rows(context, quick):
            yield context.measure("One", "files/s", [fixed("we", [1] * 5, True)])
            raise OSError("no room")
        status, _, err, files = self.run_main([], rows)
        self.assertEqual(status, 1)
        self.assertIn("FAILED: own: no room", err)
        written = json.loads(files["it.json"])
        self.assertEqual((len(written["measurements"]), written["errors"]), (1, {"own": "no room"}))

    def test_each_published_table_has_a_file_with_the_machine_and_replaces_the_last_one(self):
        def rows(context, quick):
            yield context.measure("One", "files/s", [fixed("we", [1], True)])
        with tempfile.TemporaryDirectory() as folder, \
                mock.patch("bench.folders.RESULTS", pathlib.Path(folder, "results")), \
                mock.patch("bench.machine.lines", lambda description: ["2026, 2 cores", "earshot 1"]):
            for _ in range(2):
                status, out, _, _ = self.run_main(["own", "--publish", "--rounds", "1"], rows)
                self.assertEqual(status, 0)
                head, title, tables = out.partition("# own: Own things\n")
                self.assertEqual(head, "2026, 2 cores\n\nearshot 1\n\n")
                tables = tables.partition("Targets:")[0].rstrip()
                self.assertIn("## One\n", tables)
                self.assertEqual({entry.name for entry in folders.RESULTS.iterdir()}, {"own.md"})
                self.assertEqual((folders.RESULTS / "own.md").read_text(),
                                 f"# own: Own things\n\n2026, 2 cores\n\nearshot 1\n{tables}\n")

    def test_nothing_is_published_without_the_option(self):
        def rows(context, quick):
            yield context.measure("One", "files/s", [fixed("we", [1], True)])
        with tempfile.TemporaryDirectory() as folder, \
                mock.patch("bench.folders.RESULTS", pathlib.Path(folder, "results")):
            status, _, _, _ = self.run_main(["own", "--rounds", "1"], rows)
            self.assertEqual((status, folders.RESULTS.exists()), (0, False))

    def test_wrong_arguments_are_64(self):
        for words in [["nothing"], ["--rounds", "0"], ["--rounds", "x"], ["--what"], ["--publish", "--quick"],
                      ["--against", "/nothing"], ["--publish", "--against", "/bin/true"]]:
            status, _, err, files = self.run_main(words, None)
            self.assertEqual((status, files), (64, {}), words)
            self.assertIn("usage: bin/bench", err)

    def test_all_suites_load_and_have_titles(self):
        for name in suites.NAMES:
            suite = suites.load(name)
            self.assertEqual(suite.NAME, name)
            self.assertTrue(suite.TITLE and callable(suite.rows))


if __name__ == "__main__":
    unittest.main()
