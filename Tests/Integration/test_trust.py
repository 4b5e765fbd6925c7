"""Folders that another user could have prepared, or could change, are not used by any role."""

import os
import shutil
import socket
import stat
import unittest

from support.harness import Bus, Commands, TestCase, temporary_folder
from support.origin import Origin, body
from support.processes import eventually

#: The user `nobody`, or any other than this one.
OTHER_USER = 65534
STORES = {"--spool": "broker.lock", "--cache-folder": "index.sqlite", "--durable-folder": "requests.sqlite"}


class Case(TestCase):
    def setUp(self):
        self.folder = temporary_folder()
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.commands = Commands(self.folder / "run", self.folder)

    def make(self, path, mode=0o700):
        """Creates a folder with exactly this mode."""
        path.mkdir(parents=True)
        path.chmod(mode)
        return path

    def serve(self, *arguments):
        """Runs `earshot serve`, which is expected to refuse and end by itself."""
        return self.commands.run("serve", "--workers", "1", "--runtime", self.folder / "run", *arguments)


class RuntimeFolderTests(Case):
    def unsafe_runtimes(self):
        """Creates untrustworthy runtime folders, each with a listener behind both endpoints."""
        linked = self.make(self.folder / "behind")
        self.listen(linked)
        (self.folder / "link").symlink_to(linked)
        yield self.folder / "link", "symbolic link"
        for mode in (0o710, 0o750, 0o701, 0o777):
            folder = self.make(self.folder / f"mode-{mode:o}", mode)
            self.listen(folder)
            yield folder, "chmod 700"
        if not os.geteuid():
            folder = self.make(self.folder / "other")
            self.listen(folder)
            os.chown(folder, OTHER_USER, OTHER_USER)
            yield folder, "belongs to another user"

    def listen(self, folder):
        self.listeners = {}
        for name in ("bus", "work"):
            listener = socket.socket(socket.AF_UNIX)
            self.addCleanup(listener.close)
            listener.bind(str(folder / name))
            listener.listen()
            listener.setblocking(False)
            self.listeners[name] = listener

    def assertNobodyCame(self):
        for listener in self.listeners.values():
            with self.assertRaises(BlockingIOError):
                listener.accept()

    def test_a_worker_does_not_connect_in_a_folder_that_is_not_its_users_alone(self):
        for folder, reason in self.unsafe_runtimes():
            with self.subTest(folder=folder.name):
                worker = self.commands.run("worker", "--runtime", folder)
                self.assertEqual(worker.status, 73, worker.describe())
                self.assertIn(reason, worker.stderr)
                self.assertNobodyCame()

    def test_nor_does_a_worker_with_a_program_or_a_command(self):
        for folder, reason in self.unsafe_runtimes():
            for arguments in (["work", "--scheme", "a", "--runtime", folder, "--", "true"],
                              ["status", "--runtime", folder]):
                with self.subTest(folder=folder.name, command=arguments[0]):
                    program = self.commands.run(*arguments)
                    self.assertEqual(program.status, 69, program.describe())
                    self.assertIn(reason, program.stderr)
                    self.assertNobodyCame()

    def test_nor_does_a_broker_serve_there(self):
        for folder, reason in self.unsafe_runtimes():
            before = stat.S_IMODE(folder.stat().st_mode)
            for role in ("broker", "serve"):
                with self.subTest(folder=folder.name, role=role):
                    program = self.commands.run(role, "--runtime", folder)
                    self.assertEqual(program.status, 73, program.describe())
                    self.assertIn(reason, program.stderr)
                    self.assertEqual(stat.S_IMODE(folder.stat().st_mode), before)

    def test_a_worker_that_waits_for_a_broker_looks_again_before_it_connects(self):
        worker = self.commands.start("worker", "--runtime", self.folder / "later", "--log-level", "debug")
        self.addCleanup(worker.kill)
        worker.await_line("no broker to connect to")
        self.make(self.folder / "later.new", 0o777)
        self.listen(self.folder / "later.new")
        (self.folder / "later.new").rename(self.folder / "later")
        worker.await_line("is not trusted")
        self.assertNobodyCame()


