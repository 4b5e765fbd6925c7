"""TAKE: a body in a file that no other has is moved to its destination; a shared one is copied."""

import hashlib
import mmap
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import tempfile
import unittest

from support.harness import Bus, Commands, TestCase, temporary_folder
from support.origin import Origin, body
from support.processes import eventually

MIB = 1 << 20
SIZE = 2 * MIB


def other_file_system(folder):
    """Returns a new folder on another file system than `folder`; None if there is no writable one."""
    for parent in ("/dev/shm", "/var/tmp", pathlib.Path.home()):
        if os.access(parent, os.W_OK) and os.stat(parent).st_dev != os.stat(folder).st_dev:
            return pathlib.Path(tempfile.mkdtemp(prefix="ear-", dir=parent))
    return None


class Case(TestCase):
    arguments = ["--no-cache"]

    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.bus = self.enterContext(Bus(workers=1, arguments=self.arguments))
        self.out = self.bus.folder / "out"
        self.out.mkdir()
        self.target = self.out / "file"
        self.url = f"{self.origin.url}/bytes/{SIZE}"

    def spooled(self):
        """Returns the names of bodies in the spool."""
        return {path.name for path in self.bus.spooled()}

    def await_empty_spool(self):
        eventually(lambda: not self.spooled(), lambda: f"an empty spool: {self.spooled()}")

    def assertContent(self, path, content):
        self.assertTrue(path.read_bytes() == content, path)

    def holder(self, **options):
        """Returns a client that acknowledges nothing and leaves files where they are."""
        client = self.bus.client(**options)
        client.take_files = False
        client.hold()
        return client


class MoveTests(Case):
    def get(self, *arguments, status=0):
        program = self.bus.run("get", *arguments)
        self.assertEqual(program.status, status, program.describe())
        return program

    def stopped(self, name, *arguments, bytes=SIZE):
        """Returns a `get` for a body that arrives when the gate is opened, stopped before that."""
        program = self.bus.start("get", *arguments, f"{self.origin.url}/gate/{name}?bytes={bytes}")
        eventually(lambda: self.origin.count(f"/gate/{name}") == 1, "it is fetched")
        program.signal(signal.SIGSTOP)
        self.origin.open_gate(name)
        eventually(lambda: any(len(file) == 64 for file in self.spooled()), "its body is there")
        return program

    def test_a_body_alone_is_moved_and_looks_as_if_it_had_been_made_there(self):
        (self.out / "other").write_bytes(b"")
        program = self.stopped("alone", "-o", self.target)
        (name,) = self.spooled()
        inode = os.stat(self.bus.spool / name).st_ino
        self.assertFalse(self.target.exists())
        program.signal(signal.SIGCONT)
        self.assertEqual(program.wait(), 0, program.describe())
        moved = os.stat(self.target)
        self.assertEqual(moved.st_ino, inode, "it is that file")
        self.assertEqual(moved.st_mode, os.stat(self.out / "other").st_mode)
        self.assertEqual(moved.st_nlink, 1)
        self.assertContent(self.target, body(SIZE))
        self.await_empty_spool()
        self.balance(self.bus.client())

    def test_a_new_file_has_the_permissions_of_the_umask_and_a_replaced_one_keeps_its_own(self):
        link = self.out / "link"
        link.symlink_to(self.target)
        for mode in (0o640, 0o600):
            program = subprocess.run(
                ["sh", "-c", 'umask 027; exec "$@"', "sh", os.environ.get("EARSHOT_BINARY") or self.program(), "get", "-o",
                 link, self.url], env=self.bus.environment, timeout=60, capture_output=True, text=True)
            self.assertEqual(program.returncode, 0, program.stderr)
            self.assertEqual(stat.S_IMODE(os.stat(self.target).st_mode), mode)
            self.target.chmod(0o600)
        self.assertTrue(link.is_symlink())
        self.assertContent(self.target, body(SIZE))
        self.assertEqual({path.name for path in self.out.iterdir()}, {"file", "link"})

    def program(self):
        from support.harness import binary

        return binary()

    def test_a_folder_that_gives_its_files_a_group_gets_a_new_file(self):
        self.out.chmod(0o2755)
        program = self.bus.start("get", "-o", self.target, f"{self.origin.url}/gate/group?bytes={SIZE}")
        self.origin.open_gate("group")
        self.assertEqual(program.wait(), 0, program.describe())
        self.assertContent(self.target, body(SIZE))
        self.await_empty_spool()

    def test_of_a_body_that_two_want_each_has_a_copy_of_its_own(self):
        url = f"{self.origin.url}/gate/two?bytes={SIZE}"
        others = self.out / "others"
        programs = [self.bus.start("get", "-o", path, url) for path in (self.target, others)]
        self.await_requests(self.bus.client(), pending=2)
        self.origin.open_gate("two")
        for program in programs:
            self.assertEqual(program.wait(), 0, program.describe())
        self.assertEqual(self.origin.count("/gate/two"), 1)
        self.assertNotEqual(os.stat(self.target).st_ino, os.stat(others).st_ino)
        with open(self.target, "r+b") as file:
            file.write(b"mine")
        self.assertContent(others, body(SIZE))
        self.await_empty_spool()

    def test_a_get_that_is_killed_before_it_has_moved_its_file_leaves_nothing(self):
        program = self.stopped("killed", "-o", self.target)
        program.signal(signal.SIGKILL)
        program.wait()
        self.await_empty_spool()
        self.assertEqual(list(self.out.iterdir()), [])

    def test_a_broker_that_is_killed_leaves_a_file_that_the_next_one_removes_and_it_is_fetched_again(self):
        program = self.stopped("broker", "-o", self.target)
        os.kill(self.bus.broker, signal.SIGKILL)
        eventually(lambda: not self.spooled(), "the next broker empties the spool")
        program.signal(signal.SIGCONT)
        self.assertEqual(program.wait(60), 0, program.describe())
        self.assertContent(self.target, body(SIZE))
        self.await_empty_spool()

    def test_on_another_file_system_it_is_copied(self):
        folder = other_file_system(self.bus.spool)
        if folder is None:
            self.skipTest("there is no other file system to write to")
        self.addCleanup(shutil.rmtree, folder)
        self.get("-o", folder / "file", self.url)
        self.assertContent(folder / "file", body(SIZE))
        self.get("-d", folder / "all", self.url, f"{self.origin.url}/bytes/{MIB}")
        self.assertContent(folder / "all" / str(SIZE), body(SIZE))
        self.assertContent(folder / "all" / str(MIB), body(MIB))
        self.assertEqual(stat.S_IMODE(os.stat(folder / "file").st_mode), 0o666 & ~self.umask())
        self.await_empty_spool()

    @staticmethod
    def umask():
        mask = os.umask(0o077)
        os.umask(mask)
        return mask

    def test_a_name_that_cannot_be_given_fails_as_it_does_for_a_copy(self):
        self.target.mkdir()
        program = self.bus.run("get", "-d", self.out, f"{self.url}/../file?bytes={SIZE}")
        self.assertNotEqual(program.status, 0)
        self.assertTrue(self.target.is_dir())
        self.await_empty_spool()


