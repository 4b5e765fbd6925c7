"""A bus in the session directory of its user is found without XDG_RUNTIME_DIR, which cron(8) and su(1) do not set."""

import json
import os
import pathlib
import unittest

from support.harness import Commands, TestCase, binary, temporary_folder
from support.origin import Origin, body
from support.processes import Program

LIBRARY = pathlib.Path(__file__).parents[2] / "examples/python"
#: $1: mode of the session directory. $2: program. All in a namespace with a /run of its own.
SCRIPT = """
mount -t tmpfs tmpfs /run && mkdir /run/user && session=/run/user/$(id -u) && mkdir -m 700 "$session" || exit 99
XDG_RUNTIME_DIR=$session "$2" serve --workers 1 --no-cache --ready-fd 3 3>ready &
until [ -s ready ]; do sleep 0.01; done
chmod "$1" "$session"
"$2" status --json >status; echo $? >code
/usr/bin/python3 -c 'from earshot_bus import _folders; print(_folders.runtime_folder(None))' >folder
"$2" get --no-spawn -o got "$3"; echo $? >>code
kill $! && wait
"""


@unittest.skipUnless(os.geteuid() == 0, "a mount namespace needs root")
class SessionFolderTests(TestCase):
    def in_session(self, mode):
        """Runs clients beside a bus in a session directory with this mode. Returns their folder."""
        folder = temporary_folder()
        commands = Commands(folder / "run", folder)
        self.addCleanup(commands.await_no_survivors)
        environment = {name: value for name, value in commands.environment.items()
                       if name not in ("EARSHOT_RUNTIME", "XDG_RUNTIME_DIR")}
        environment["PYTHONPATH"] = str(LIBRARY)
        run = Program(["unshare", "--mount", "sh", "-c", SCRIPT, "sh", mode, binary(), f"{self.origin.url}/bytes/9"],
                      environment, folder)
        self.assertEqual(run.wait(60), 0, run.describe())
        return folder

    def setUp(self):
        self.origin = self.enterContext(Origin())

    def test_clients_find_the_bus_there(self):
        folder = self.in_session("700")
        self.assertEqual((folder / "code").read_text().split(), ["0", "0"])
        self.assertEqual(json.loads((folder / "status").read_text())["phase"], "serving")
        self.assertEqual((folder / "got").read_bytes(), body(9))
        self.assertEqual((folder / "folder").read_text(), f"/run/user/{os.geteuid()}/earshot\n")

    def test_a_directory_that_others_can_change_is_not_used(self):
        folder = self.in_session("777")
        self.assertEqual((folder / "code").read_text().split(), ["69", "69"])
        self.assertNotIn("/run/user", (folder / "folder").read_text())
