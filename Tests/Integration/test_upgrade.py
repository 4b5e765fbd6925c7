"""An orderly end of a bus and a restart: no client loses or repeats anything."""

import json
import shutil
import signal

from support.harness import Bus, Commands, TestCase, temporary_folder
from support.origin import Origin, body


class UpgradeTests(TestCase):
    COUNT, FIRST = 1000, 300

    def test_get_gets_all_1000_once_over_an_upgrade(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        options = {"folder": folder, "workers": 2, "slots": 16, "origin_limit": 16, "arguments": ["--drain-seconds", "600"]}
        # Not one of the bus's processes, which must be gone at its end.
        commands = Commands(folder / "run", folder)
        with Origin() as origin:
            # The bus ends during the work, however late SIGTERM arrives: later requests wait until it has ended.
            urls = [f"{origin.url}/first/{self.FIRST}/rest?bytes=700&seed={index}" for index in range(self.COUNT)]
            (folder / "list").write_text("\n".join(urls) + "\n")
            with Bus(**options) as old:
                getting = commands.start("get", "--no-spawn", "-i", folder / "list", "-d", folder / "out", "--json")
                origin.await_total(self.FIRST)
                client = old.client()
                old.program.signal(signal.SIGTERM)
                client.expect("GOODBYE")
                origin.open_gate("rest")
                self.assertEqual(old.program.wait(), 0, old.program.describe())
            done = origin.total
            self.assertLess(done, self.COUNT, "it ended in the middle")
            origin.await_running(0)
            self.assertEqual([request.target for request in origin.log() if request.aborted], [], "and cut nothing off")
            with Bus(**options):
                self.assertEqual(getting.wait(60), 0, getting.describe())
            written = [json.loads(line)["url"] for line in getting.stdout.splitlines()]
            self.assertEqual(sorted(written), sorted(urls), "one line for each")
            found = {path.read_bytes() for path in (folder / "out").iterdir()}
            self.assertTrue(found == {body(700, index) for index in range(self.COUNT)}, "all bytes right")
            self.assertEqual(origin.total, self.COUNT, "each was fetched once: what ran at the end was delivered")
            commands.await_no_survivors()