class TakeTests(Case):
    """The files of two clients never are one after TAKE. `TakeTests` of the core has each way to have had one before."""

    def fetched(self, client, request=1, handler="h", **fields):
        """Returns the terminal of a new request."""
        client.fetch(handler, request, self.url, **fields)
        return client.terminal()

    def take(self, client, terminal):
        """Asserts that the client is given the file. Returns its new path."""
        path = client.take(terminal.fields["seq"])
        self.assertIsNotNone(path, "it is given away")
        self.assertTrue(path.endswith(".taken"), path)
        self.assertFalse(os.path.exists(terminal.fields["file"]))
        self.assertContent(pathlib.Path(path), body(SIZE))
        return pathlib.Path(path)

    def test_a_file_may_be_changed_and_equal_content_is_another_file(self):
        client, other = self.holder(), self.holder()
        path = self.take(client, self.fetched(client))
        path.chmod(0o600)
        path.write_bytes(b"changed")
        message = self.fetched(other, handler="other")
        self.assertContent(pathlib.Path(message.fields["file"]), body(SIZE))
        self.assertEqual(message.fields["sha-256"], hashlib.sha256(body(SIZE)).hexdigest())
        self.assertEqual(path.read_bytes(), b"changed")
        self.assertEqual(client.take(1), str(path), "the same TAKE has the same answer")
        client.release()
        eventually(lambda: not path.exists(), "what is left goes with the ACK")
        self.assertEqual(client.take(1), "unknown-body")
        other.release()
        self.await_empty_spool()

    def test_an_open_descriptor_and_a_mapping_of_the_same_session_do_not_hinder(self):
        client = self.holder()
        terminal = self.fetched(client)
        with open(terminal.fields["file"], "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapping:
            path = self.take(client, terminal)
            path.rename(self.target)
            self.assertTrue(mapping[:] == body(SIZE))
        client.release()
        self.await_empty_spool()
        self.assertContent(self.target, body(SIZE))

    def test_a_broker_that_restarts_gives_nothing_of_the_last_one_away(self):
        client = self.holder()
        path = self.take(client, self.fetched(client))
        os.kill(self.bus.broker, signal.SIGKILL)
        eventually(lambda: not path.exists(), "the next broker empties the spool")
        other = self.holder()
        terminal = self.fetched(other)
        self.assertNotEqual(self.take(other, terminal), path)


class CacheTests(Case):
    arguments = []

    def test_the_cache_keeps_its_file_and_the_command_copies_it(self):
        url = f"{self.origin.url}/kept/x?cc=max-age%3D1000&bytes={SIZE}"
        client = self.holder()
        for request, cache in ((1, "default"), (2, "default"), (3, "reload")):
            client.fetch("h", request, url, cache=cache)
            terminal = client.terminal()
            self.assertIsNone(client.take(terminal.fields["seq"]), terminal.fields["source"])
        content = pathlib.Path(terminal.fields["file"]).read_bytes()
        for name in ("first", "second"):
            target = self.out / name
            program = self.bus.run("get", "-o", target, url)
            self.assertEqual(program.status, 0, program.describe())
            self.assertContent(target, content)
            with open(target, "r+b") as file:
                file.write(b"mine")
        self.assertEqual(self.origin.count("/kept/x"), 2)
        client.fetch("h", 4, url)
        self.assertContent(pathlib.Path(client.terminal().fields["file"]), content)


class PrivateTests(TestCase):
    def test_a_private_bus_gives_its_files_away_and_leaves_nothing(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder)
        commands = Commands(folder / "run", folder)
        with Origin() as origin:
            program = commands.run("get", "--no-cache", "-o", folder / "file", f"{origin.url}/bytes/{SIZE}")
            self.assertEqual(program.status, 0, program.describe())
            self.assertTrue((folder / "file").read_bytes() == body(SIZE))
            commands.await_no_survivors()


if __name__ == "__main__":
    unittest.main()