class StoreTests(Case):
    def unsafe_folders(self, option):
        """Creates folders that others can write to, or replace."""
        yield self.make(self.folder / f"{option}-everybodys", 0o777), "others may write"
        yield self.make(self.folder / f"{option}-groups", 0o770), "others may write"
        own = self.make(self.folder / f"{option}-own")
        link = self.folder / f"{option}-link"
        link.symlink_to(own)
        yield link, "symbolic link"
        yield self.make(self.folder / f"{option}-open", 0o777) / "inner", "others may replace"
        if not os.geteuid():
            other = self.make(self.folder / f"{option}-other")
            os.chown(other, OTHER_USER, OTHER_USER)
            yield other, "belongs to another user"
            parent = self.make(self.folder / f"{option}-parent", 0o755)
            inner = self.make(parent / "inner")
            os.chown(parent, OTHER_USER, OTHER_USER)
            yield inner, "others may replace"

    def test_a_folder_that_others_may_write_is_refused_and_left_as_it_was(self):
        for option in STORES:
            for folder, reason in self.unsafe_folders(option):
                with self.subTest(option=option, folder=folder.name):
                    before = stat.S_IMODE(folder.stat().st_mode) if folder.exists() else None
                    program = self.serve(option, folder)
                    self.assertEqual(program.status, 73, program.describe())
                    self.assertIn(reason, program.stderr)
                    self.assertIn(str(folder), program.stderr)
                    if before is not None:
                        self.assertEqual(list(folder.iterdir()), [])
                        self.assertEqual(stat.S_IMODE(folder.stat().st_mode), before)

    def test_a_planted_link_does_not_make_a_file_elsewhere_a_database(self):
        victim = self.folder / "victim"
        for option, name in STORES.items():
            with self.subTest(option=option):
                victim.write_bytes(b"")
                folder = self.make(self.folder / f"planted{option}")
                (folder / name).symlink_to(victim)
                program = self.serve(option, folder)
                self.assertEqual(program.status, 73, program.describe())
                self.assertIn(name, program.stderr)
                self.assertEqual(victim.read_bytes(), b"")

    def test_a_folder_that_others_may_read_is_closed_and_used(self):
        folders = {option: self.make(self.folder / f"open{option}", 0o755) for option in STORES}
        with Bus(workers=1, arguments=[text for pair in folders.items() for text in pair]):
            for option, folder in folders.items():
                self.assertEqual(stat.S_IMODE(folder.stat().st_mode), 0o700, option)
                eventually((folder / STORES[option]).exists, f"{option} is used")

    def test_a_parent_that_is_sticky_or_a_link_of_ones_own_is_no_danger(self):
        sticky = self.make(self.folder / "sticky", 0o1777)
        (self.folder / "way").symlink_to(sticky)
        with Origin() as origin, Bus(workers=1, arguments=["--spool", self.folder / "way" / "spool"]) as bus:
            client = bus.client()
            client.fetch("a", 1, f"{origin.url}/bytes/100000")
            self.assertResult(client.terminal(), body(100_000))
            self.assertEqual(stat.S_IMODE((sticky / "spool").stat().st_mode), 0o700)

    def test_get_goes_without_a_cache_that_others_may_write_or_replace(self):
        written = self.make(self.folder / "one" / "earshot" / "cache", 0o777)
        replaced = self.make(self.folder / "other", 0o777)
        for home, reason in ((self.folder / "one", f"others may write to the folder {written}"),
                             (replaced, f"since they can change {replaced}")):
            with self.subTest(home=home.name), Origin() as origin:
                self.commands.environment["XDG_CACHE_HOME"] = str(home)
                got = self.commands.run("get", f"{origin.url}/bytes/9")
                self.assertEqual((got.status, got.stdout), (0, body(9)), got.describe())
                self.assertIn(reason, got.stderr)
        self.assertEqual(list(written.iterdir()) + list(replaced.iterdir()), [])

    def test_a_folder_for_temporary_files_that_others_could_replace_things_in_is_passed_over(self):
        temporary = self.make(self.folder / "temporary", 0o777)
        self.commands.environment["TMPDIR"] = str(temporary)
        with Origin() as origin:
            got = self.commands.run("get", f"{origin.url}/bytes/9")
        self.assertEqual((got.status, got.stdout), (0, body(9)), got.describe())

    def test_nor_do_the_commands_about_the_cache_read_it(self):
        cache = self.make(self.folder / "cache", 0o777)
        for action in ("stat", "list", "verify", "clear"):
            with self.subTest(action=action):
                program = self.commands.run("cache", action, "--cache-folder", cache)
                self.assertEqual(program.status, 73, program.describe())
                self.assertIn("others may write", program.stderr)
                self.assertEqual(list(cache.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
