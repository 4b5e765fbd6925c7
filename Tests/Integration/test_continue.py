"""`get --continue`: interrupted bodies grow over several runs, and a file holds bytes of one version only. The bus itself keeps
large bodies, so any repeated command continues them."""

import os
import pathlib
import signal

from support.harness import Bus, Commands, TestCase, temporary_folder, remove_folder
from support.origin import Origin
from support.parts import Version
from support.processes import eventually


class ContinueTests(TestCase):
    SIZE = 600_000

    @classmethod
    def setUpClass(cls):
        cls.origin = cls.enterClassContext(Origin())
        cls.bus = cls.enterClassContext(Bus(arguments=("--no-cache",)))

    def publish(self, name, plan, **options):
        """Publishes a file; `plan` lists the plans of its responses, the last one for all further ones."""
        steps = iter(plan)
        last = [{}]

        def planned(number, start):
            last[0] = next(steps, last[0])
            return last[0]

        return self.origin.publish(name, self.SIZE, name, plan=planned, **options)

    @staticmethod
    def reads(pid):
        """Returns the number of spool files that a process has open."""
        found = 0
        for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            try:
                found += "/spool/" in os.readlink(entry)
            except OSError:
                continue  # It was closed meanwhile.
        return found

    def interrupt(self, *arguments, files=1):
        """Runs a command until it reads its files, and interrupts it."""
        get = self.bus.start("get", "--continue", *arguments)
        eventually(lambda: self.reads(get.pid) == files, "the bodies arrive")
        get.signal(signal.SIGINT)
        self.assertEqual(get.wait(), 130, get.describe())
        return get.stderr

    def url(self, name):
        return f"{self.origin.url}/parts/{name}"

    def test_a_part_grows_with_each_run_and_is_joined_by_its_own_version_alone(self):
        out = self.bus.folder / "grown"
        held = [{"held": 200_000, "gate": "never"}, {"held": 200_000, "gate": "never"}]
        lies = [{"lie": lie} for lie in ("tag", "weak", "start", "total", "early")]
        published = self.publish("grown", [*held, *lies, {}])
        first = published.version.content
        lengths = []
        for _ in range(2):
            message = self.interrupt("-o", out, self.url("grown"))
            self.assertRegex(message, r"interrupted: [0-9.]+ KiB of 1 file kept; repeat the command to continue\n")
            lengths.append(out.stat().st_size)
            self.assertTrue(out.read_bytes() == first[:lengths[-1]])
        self.assertTrue(0 < lengths[0] < lengths[1] <= 400_000, lengths)
        for lie in lies:
            refused = self.bus.run("get", "--continue", "-o", out, self.url("grown"), "--retries", "0")
            self.assertEqual((refused.status, out.stat().st_size), (23, lengths[1]), f"{lie} {refused.describe()}")
        self.assertEqual(self.bus.run("get", "--continue", "-o", out, self.url("grown")).status, 0)
        self.assertTrue(out.read_bytes() == first)
        last = self.SIZE - 1
        self.assertEqual(published.ranges, [None, f"bytes={lengths[0]}-{last}", *[f"bytes={lengths[1]}-{last}"] * (len(lies) + 1)])

    def test_a_part_of_an_old_version_is_replaced(self):
        out = self.bus.folder / "old"
        new = Version(self.SIZE, "new")
        self.publish("old", [{"held": 200_000, "gate": "never"}, {"version": new, "held": 100_000, "gate": "never"}, {}])
        self.interrupt("-o", out, self.url("old"))
        self.interrupt("-o", out, self.url("old"))
        part = out.read_bytes()
        self.assertTrue(0 < len(part) <= 100_000 and new.content.startswith(part), f"{len(part)} bytes")
        self.assertEqual(self.bus.run("get", "--continue", "-o", out, self.url("old")).status, 0)
        self.assertTrue(out.read_bytes() == new.content)

    def test_a_complete_old_version_stays_until_the_new_one_is_complete(self):
        out = self.bus.folder / "whole"
        published = self.publish("whole", [{}, {"version": Version(self.SIZE, "next"), "held": 100_000, "gate": "never"}, {}])
        first = published.version.content
        self.assertEqual(self.bus.run("get", "--continue", "-o", out, self.url("whole")).status, 0)
        message = self.interrupt("-o", out, self.url("whole"))
        self.assertTrue(out.read_bytes() == first)
        self.assertIn("of unfinished files not kept", message)
        self.assertEqual(self.bus.run("get", "--continue", "-o", out, self.url("whole")).status, 0)
        self.assertTrue(out.read_bytes() == published.version.content != first)

    def test_without_a_strong_validator_nothing_is_kept(self):
        out = self.bus.folder / "weak"
        self.publish("weak", [{"lie": "weak", "held": 200_000, "gate": "never"}])
        self.assertRegex(self.interrupt("-o", out, self.url("weak")), r"KiB of unfinished files not kept \(no strong validator\)")
        self.assertFalse(out.exists())

    def test_an_interrupted_list_keeps_each_part(self):
        out = self.bus.folder / "list"
        names = [f"list-{number}" for number in range(3)]
        held = {name: self.publish(name, [{"held": 150_000, "gate": "never"}, {}]) for name in names}
        self.interrupt("-d", out, *map(self.url, names), files=3)
        parts = {name: (out / name).read_bytes() for name in names}
        self.assertTrue(all(0 < len(part) and held[name].version.content.startswith(part) for name, part in parts.items()))
        self.assertEqual(self.bus.run("get", "--continue", "-d", out, *map(self.url, names)).status, 0)
        self.assertTrue(all((out / name).read_bytes() == held[name].version.content for name in names))
        self.assertEqual([held[name].ranges[1] for name in names], [f"bytes={len(parts[name])}-{self.SIZE - 1}" for name in names])

    def test_a_private_bus_keeps_what_arrived(self):
        folder = temporary_folder()
        self.addCleanup(remove_folder, folder)
        commands = Commands(folder / "run", folder)
        self.addCleanup(commands.await_no_survivors)
        published = self.publish("private", [{"held": 200_000, "gate": "never"}, {}])
        get = commands.start("get", "--no-cache", "--continue", "-o", "kept", self.url("private"))
        eventually(lambda: self.reads(get.pid) == 1, "the body arrives")
        get.signal(signal.SIGINT)
        self.assertEqual(get.wait(), 130, get.describe())
        self.assertRegex(get.stderr, r"KiB of 1 file kept; repeat the command to continue")
        part = (folder / "kept").read_bytes()
        self.assertTrue(part and published.version.content.startswith(part))
        self.assertEqual(commands.run("get", "--no-cache", "--continue", "-o", "kept", self.url("private")).status, 0)
        self.assertTrue((folder / "kept").read_bytes() == published.version.content)


