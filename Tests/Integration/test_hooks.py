"""Programs that commands run for results: --exec."""

import hashlib
import json
import os
import pathlib
import re
import signal

from support.harness import Bus, TestCase
from support.origin import Origin, body
from support.processes import eventually, kill

MANUAL = pathlib.Path(__file__).parents[2] / "docs/command-line.md"
# Writes its arguments and environment as a line of JSON.
RECORD = """#!/usr/bin/python3
import json, os, sys
names = [name for name in os.environ if name.startswith("EARSHOT_")]
line = json.dumps({"arguments": sys.argv[1:], **{name[8:].lower(): os.environ[name] for name in names}})
with open("told", "a") as told:
    told.write(line + "\\n")
"""
# Notes its process and waits for a writer of the pipe `gate`.
WAIT = """#!/bin/sh
echo $$ >>running
exec cat gate
"""


class HookTests(TestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.bus = self.enterContext(Bus(workers=1))
        self.folder = self.bus.folder
        for name, text in (("tell", RECORD), ("wait", WAIT)):
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o700)
        os.mkfifo(self.folder / "gate")

    def records(self):
        path = self.folder / "told"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def running(self):
        path = self.folder / "running"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def test_get_runs_a_program_with_values_that_cannot_become_arguments(self):
        hostile = f"{self.origin.url}/bytes/5?x=$(touch%20made);--help&y='a%20b'"
        missing = f"{self.origin.url}/status/404"
        got = self.bus.run("get", "-d", "out", "--exec", "./tell -- {}", "--handler", "hooks/a", hostile, missing)
        self.assertEqual(got.status, 2, got.describe())
        records = {line["url"]: line for line in self.records()}
        self.assertEqual(set(records), {hostile, missing})
        done, failed = records[hostile], records[missing]
        self.assertEqual(done["arguments"], ["--", "out/5"])
        self.assertEqual([done[name] for name in ("handler", "state", "status", "cause", "file")],
                         ["hooks/a", "done", "200", "", "out/5"])
        self.assertEqual(failed["arguments"], ["--", ""])
        self.assertEqual([failed[name] for name in ("state", "status", "cause", "file")],
                         ["failed", "404", "http-status", ""])
        self.assertFalse((self.folder / "made").exists())

    def test_the_help_and_the_manual_name_each_variable(self):
        url = f"{self.origin.url}/bytes/5"
        self.bus.run("submit", "--durable", "--handler", "hooks/v", url)
        for command in (["get", url], ["watch", "--count", "1", "hooks/v"]):
            got = self.bus.run(*command, "-d", "out", "--exec", "./tell {}")
            self.assertEqual(got.status, 0, got.describe())
        inherited = {name for name in self.bus.environment if name.startswith("EARSHOT_")}
        given = {f"EARSHOT_{name.upper()}" for line in self.records() for name in line if name != "arguments"} - inherited
        self.assertGreaterEqual(len(given), 8)
        documented = set(re.findall(r"^\| (`EARSHOT_.*?) \|", MANUAL.read_text(), re.MULTILINE))
        documented = {name for cell in documented for name in re.findall(r"EARSHOT_\w+", cell)}
        self.assertEqual(documented, given | {"EARSHOT_PRINCIPAL"}, "that one is for on-complete")
        text = self.bus.run("watch", "--help").stdout.decode()
        self.assertEqual(set(re.findall(r"EARSHOT_\w+", text)) & (given | documented), given)

    def test_a_program_that_fails_changes_nothing(self):
        got = self.bus.run("get", "-d", "out", "--exec", "false", f"{self.origin.url}/bytes/6")
        self.assertEqual(got.status, 0, got.describe())
        self.assertIn("failed: exit code 1", got.stderr)
        self.assertEqual((self.folder / "out" / "6").read_bytes(), body(6))
        missing = self.bus.run("get", "--exec", "./none {}", f"{self.origin.url}/bytes/6")
        self.assertEqual(missing.status, 66, missing.describe())
        self.assertEqual(self.origin.count("/bytes/6"), 1, "without the program nothing is requested")

    def test_four_programs_run_at_once_and_ctrl_c_ends_them(self):
        urls = [f"{self.origin.url}/bytes/{number}" for number in range(1, 11)]
        get = self.bus.start("get", "-d", "out", "--exec", "./wait", *urls)
        eventually(lambda: len(list((self.folder / "out").glob("*"))) == 10, "all bodies are there")
        running = eventually(lambda: len(self.running()) >= 4 and self.running(), "the programs run")
        self.assertEqual(len(running), 4)
        os.kill(get.pid, signal.SIGINT)
        self.assertEqual(get.wait(), 130, get.describe())
        eventually(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in running), "they end")

    def test_a_durable_result_is_acknowledged_after_its_program(self):
        self.bus.run("submit", "--durable", "--handler", "hooks/b", f"{self.origin.url}/bytes/7")
        watch = self.bus.start("watch", "-d", "out", "--exec", "./wait", "--count", "1", "hooks/b")
        eventually(self.running, "the program runs")
        os.kill(self.running()[0], signal.SIGSTOP)
        watch.signal(signal.SIGKILL)
        # The program has the pipes of the killed command.
        os.kill(self.running()[0], signal.SIGKILL)
        watch.wait()
        watch = self.bus.run("watch", "-d", "out", "--exec", "./tell {}", "--count", "1", "hooks/b")
        self.assertEqual(watch.status, 0, watch.describe())
        self.assertEqual([line["arguments"] for line in self.records()], [["out/7"]])
        self.assertEqual([path.name for path in (self.folder / "out").iterdir()], ["7"], "the body has one file")

    def test_a_bus_runs_the_program_of_its_configuration_for_each_request_that_ends(self):
        file, url = self.folder / "bus.toml", self.origin.url
        file.write_text(f'on-complete = ["{self.folder}/tell", "an argument"]\n')
        before = self.bus.run("get", f"{url}/bytes/1")
        self.assertEqual(before.status, 0, before.describe())
        with Bus(workers=1, arguments=("--config", file)) as bus:
            records = bus.folder / "told"
            read = lambda: [json.loads(line) for line in records.read_text().splitlines()] if records.exists() else []
            bus.run("get", "--handler", "hooks/d", f"{url}/bytes/5", f"{url}/status/404", "-d", "out")
            bus.run("submit", "--durable", "--handler", "hooks/e", f"{url}/bytes/6")
            eventually(lambda: len(read()) == 3, "three programs ran")
            ends = {line["url"]: line for line in read()}
            done, failed = ends[f"{url}/bytes/5"], ends[f"{url}/status/404"]
            self.assertEqual(done["arguments"], ["an argument"])
            self.assertEqual([done[name] for name in ("handler", "state", "status", "length", "file")],
                             ["hooks/d", "done", "200", "5", ""])
            self.assertEqual(done["sha256"], hashlib.sha256(body(5)).hexdigest())
            self.assertEqual([failed[name] for name in ("state", "status", "cause")], ["failed", "404", "http-status"])
            self.assertEqual(ends[f"{url}/bytes/6"]["handler"], "hooks/e")
            bus.run("drop", "hooks/e")

            kill(bus.broker)
            eventually(lambda: bus._pids("broker"), "another broker")
            bus.run("get", f"{url}/bytes/7", "-o", "seven")
            eventually(lambda: len(read()) == 4, "the next broker reports too")

            for text, line in (("on-complete = []\n", "read again"), ('on-complete = ["/none"]\n', "stay as they are")):
                file.write_text(text)
                bus.program.signal(signal.SIGHUP)
                bus.program.await_line(line)
            bus.run("get", f"{url}/bytes/8", "-o", "eight")
            file.write_text('on-complete = ["false"]\n')
            bus.program.signal(signal.SIGHUP)
            eventually(lambda: bus.program.stderr.count("read again") == 2, "the file is read")
            bus.run("get", f"{url}/bytes/9", "-o", "nine")
            bus.program.await_line("on-complete: false for ")
            self.assertEqual(len(read()), 4)
        file.write_text('on-complete = ["/none"]\n')
        serve = self.bus.run("serve", "--config", file, "--runtime", self.folder / "other")
        self.assertEqual(serve.status, 78, serve.describe())
        self.assertIn("on-complete: cannot execute /none", serve.stderr)

    def test_submit_passes_the_program_to_its_process(self):
        submit = self.bus.run("submit", "-d", "out", "--exec", "./tell {}", "--handler", "hooks/c", f"{self.origin.url}/bytes/8")
        self.assertEqual(submit.status, 0, submit.describe())
        records = eventually(self.records, "the program ran")
        self.assertEqual(records[0]["arguments"], [str(self.folder / "out" / "8")])
        self.assertEqual(self.bus.run("submit", "--exec", "true", f"{self.origin.url}/bytes/8").status, 64)
