"""`bin/setup --bench` installs the package of each program that a suite starts."""

import ast
import pathlib
import re
import shutil
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from bench import folders  # noqa: E402

PACKAGES = {
    "aria2c": "aria2", "curl": "curl", "gearmand": "gearman-job-server", "ip": "iproute2", "nginx": "nginx-light",
    "openssl": "openssl", "redis-server": "redis-server", "squid": "squid", "valgrind": "valgrind", "varnishd": "varnish",
    "wget2": "wget2", "zurl": "zurl",
}
ALWAYS = {"git", "setpriv", "swift", "xargs"}
"""Programs of essential packages and of the packages for each build, and the toolchain that `bin/setup` itself asks for."""


def first_words(text):
    """Returns the first words of the lists in a module, which are commands among others."""
    lists = [node.elts for node in ast.walk(ast.parse(text)) if isinstance(node, ast.List) and node.elts]
    return {first.value for first, *_ in lists if isinstance(first, ast.Constant) and isinstance(first.value, str)}


class SetupTests(unittest.TestCase):
    def test_each_program_of_a_suite_has_a_package(self):
        modules = (folders.ROOT / "Tests/Bench/bench").rglob("*.py")
        words = set().union(*(first_words(module.read_text()) for module in modules))
        self.assertIn("redis-server", words)
        programs = {word for word in words if re.fullmatch(r"[a-z][a-z0-9-]+", word) and shutil.which(word)}
        self.assertEqual(programs - set(PACKAGES) - ALWAYS, set(), "add the program to PACKAGES and its package to bin/setup")

    def test_the_setup_installs_them(self):
        branch = (folders.ROOT / "bin/setup").read_text().partition("--bench)\n")[2].partition(";;")[0]
        self.assertEqual(set(PACKAGES.values()) - set(re.findall(r"[a-z0-9-]+", branch)), set())


if __name__ == "__main__":
    unittest.main()