class KeptBodiesTests(TestCase):
    SIZE = 4 << 20
    HELD = 3 << 20
    """Above 1 MiB, from which on the bus keeps a partial body."""
    REST = f"bytes={HELD}-{SIZE - 1}"

    @classmethod
    def setUpClass(cls):
        cls.origin = cls.enterClassContext(Origin())

    def publish(self, *names):
        """Publishes files whose first response never ends."""
        def planned(number, start):
            return {} if number else {"held": self.HELD, "gate": "never"}

        return [self.origin.publish(name, self.SIZE, name, plan=planned) for name in names]

    def urls(self, names):
        return [f"{self.origin.url}/parts/{name}" for name in names]

    def interrupt(self, commands, cases, number=signal.SIGINT):
        """Runs `get` for each list of arguments and number of files, and interrupts it once these files have HELD bytes."""
        gets = [(commands.start("get", *arguments), files) for arguments, files in cases]
        for get, files in gets:
            get.await_line("3.0 MiB of 4.0 MiB" if files == 1 else f"0/{files} files, {3 * files}.0 MiB")
            get.signal(number)
        for get, files in gets:
            self.assertEqual(get.wait(), 130, get.describe())
            kept = "1 file" if files == 1 else f"{files} files"
            self.assertIn(f"earshot: interrupted: {3 * files}.0 MiB of {kept} kept; repeat the command to continue\n", get.stderr)
        return [get for get, _ in gets]

    def check(self, published, paths):
        for one, path in zip(published, paths, strict=True):
            self.assertTrue(path.read_bytes() == one.version.content, path)
            self.assertEqual(one.ranges, [None, self.REST])

    def test_private_buses_keep_bodies_of_files_lists_and_pipes(self):
        folder = temporary_folder()
        self.addCleanup(remove_folder, folder)
        commands = Commands(folder / "run", folder)
        commands.environment["XDG_CACHE_HOME"] = str(folder / "cache")
        self.addCleanup(commands.await_no_survivors)
        names = ["file", "first", "second", "pipe"]
        published = self.publish(*names)
        file, first, second, pipe = self.urls(names)
        cases = [(["-o", "file", file], 1), (["-d", "list", first, second], 2), (["--no-cache", pipe], 1)]
        *_, piped = self.interrupt(commands, cases)
        self.assertFalse((folder / "file").exists())
        self.assertTrue(piped.stdout == published[3].version.content[:self.HELD], f"{len(piped.stdout)} bytes")
        for arguments, files in cases:
            get = commands.run("get", *arguments)
            self.assertEqual(get.status, 0, get.describe())
            self.assertRegex(get.stderr, f"continued {'' if files == 1 else '2 files '}at {3 * files}\\.0 MiB\n$")
        (folder / "pipe").write_bytes(get.stdout)
        self.check(published, [folder / "file", folder / "list/first", folder / "list/second", folder / "pipe"])

    def test_a_running_bus_keeps_bodies_in_place_of_the_destination(self):
        with Bus(arguments=("--no-cache",)) as bus:
            names = ["plain", "continued"]
            published = self.publish(*names)
            plain, continued = self.urls(names)
            cases = [(["-o", "plain", plain], 1), (["--continue", "-o", "continued", continued], 1)]
            self.interrupt(bus, cases, signal.SIGTERM)
            self.assertFalse((bus.folder / "plain").exists() or (bus.folder / "continued").exists())
            eventually(lambda: len(list((bus.runtime / "parts").glob("*.body"))) == 2, "the bus has both bodies")
            for arguments, _ in cases:
                get = bus.run("get", "-v", *arguments)
                self.assertEqual(get.status, 0, get.describe())
                self.assertIn(": resumed at 3.0 MiB\n", get.stderr)
                self.assertRegex(get.stderr, r"earshot: 1 file, 4\.0 MiB in .*, continued at 3\.0 MiB\n$")
            self.check(published, [bus.folder / "plain", bus.folder / "continued"])

    def test_without_parts_nothing_is_kept(self):
        with Bus(arguments=("--parts-size", "0")) as bus:
            self.publish("none")
            get = bus.start("get", "-o", "none", *self.urls(["none"]))
            get.await_line("3.0 MiB of 4.0 MiB")
            get.signal(signal.SIGINT)
            self.assertEqual(get.wait(), 130, get.describe())
            self.assertNotIn("kept", get.stderr)
