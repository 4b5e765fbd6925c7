"""`bin/docs man` writes a manual page of each subcommand, which has all its options and no fault of form."""

import json
import os
import re
import shutil
import subprocess
import unittest

from support.harness import ROOT, binary, temporary_folder, web
from support.tools import tool

IGNORED = "operating system explicitly specified"
"""Hint of mandoc for pages of NetBSD itself. The pages show Earshot's version in this place."""


def run(*arguments, **environment):
    return subprocess.run([str(one) for one in arguments], env={**os.environ, **environment}, text=True, capture_output=True,
                          timeout=120, check=False)


class ManTests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = temporary_folder()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        done = run(ROOT / "bin/docs", "man", cls.folder, EARSHOT_BINARY=binary(), EARSHOT_WEB=web())
        if done.returncode:
            raise AssertionError(f"bin/docs man ended with {done.returncode}: {done.stderr}")
        cls.pages = sorted(cls.folder.glob("man?/*"))
        cls.program = json.loads(run(binary(), "--experimental-dump-help").stdout)["command"]

    def shown(self, name, section=1):
        """Returns a page as text, each run of spaces as one."""
        done = run(tool("mandoc", "mandoc"), "-T", "utf8", "-O", "width=1000", self.folder / f"man{section}/{name}.{section}")
        self.assertEqual(done.returncode, 0, done.stderr)
        return re.sub(r"\s+", " ", re.sub(".\x08", "", done.stdout))

    def commands(self):
        return [one for one in self.program["subcommands"] if one["shouldDisplay"] and one["commandName"] != "help"]

    def test_each_subcommand_has_a_page_with_all_its_options(self):
        whole = self.shown("earshot")
        for command in self.commands():
            name = f"earshot-{command['commandName']}"
            self.assertIn(f"{name}(1)", whole)
            page = self.shown(name)
            for one in [command, *command.get("subcommands", [])]:
                self.assertIn(one["commandName"], page)
                self.check_options(name, page, one)

    def check_options(self, name, page, command):
        for argument in command.get("arguments", []):
            for option in argument.get("names", []) if argument["shouldDisplay"] else []:
                text = ("-" if option["kind"] == "short" else "--") + option["name"]
                self.assertRegex(page, rf"(?<![\w-]){text}(?![\w-])", f"{name} lacks {text}")

    def test_the_page_of_earshot_web_has_its_options_resources_and_exit_codes(self):
        page = self.shown("earshot-web")
        self.check_options("earshot-web", page, json.loads(run(web(), "--experimental-dump-help").stdout)["command"])
        for word in ("/metrics", "/readyz", "EARSHOT_RUNTIME", "64", "73", "78"):
            self.assertIn(f" {word} ", page)
        self.assertIn("earshot-web(1)", self.shown("earshot"))

    def test_the_page_of_the_program_has_all_exit_codes_variables_and_files(self):
        page = self.shown("earshot")
        for topic in ("exit-codes", "environment", "files"):
            terms = re.findall(r"^  (\S+(?: \S+)*)", run(binary(), "help", topic).stdout, re.MULTILINE)
            self.assertGreater(len(terms), 4)
            for term in terms:
                self.assertIn(f" {term} ", page)

    def test_the_page_of_the_configuration_has_each_setting_with_its_default(self):
        page = self.shown("earshot.toml", 5)
        config = run(binary(), "config", XDG_CONFIG_HOME=str(self.folder)).stdout
        settings = [line.split()[:2] for line in config.splitlines()]
        self.assertGreater(len(settings), 20)
        for name, value in settings:
            # The first two depend on the machine.
            default = "" if name in ("workers", "worker-memory") else f" Default: {re.escape(value)}\\."
            self.assertRegex(page, rf" {name} [A-Z][^.]*\.{default}")

    def test_the_page_of_the_protocols_has_each_verb(self):
        page = self.shown("earshot-protocol", 7)
        texts = [path.read_text() for path in sorted((ROOT / "protocols").glob("*.md"))]
        headings = [verbs for text in texts for verbs in re.findall(r"^### ([A-Z, ]+)$", text, re.MULTILINE)]
        self.assertGreater(len(headings), 30)
        for verb in ", ".join(headings).split(", "):
            self.assertRegex(page, rf"\b{verb}\b")

    def test_no_page_has_a_fault_of_form(self):
        self.assertGreater(len(self.pages), 10)
        done = run(tool("mandoc", "mandoc"), "-T", "lint", "-W", "style", *self.pages)
        faults = [line for line in done.stdout.splitlines() if IGNORED not in line]
        self.assertEqual(faults, [])

    def test_groff_formats_each_page_without_a_warning(self):
        for page in self.pages:
            done = run(tool("man", "man-db"), "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", page, LC_ALL="C.UTF-8",
                       MANWIDTH="80")
            self.assertEqual((done.returncode, done.stderr), (0, ""), page)


if __name__ == "__main__":
    unittest.main()
