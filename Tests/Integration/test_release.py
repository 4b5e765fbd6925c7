"""Linking of the release, and traces of the machine that built it.

These tests check only a program in a folder `release`, where bin/build puts it: EARSHOT_BINARY may name another one.
"""

import os
import pathlib
import re
import shutil
import subprocess
import unittest

from support import certificate
from support.harness import ROOT, Bus, TestCase, binary, temporary_folder
from support.origin import Origin

PROGRAM = pathlib.Path(os.path.realpath(binary()))
DEBUG = PROGRAM.with_name("earshot.debug")


@unittest.skipUnless(PROGRAM.parent.name == "release", f"{PROGRAM} is not in a folder `release`")
class ReleaseTests(TestCase):
    def readelf(self, *options, file=None):
        # readelf of Debian 12 exits with 1 for notes of a type that it does not know.
        done = subprocess.run(["readelf", "--wide", *options, file or PROGRAM], capture_output=True, text=True, errors="replace",
                              check=options != ("--notes",))
        return done.stdout

    def test_addresses_are_random_and_read_only_once_it_runs(self):
        self.assertRegex(self.readelf("--file-header"), r"Type: +DYN")
        dynamic = self.readelf("--dynamic")
        self.assertRegex(dynamic, r"FLAGS_1\).*NOW")
        self.assertRegex(dynamic, r"FLAGS_1\).*PIE")
        self.assertNotIn("(TEXTREL)", dynamic)
        self.assertNotRegex(dynamic, r"R(UN)?PATH", "no folder of libraries is built in")
        headers = self.readelf("--program-headers")
        self.assertRegex(headers, r"GNU_RELRO ")
        self.assertRegex(headers, r"GNU_STACK +(0x\w+ +){5}RW ")
        self.assertNotRegex(headers, r"LOAD .* RWE ")

    def test_symbols_are_in_a_file_of_their_own(self):
        sections = self.readelf("--sections")
        self.assertNotRegex(sections, r"\.symtab|\.debug_info")
        self.assertIn("earshot.debug", self.readelf("--string-dump=.gnu_debuglink"))
        debug_sections = self.readelf("--sections", file=DEBUG)
        self.assertRegex(debug_sections, r"\.symtab")
        self.assertRegex(debug_sections, r"\.debug_info")
        builds = [re.search("Build ID: (\\w+)", self.readelf("--notes", file=file))[1] for file in (PROGRAM, DEBUG)]
        self.assertEqual(*builds)

    def test_it_names_no_folder_of_the_build(self):
        self.assertFalse(str(ROOT).encode() in PROGRAM.read_bytes(), ROOT)


class LibraryTests(TestCase):
    def test_libcurl_comes_from_the_systems_folders_and_not_from_the_current_one(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder)
        (folder / "libcurl.so.4").write_bytes(b"no library")
        # The working folder of its processes is the folder of the bus.
        with Origin() as origin, Bus(workers=1, folder=folder) as bus:
            client = bus.client()
            client.fetch("h", 1, f"{origin.url}/bytes/5")
            self.assertEqual(client.terminal().verb, "RESULT")


class KeyLogTests(TestCase):
    """The secrets of TLS connections are logged only if the bus was configured to."""

    def setUp(self):
        self.folder = temporary_folder()
        self.addCleanup(shutil.rmtree, self.folder)
        paths = certificate.self_signed(self.folder)
        self.certificate = paths[0]
        self.origin = self.enterContext(Origin(certificate=paths))
        self.inherited, self.chosen = self.folder / "inherited", self.folder / "wished"

    def fetch(self, *arguments):
        with Bus(workers=1, environment={"SSLKEYLOGFILE": str(self.inherited)}, arguments=arguments) as bus:
            client = bus.client()
            client.fetch("h", 1, f"{self.origin.url}/bytes/5", ca_file=self.certificate)
            self.assertEqual(client.terminal().verb, "RESULT")

    def test_the_environments_file_is_not_written(self):
        self.fetch()
        self.assertFalse(self.inherited.exists())

    def test_a_file_that_was_asked_for_is_written(self):
        self.fetch("--tls-key-log", self.chosen)
        self.assertFalse(self.inherited.exists())
        self.assertRegex(self.chosen.read_text(), "(?m)^CLIENT_")
