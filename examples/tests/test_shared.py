"""The example libraries as other users of a shared bus: they find and trust its folder, and read bodies over the connection."""

import contextlib
import os
import pathlib
import shutil
import tempfile
import unittest

from languages import LANGUAGES  # This import sets the path for the next three.
from support.harness import Bus, TestCase
from support.origin import Origin, body
from support.processes import Program

DAEMON = 1
LARGE = 1_500_000
SHARING = [language for language in LANGUAGES if language.pulls]


@contextlib.contextmanager
def folder_in(parent, mode):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ear-", dir=parent))
    folder.chmod(mode)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class SharedCases:
    """`fetch` of a language as the user `daemon`, with a bus of root."""

    language = None

    def setUp(self):
        programs = self.language.built
        programs.parent.chmod(0o755)
        self.origin = self.enterContext(Origin())

    def fetch(self, runtime, target, *arguments):
        command = ["setpriv", f"--reuid={DAEMON}", f"--regid={DAEMON}", "--clear-groups",
                   *self.language.commands["fetch"].split(), *arguments, self.origin.url + target]
        environment = {"PATH": os.environ["PATH"], "HOME": "/", "LANG": "C.UTF-8"}
        if runtime:
            environment["EARSHOT_RUNTIME"] = str(runtime)
        program = Program(command, environment, self.language.built)
        program.status = program.wait()
        return program

    def test_bodies_come_although_the_files_of_the_bus_are_closed(self):
        with folder_in("/run", 0o755) as folder, Bus(workers=1, folder=folder, arguments=["--users", "daemon"]) as bus:
            for size in (LARGE, 1000, 0):
                for arguments in ((), ("--pull",)):
                    program = self.fetch(bus.runtime, f"/bytes/{size}", *arguments)
                    self.assertEqual(program.status, 0, program.describe())
                    self.assertTrue(program.stdout == body(size), f"{size} bytes {arguments}")
            ledger = self.balance(bus.client())["deliveries"]
            self.assertEqual((ledger["acknowledged"], ledger["lost"]), (6, 0))

    @unittest.skipIf(pathlib.Path("/run/earshot").exists(), "this machine has a bus of the system")
    def test_the_bus_of_the_system_is_found_without_variables(self):
        link = pathlib.Path("/run/earshot")
        self.addCleanup(shutil.rmtree, link, ignore_errors=True)
        with folder_in("/run", 0o755) as folder, Bus(workers=1, folder=folder, arguments=["--users", "daemon"]) as bus:
            link.mkdir(mode=0o755)
            # A second name of the socket, in a folder of root: a symbolic link to the folder is not trusted.
            os.link(bus.runtime / "bus", link / "bus")
            program = self.fetch(None, "/bytes/70000")
            self.assertEqual((program.status, program.stdout == body(70_000)), (0, True), program.describe())

    def test_a_folder_that_another_user_could_have_made_is_not_trusted(self):
        with folder_in("/tmp", 0o1777) as parent, folder_in(parent, 0o755) as folder:
            with Bus(workers=1, folder=folder, arguments=["--users", "daemon"]) as bus:
                # A folder of root may be in a sticky one; that of another user may not.
                self.assertEqual(self.fetch(bus.runtime, "/bytes/1").status, 0)
                os.chown(folder, 65534, 65534)
                program = self.fetch(bus.runtime, "/bytes/1")
                self.assertEqual(program.status, 69, program.describe())
                self.assertIn(self.language.distrust, program.stderr)
                os.chown(folder, 0, 0)


@unittest.skipUnless(os.geteuid() == 0, "programs of other users need root")
class Root(TestCase):
    pass


def load_tests(loader, _tests, _pattern):
    """Creates the test classes of each language, such as CSharedTests."""
    suite = unittest.TestSuite()
    for language in SHARING:
        name = f"{language.name.capitalize()}SharedTests"
        suite.addTests(loader.loadTestsFromTestCase(
            type(name, (SharedCases, Root), {"language": language, "__module__": __name__})))
    return suite


if __name__ == "__main__":
    unittest.main()
