"""`bin/docs man` writes a manual page of each subcommand, which has all its options and no fault of form."""

import json
import os
import re
import shutil
import subprocess
import unittest

from support.harness import ROOT, binary, temporary_folder
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
        done = run(ROOT / "bin/docs", "man", cls.folder, EARSHOT_BINARY=binary())
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
                for argument in one.get("arguments", []):
                    for option in argument.get("names", []) if argument["shouldDisplay"] else []:
                        text = ("-" if option["kind"] == "short" else "--") + option["name"]
                        self.assertRegex(page, rf"(?<![\w-]){text}(?![\w-])", f"{name} lacks {text}")

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
