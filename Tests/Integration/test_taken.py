"""A body in a file that no other client has is moved to its destination; a shared one is copied."""

import hashlib
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
    for place in ("/dev/shm", "/var/tmp", pathlib.Path.home()):
        if os.access(place, os.W_OK) and os.stat(place).st_dev != os.stat(folder).st_dev:
            return pathlib.Path(tempfile.mkdtemp(prefix="ear-", dir=place))
    return None


class TakenTests(TestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.bus = self.enterContext(Bus(workers=1, arguments=["--no-cache"]))
        self.out = self.bus.folder / "out"
        self.out.mkdir()
        self.target = self.out / "file"
        self.url = f"{self.origin.url}/bytes/{SIZE}"

    def get(self, *arguments, status=0):
        program = self.bus.run("get", *arguments)
        self.assertEqual(program.status, status, program.describe())
        return program

    def spooled(self):
        """Returns the names of bodies in the spool."""
        return {path.name for path in self.bus.spooled()}

    def await_empty_spool(self):
        eventually(lambda: not self.spooled(), lambda: f"an empty spool: {self.spooled()}")

    def stopped(self, name, *arguments, bytes=SIZE):
        """Returns a `get` for a body that arrives when the gate is opened, stopped before that."""
        program = self.bus.start("get", *arguments, f"{self.origin.url}/gate/{name}?bytes={bytes}")
        eventually(lambda: self.origin.count(f"/gate/{name}") == 1, "it is fetched")
        program.signal(signal.SIGSTOP)
        self.origin.open_gate(name)
        eventually(lambda: any(file.endswith(".taken") for file in self.spooled()), "its body is there")
        return program

    def assertContent(self, path, content):
        self.assertTrue(path.read_bytes() == content, path)

    def test_a_body_alone_is_moved_and_looks_as_if_it_had_been_made_there(self):
        (self.out / "other").write_bytes(b"")
        program = self.stopped("alone", "-o", self.target)
        (name,) = self.spooled()
        inode = os.stat(self.bus.spool / name).st_ino
        self.assertFalse(self.target.exists())
        program.signal(signal.SIGCONT)
        self.assertEqual(program.wait(30), 0, program.describe())
        moved = os.stat(self.target)
        self.assertEqual(moved.st_ino, inode, "it is that file")
        self.assertEqual(moved.st_mode, os.stat(self.out / "other").st_mode)
        self.assertEqual(moved.st_nlink, 1)
        self.assertContent(self.target, body(SIZE))
        self.await_empty_spool()
        self.balance(self.bus.client())

    def test_files_into_a_folder_are_moved_from_32_kib_on(self):
        sizes = (32 << 10, (32 << 10) + 1, 65_536, SIZE)
        client = self.bus.client()
        client.take_files = False
        client.hold()
        for size in sizes:
            client.fetch("h", size, f"{self.origin.url}/bytes/{size}", take="yes")
        found = {message.id[1]: message for message in client.terminals(len(sizes))}
        self.assertEqual({size: found[str(size)].fields.get("yours") for size in sizes},
                         {size: "yes" if size > 32 << 10 else None for size in sizes})
        client.release()
        urls = [f"{self.origin.url}/bytes/{size}" for size in sizes]
        self.get("-d", self.out, *urls)
        for size in sizes:
            self.assertContent(self.out / str(size), body(size))
        self.await_empty_spool()

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
        self.assertEqual(program.wait(30), 0, program.describe())
        self.assertContent(self.target, body(SIZE))
        self.await_empty_spool()

    def test_outputs_that_are_no_files_are_written_to_and_not_replaced(self):
        self.get("-o", "/dev/null", self.url)
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/null").st_mode))
        self.assertTrue(self.get(self.url).stdout == body(SIZE))
        self.await_empty_spool()

    def test_of_a_body_that_two_want_each_has_a_copy_of_its_own(self):
        url = f"{self.origin.url}/gate/two?bytes={SIZE}"
        others = self.out / "others"
        programs = [self.bus.start("get", "-o", path, url) for path in (self.target, others)]
        self.await_requests(self.bus.client(), pending=2)
        self.origin.open_gate("two")
        for program in programs:
            self.assertEqual(program.wait(30), 0, program.describe())
        self.assertEqual(self.origin.count("/gate/two"), 1)
        self.assertNotEqual(os.stat(self.target).st_ino, os.stat(others).st_ino)
        with open(self.target, "r+b") as file:
            file.write(b"mine")
        self.assertContent(others, body(SIZE))
        self.await_empty_spool()

    def test_a_second_one_at_the_last_moment_makes_it_a_shared_one(self):
        url = f"{self.origin.url}/gate/late?bytes={SIZE}"
        client = self.bus.client()
        client.take_files = False
        client.hold()
        client.fetch("first", 1, url, take="yes")
        eventually(lambda: self.origin.count("/gate/late") == 1, "it is fetched")
        client.fetch("second", 1, url, take="yes")
        self.await_requests(self.bus.client(), pending=2)
        self.origin.open_gate("late")
        messages = client.terminals(2)
        self.assertEqual([message.fields.get("yours") for message in messages], [None, None])
        self.assertEqual(len({message.fields["file"] for message in messages}), 1)
        self.assertEqual(stat.S_IMODE(os.stat(messages[0].fields["file"]).st_mode), 0o400)
        client.release()
        self.await_empty_spool()

    def test_what_was_taken_may_be_changed_before_it_is_acknowledged(self):
        client = self.bus.client()
        client.take_files = False
        client.hold()
        client.fetch("h", 1, self.url, take="yes")
        first = pathlib.Path(client.terminal().fields["file"])
        first.chmod(0o600)
        first.write_bytes(b"changed")
        # The same content is another file.
        other = self.bus.client()
        other.fetch("other", 1, self.url, take="yes")
        message = other.terminal()
        self.assertTrue(message.content() == body(SIZE))
        self.assertEqual(message.fields["sha-256"], hashlib.sha256(body(SIZE)).hexdigest())
        self.assertEqual(first.read_bytes(), b"changed")
        client.release()
        self.await_empty_spool()

    def test_a_get_that_is_killed_before_it_has_moved_its_file_leaves_nothing(self):
        program = self.stopped("killed", "-o", self.target)
        program.signal(signal.SIGKILL)
        program.wait(30)
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


class TakenAndKeptTests(TestCase):
    def test_what_the_cache_keeps_is_not_given_away(self):
        with Origin() as origin, Bus(workers=1) as bus:
            url = f"{origin.url}/kept/x?cc=max-age%3D1000&bytes={SIZE}"
            client = bus.client()
            client.fetch("h", 1, url)
            content = client.terminal().content()
            client.fetch("h", 2, url, take="yes", cache="reload")
            message = client.terminal()
            self.assertNotIn("yours", message.fields)
            for name in ("first", "second"):
                target = bus.folder / name
                program = bus.run("get", "-o", target, url)
                self.assertEqual(program.status, 0, program.describe())
                self.assertTrue(target.read_bytes() == content)
                with open(target, "r+b") as file:
                    file.write(b"mine")
            self.assertEqual(origin.count("/kept/x"), 2)
            client.fetch("h", 3, url)
            self.assertTrue(client.terminal().content() == content)

    def test_what_it_must_not_keep_is(self):
        with Origin() as origin, Bus(workers=1) as bus:
            client = bus.client()
            for number, cache in enumerate(("default", "no-store")):
                client.fetch("h", number, f"{origin.url}/bytes/{SIZE}", take="yes", cache=cache)
                self.assertEqual(client.terminal().fields.get("yours"), "yes")


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
