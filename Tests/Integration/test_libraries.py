"""The programs name in notes each library that they load at run time: `bin/package` takes its dependencies from them."""

import re
import subprocess
import sys
import unittest

from support.harness import ROOT, binary, web

sys.path.insert(0, str(ROOT / "packaging"))

import libraries  # noqa: E402

SOURCES = ROOT / "Sources"
SONAME = re.compile(r'"(lib[\w-]+\.so[\w.]*)')


def texts(*endings):
    return {path: path.read_text() for ending in endings for path in sorted(SOURCES.rglob(f"*{ending}"))}


class LibraryTests(unittest.TestCase):
    def test_the_command_names_each_library_of_the_sources(self):
        notes = libraries.notes(binary())
        named = [soname for library in notes for soname in library["soname"]]
        self.assertEqual(sorted(named), sorted(name for text in texts(".c", ".h").values() for name in SONAME.findall(text)))
        for library in notes:
            self.assertEqual(set(library), {"soname", "priority", "feature", "description"}, library)
            self.assertIn(library["priority"], {"required", "recommended", "suggested"})
        features = [library["feature"] for library in notes]
        self.assertEqual(len(set(features)), len(features))

    def test_earshot_web_names_only_the_library_of_clients(self):
        self.assertEqual([library["soname"] for library in libraries.notes(web())], [["libzmq.so.5"]])

    def test_nothing_loads_a_library_without_a_note(self):
        """Only CLoader calls dlopen, with names that have notes. The version report loads libraries that are linked or named."""
        callers = {str(path.relative_to(SOURCES)) for path, text in texts(".c", ".h", ".swift").items() if re.search(r"\bdlopen\([^)]", text)}
        self.assertEqual(callers, {"CLoader/loader.c", "EarshotLoop/System/SharedLibrary.swift"})
        dynamic = subprocess.run(["readelf", "--dynamic", "--wide", binary()], text=True, capture_output=True, check=True).stdout
        known = set(re.findall(r"Shared library: \[(.*?)\]", dynamic)) | {library["soname"][0] for library in libraries.notes(binary())}
        reported = {name for text in texts(".swift").values() for name in re.findall(r'\bSharedLibrary\("(.*?)"', text)}
        self.assertGreater(len(reported), 5)
        self.assertLessEqual(reported, known)


if __name__ == "__main__":
    unittest.main()
