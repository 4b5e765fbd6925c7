"""Outputs in a sticky folder of several users, such as /tmp: entries of other users are not followed, opened or replaced."""

import os
import stat

from test_users import Case, DAEMON, NOBODY

#: Exit code for an output that cannot be written.
CANNOT_WRITE = 23
REFUSED = rf"belongs to user {DAEMON}, and others can put files into its folder( \(write-failed\))?; give a path in a folder of your own"
#: Arguments of each option that writes to a path, after the path of an entry and the URL.
OPTIONS = {
    "-o": lambda entry, url: ["get", "-o", entry, url],
    "--continue": lambda entry, url: ["get", "--continue", "-o", entry, url],
    "-d, name": lambda entry, url: ["get", "-d", entry.parent, "--out-template", entry.name, url],
    "--continue -d": lambda entry, url: ["get", "--continue", "-d", entry.parent, "--out-template", entry.name, url],
    "-c": lambda entry, url: ["get", "-c", entry, "-o", "/dev/null", url],
    "--dump-header": lambda entry, url: ["get", "--dump-header", entry, "-o", "/dev/null", url],
    "--failed": lambda entry, url: ["get", "--failed", entry, "-o", "/dev/null", url],
    "--log": lambda entry, url: ["submit", "-d", entry.parent / "bodies", "--log", entry, url],
}
#: Options for a folder, which may be a link.
FOLDER_OPTIONS = {
    "-d": lambda entry, url: ["get", "-d", entry, url],
    "-o, folder": lambda entry, url: ["get", "-o", entry / "file", url],
    "watch -d": lambda entry, url: ["watch", "--until-done", "-d", entry, "none"],
}


class SharedFolderTests(Case):
    def setUp(self):
        super().setUp()
        self.users = self.bus("--users", "nobody")
        self.home = self.folder / "home"
        self.home.mkdir()
        os.chown(self.home, NOBODY, NOBODY)
        self.url = f"{self.origin.url}/bytes/10"
        self.count = 0

    def shared(self, mode):
        """Returns a new folder of root that the user's group may write to."""
        self.count += 1
        folder = self.folder / f"shared{self.count}"
        folder.mkdir()
        os.chown(folder, 0, NOBODY)
        folder.chmod(mode)
        return folder

    def put(self, entry, kind, owner):
        if kind == "link":
            entry.symlink_to(self.home / "target")
        elif kind == "fifo":
            os.mkfifo(entry)
        else:
            entry.write_text("before")
        os.lchown(entry, owner, NOBODY)
        if kind != "link":
            entry.chmod(0o666)

    def run_as(self, user, arguments):
        return self.command(user, self.users, *map(str, arguments))

    def check_refused(self, user, arguments, entry):
        before = entry.lstat()
        reader = os.open(entry, os.O_RDONLY | os.O_NONBLOCK) if stat.S_ISFIFO(before.st_mode) else None
        done = self.run_as(user, arguments)
        self.assertEqual(done.status, CANNOT_WRITE, done.describe())
        self.assertRegex(done.stderr, REFUSED)
        after = entry.lstat()
        for field in ("st_ino", "st_mode", "st_uid", "st_size"):
            self.assertEqual(getattr(after, field), getattr(before, field), field)
        self.assertFalse(os.listdir(self.home), "nothing was written through a link")
        if reader is not None:
            self.assertEqual(os.read(reader, 1), b"")
            os.close(reader)
        elif stat.S_ISREG(before.st_mode):
            self.assertEqual(entry.read_text(), "before")

    def test_an_entry_of_another_user_is_refused(self):
        for mode in (0o1777, 0o1770):
            for kind in ("link", "fifo", "file"):
                for option, arguments in OPTIONS.items():
                    with self.subTest(mode=oct(mode), kind=kind, option=option):
                        entry = self.shared(mode) / "entry"
                        self.put(entry, kind, DAEMON)
                        self.check_refused(NOBODY, arguments(entry, self.url), entry)

    def test_root_is_refused_as_well(self):
        for option, arguments in OPTIONS.items():
            with self.subTest(option=option):
                folder = self.shared(0o1777)
                os.chown(folder, NOBODY, NOBODY)
                self.put(folder / "entry", "file", DAEMON)
                self.check_refused(0, arguments(folder / "entry", self.url), folder / "entry")

    def test_a_link_to_a_folder_is_refused(self):
        for mode in (0o1777, 0o1770):
            for option, arguments in FOLDER_OPTIONS.items():
                with self.subTest(mode=oct(mode), option=option):
                    entry = self.shared(mode) / "entry"
                    entry.symlink_to(self.home)
                    os.lchown(entry, DAEMON, NOBODY)
                    self.check_refused(NOBODY, arguments(entry, self.url), entry)

    def test_a_link_of_the_user_or_of_the_owner_of_the_folder_is_followed(self):
        for owner in (NOBODY, 0):
            for option in ("-o", "--continue", "-c", "--dump-header", "--failed", "--log"):
                with self.subTest(owner=owner, option=option):
                    entry = self.shared(0o1777) / "entry"
                    self.put(entry, "link", owner)
                    done = self.run_as(NOBODY, OPTIONS[option](entry, self.url))
                    self.assertEqual(done.status, 0, done.describe())
                    self.assertTrue(entry.is_symlink())
                    self.assertEqual((self.home / "target").stat().st_uid, NOBODY)
                    (self.home / "target").unlink()
            for option in ("-d", "-o, folder"):
                with self.subTest(owner=owner, option=option):
                    entry = self.shared(0o1777) / "entry"
                    entry.symlink_to(self.home)
                    os.lchown(entry, owner, NOBODY)
                    done = self.run_as(NOBODY, FOLDER_OPTIONS[option](entry, self.url))
                    self.assertEqual(done.status, 0, done.describe())
                    [written] = self.home.iterdir()
                    written.unlink()

    def test_without_the_sticky_bit_a_link_of_another_user_is_followed(self):
        """The owner of such a folder, and everybody who may write to it, can replace each entry anyway."""
        entry = self.shared(0o777) / "entry"
        self.put(entry, "link", DAEMON)
        done = self.run_as(NOBODY, OPTIONS["-o"](entry, self.url))
        self.assertEqual(done.status, 0, done.describe())
        self.assertEqual((self.home / "target").stat().st_size, 10)
