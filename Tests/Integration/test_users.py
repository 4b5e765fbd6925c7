"""A bus for several users of the machine: the setting `users`."""

import contextlib
import hashlib
import os
import pathlib
import shutil
import signal
import stat
import tempfile
import unittest

from support.harness import Bus, Commands, Program, TestCase, binary
from support.origin import Origin, body
from support.processes import eventually
from support.visitor import Visitor

NOBODY, DAEMON = 65534, 1
#: A body that does not fit into a message.
LARGE = 300_000


@contextlib.contextmanager
def shared_folder():
    """Creates a folder below one of root alone, as programs of other users demand it."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ear-", dir="/run"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def modes(*folders):
    """Returns the mode of each folder and of each entry below it, by its path."""
    found = {}
    for path in [path for folder in folders for path in [folder, *folder.rglob("*")]]:
        try:
            found[str(path)] = stat.S_IMODE(path.lstat().st_mode)
        except FileNotFoundError:
            pass  # It was deleted meanwhile.
    return found


@unittest.skipUnless(os.geteuid() == 0, "clients of other users need root")
class Case(TestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.folder = self.enterContext(shared_folder())

    def bus(self, *arguments, **options):
        options = {"workers": 1, "folder": self.folder, **options}
        return self.enterContext(Bus(arguments=arguments, **options))

    def visit(self, user, bus, code, **options):
        visitor = Visitor(user, bus.runtime, code, **options)
        self.addCleanup(visitor.kill)
        return visitor

    def command(self, user, bus, *arguments, **variables):
        """Runs a command of the program as another user. The program is opened by root: its folder may be closed."""
        with open(binary(), "rb") as program:
            environment = {**bus.environment, "HOME": "/", **variables}
            done = Program(["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups",
                            f"/proc/self/fd/{program.fileno()}", *arguments], environment, "/", pass_fds=[program.fileno()])
            done.status = done.wait(60)
        return done

    def greeting(self, user, bus):
        """Returns the verb and the detail of the answer to HELLO."""
        [answer] = self.visit(user, bus, """
c = client(hello=False)
c.send("HELLO EAR/1", bodies="pull")
answer = c.receive()
report([answer.verb, *answer.operands, answer.fields.get("detail")])
""").reported()
        return answer


class PermissionTests(Case):
    def test_a_bus_without_users_is_private(self):
        bus = self.bus()
        self.assertEqual({mode & 0o077 for mode in modes(bus.runtime, bus.spool).values()}, {0})
        refused = self.command(NOBODY, bus, "status")
        self.assertEqual(refused.status, 69, refused.describe())

    def test_a_bus_without_users_closes_a_folder_that_others_may_enter(self):
        # An earlier bus with users leaves one, and the unit earshot-shared creates one.
        runtime = self.folder / "run"
        runtime.mkdir()
        runtime.chmod(0o755)
        bus = self.bus()
        self.assertEqual(bus.runtime, runtime)
        self.assertEqual(modes(runtime)[str(runtime)], 0o700)

    def test_others_may_enter_the_runtime_folder_and_connect_and_nothing_more(self):
        bus = self.bus("--users", "nobody", "--cache-folder", self.folder / "cache", "--durable-folder",
                       self.folder / "durable")
        client = bus.client()
        client.hold()
        client.fetch("h", 1, f"{self.origin.url}/bytes/{LARGE}")
        client.terminal()
        found = modes(bus.runtime, bus.spool, self.folder / "cache", self.folder / "durable")
        self.assertGreater(len(found), 10)
        self.assertEqual(found.pop(str(bus.runtime)), 0o755)
        self.assertEqual(found.pop(str(bus.runtime / "bus")), 0o666)
        self.assertEqual({path: oct(mode) for path, mode in found.items() if mode & 0o077}, {})
        self.assertEqual(found[str(bus.runtime / "work")], 0o600)

    def test_the_administrator_sees_the_user_of_a_request_and_ends_it(self):
        bus = self.bus("--users", "nobody")
        for request in ("1", "2", "3"):
            done = self.command(NOBODY, bus, "submit", "--runtime", str(bus.runtime), "--handler", "a", "--id", request,
                                f"{self.origin.url}/gate/{request}")
            self.assertEqual(done.status, 0, done.describe())
        rows = [line.split("\t") for line in bus.run("list").stdout.decode().splitlines()]
        self.assertEqual(sorted((row[4], row[5], row[7]) for row in rows),
                         [("a", number, f"uid:{NOBODY}") for number in ("1", "2", "3")])
        self.assertEqual([line.split("\t")[6:] for line in bus.run("list", "--handlers").stdout.decode().splitlines()],
                         [["a", f"uid:{NOBODY}"]])
        self.assertEqual(bus.run("drop", "a").stdout, b"removed 0 requests of a\n")
        self.assertEqual(bus.run("cancel", "--user", str(NOBODY), "a", "1").status, 0)
        self.assertEqual(bus.run("drop", "--user", "nobody", "a").stdout, b"removed 2 requests of a\n")
        self.origin.await_aborts("/gate/2", 1)
        refused = self.command(NOBODY, bus, "drop", "--runtime", str(bus.runtime), "--user", "0", "a")
        self.assertEqual(refused.status, 69, refused.describe())

    def test_another_user_opens_no_file_of_the_bus(self):
        bus = self.bus("--users", "nobody", "--cache-folder", self.folder / "cache")
        client = bus.client()
        client.hold()
        client.fetch("h", 1, f"{self.origin.url}/bytes/{LARGE}")
        path = client.terminal().fields["file"]
        paths = [path, str(bus.spool), str(bus.runtime / "broker.lock"), str(bus.runtime / "serve.lock"),
                 str(bus.runtime / "work"), str(self.folder / "cache")]
        reported = self.visit(NOBODY, bus, f"""
import errno, socket
for path in {paths!r}:
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDONLY | os.O_DIRECTORY):
        try:
            os.open(path, flags)
        except OSError as error:
            report(errno.errorcode[error.errno])
try:
    socket.socket(socket.AF_UNIX).connect({str(bus.runtime / "work")!r})
except OSError as error:
    report(errno.errorcode[error.errno])
try:
    os.rename({str(bus.runtime / "bus")!r}, {str(bus.runtime / "other")!r})
except OSError as error:
    report(errno.errorcode[error.errno])
""").reported()
        # A lock file as a folder, a socket as a file and a folder for writing are refused before their permissions count.
        self.assertEqual(len(reported), 3 * len(paths) + 2, reported)
        self.assertLessEqual(set(reported), {"EACCES", "ENOTDIR", "ENXIO", "EISDIR"}, reported)

    def test_a_user_of_the_list_and_root_may_use_the_bus_and_no_other_user(self):
        bus = self.bus("--users", "nobody")
        for user in (NOBODY, 0):
            self.assertEqual(self.greeting(user, bus)[0], "WELCOME")
        verb, code, detail = self.greeting(DAEMON, bus)
        self.assertEqual((verb, code), ("ERROR", "not-authorized"))
        self.assertIn(f"user {DAEMON} may not use this bus: add it to `users`", detail)
        bus.program.await_line(f"user {DAEMON} is not in the setting users")

    def test_a_refused_program_shows_the_reason_at_once(self):
        bus = self.bus("--users", "nobody")
        for arguments in (["status"], ["get", f"{self.origin.url}/bytes/10", "-o", "-"], ["list"]):
            refused = self.command(DAEMON, bus, *arguments)
            self.assertEqual(refused.status, 69, refused.describe())
            self.assertIn("user 1 may not use this bus: add it to `users`", refused.stderr)
        shown = self.command(NOBODY, bus, "status")
        self.assertEqual(shown.status, 0, shown.describe())

    def test_refused_users_hold_no_places_of_others(self):
        bus = self.bus("--users", "nobody", descriptors=400)
        crowd = self.visit(DAEMON, bus, """
import socket
for _ in range(2000):
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(os.fspath(runtime / "bus"))
    peers = globals().setdefault("peers", [])
    if len(peers) < 500:
        peers.append(peer)
report("connected")
sys.stdin.read()
""")
        crowd.await_line("connected", "stdout")
        self.assertEqual(self.greeting(NOBODY, bus)[0], "WELCOME")
        crowd.write(b"")
        crowd.reported()

    def test_one_user_cannot_take_all_connections(self):
        bus = self.bus("--users", "nobody,daemon", descriptors=400)
        crowd = self.visit(NOBODY, bus, """
crowd = []
for number in range(200):
    c = client(hello=False, linger=0)
    c.send("HELLO EAR/1", bodies="pull")
    crowd.append(c)
import time
end = time.monotonic() + 50
while (answered := sum(c.socket.poll(2) > 0 for c in crowd)) <= 10 and time.monotonic() < end:
    pass
report(answered > 10)
sys.stdin.read()
""")
        crowd.await_line("true", "stdout")
        self.assertEqual(self.greeting(DAEMON, bus)[0], "WELCOME")
        crowd.write(b"")
        crowd.reported()

    def test_groups_are_those_of_the_user_and_not_of_the_process(self):
        bus = self.bus("--users", "@nogroup")
        self.assertEqual(self.greeting(NOBODY, bus)[0], "WELCOME")
        self.assertEqual(self.greeting(DAEMON, bus)[:2], ["ERROR", "not-authorized"])


class FetchTests(Case):
    def test_a_permitted_user_gets_small_bodies_inline_and_large_ones_by_read(self):
        bus = self.bus("--users", "nobody")
        reported = self.visit(NOBODY, bus, f"""
import hashlib
c = client(bodies="pull")
c.hold()
for size in (1000, {LARGE}):
    c.fetch("h", size, f"{self.origin.url}/bytes/{{size}}")
    terminal = c.terminal()
    content = pull(c, terminal) if "pull" in terminal.fields else terminal.inline
    report(["file" in terminal.fields, "pull" in terminal.fields, hashlib.sha256(content).hexdigest()])
c.fetch("h", 3, "{self.origin.url}/bytes/{LARGE}")
report(c.take(c.terminal().fields["seq"]))
""").reported()
        digests = [hashlib.sha256(body(size)).hexdigest() for size in (1000, LARGE)]
        self.assertEqual(reported, [[False, False, digests[0]], [False, True, digests[1]], "unknown-body"])

    def test_the_command_and_the_python_library_serve_another_user(self):
        bus = self.bus("--users", "nobody")
        for size in (1000, LARGE):
            got = self.command(NOBODY, bus, "get", f"{self.origin.url}/bytes/{size}", "-o", "-")
            self.assertEqual((got.status, got.stdout), (0, body(size)), got.stderr)
        reported = self.visit(NOBODY, bus, f"""
import earshot_bus.blocking
with earshot_bus.blocking.connect(runtime) as bus, bus.handler("python") as handler:
    for size in (1000, {LARGE}):
        report(len(handler.fetch(f"{self.origin.url}/bytes/{{size}}").read()))
""").reported()
        self.assertEqual(reported, [1000, LARGE])

    def test_settings_and_files_of_certificates_are_reserved_for_the_user_of_the_bus(self):
        bus = self.bus("--users", "nobody")
        url = f"{self.origin.url}/bytes/10"
        for arguments in (("set", "slots", "3"), ("get", url, "--ca-file", "/etc/ssl/certs/ca-certificates.crt", "-o", "-")):
            refused = self.command(NOBODY, bus, *arguments)
            self.assertNotEqual(refused.status, 0)
            self.assertIn("reserved for the administrator", refused.stderr)
        self.assertEqual(self.origin.log(), [])
        self.assertEqual(self.command(0, bus, "set", "slots", "3").status, 0)


class ReloadTests(Case):
    def write(self, users):
        (self.folder / "config.toml").write_text(f"users = {users}\n")

    def reload(self, bus, line="the settings were read again"):
        bus.program.signal(signal.SIGHUP)
        bus.program.await_line(line)

    def test_a_reload_opens_and_closes_the_bus(self):
        self.write("[]")
        bus = self.bus("--config", self.folder / "config.toml")
        self.assertEqual(stat.S_IMODE(bus.runtime.stat().st_mode), 0o700)
        self.write('["nobody"]')
        self.reload(bus)
        eventually(lambda: stat.S_IMODE((bus.runtime / "bus").stat().st_mode) == 0o666, "the bus is open")
        stays = self.visit(NOBODY, bus, """
c = client(bodies="pull")
report("here")
while (message := c.receive(30)) is not None and message.verb != "GOODBYE":
    pass
""")
        stays.await_line("here", "stdout")
        client = bus.client()
        eventually(lambda: client.query("status")["clients"] == 2, "both are connected")
        self.write("[]")
        bus.program.signal(signal.SIGHUP)
        eventually(lambda: stat.S_IMODE(bus.runtime.stat().st_mode) == 0o700, "the bus is closed")
        self.assertEqual(stat.S_IMODE((bus.runtime / "bus").stat().st_mode), 0o600)
        eventually(lambda: client.query("status")["clients"] == 1, "the other user is disconnected")
        self.assertEqual(self.command(NOBODY, bus, "status").status, 69)

    def test_an_unknown_name_is_refused_at_the_start_and_changes_nothing_later(self):
        commands = Commands(self.folder / "run", self.folder)
        for users, reason in (("no-such-user", "there is no user no-such-user"), ("@no-such", "there is no group no-such")):
            refused = commands.run("serve", "--users", users, "--spool", self.folder / "spool")
            self.assertEqual(refused.status, 78, refused.describe())
            self.assertIn(reason, refused.stderr)
        self.write('["nobody"]')
        bus = self.bus("--config", self.folder / "config.toml")
        self.write('["no-such-user"]')
        self.reload(bus, "there is no user no-such-user")
        self.assertEqual(self.greeting(NOBODY, bus)[0], "WELCOME")

    def test_a_broker_that_is_restarted_serves_the_same_users(self):
        bus = self.bus("--users", "nobody")
        os.kill(bus.broker, signal.SIGKILL)
        self.have_new_broker(bus)
        self.assertEqual(self.greeting(NOBODY, bus)[0], "WELCOME")

    def have_new_broker(self, bus):
        with bus.client(hello=False) as client:
            client.hello()

    def test_the_folder_and_the_socket_come_back_with_their_modes(self):
        bus = self.bus("--users", "nobody")
        # A file created meanwhile would stop rmtree.
        bus.runtime.rename(self.folder / "removed")
        eventually(lambda: (bus.runtime / "bus").exists() and (bus.runtime / "work").exists(), "the sockets are back")
        self.assertEqual(stat.S_IMODE(bus.runtime.stat().st_mode), 0o755)
        # A socket has its file before that has its mode.
        eventually(lambda: stat.S_IMODE((bus.runtime / "bus").stat().st_mode) == 0o666, "others may connect")
        self.assertEqual(self.greeting(NOBODY, bus)[0], "WELCOME")

    def test_set_does_not_change_users(self):
        bus = self.bus("--users", "nobody")
        client = bus.client()
        answer = client.set("users daemon")
        self.assertEqual((answer.verb, answer.operands), ("ERROR", ["bad-setting"]))
        self.assertIn("SIGHUP", answer.fields["detail"])
        self.assertEqual(client.settings()["users"], ("nobody", "flag"))


class TrustTests(Case):
    """Programs connect to a bus of another user only where root decided whose folder it is."""

    def hostile(self, parent, mode=0o755):
        """Starts a listener of another user in a folder of that user. It says when a program connects."""
        folder = parent / "hostile"
        folder.mkdir()
        os.chown(folder, DAEMON, DAEMON)
        folder.chmod(mode)
        listener = self.visit(DAEMON, type("Bus", (), {"runtime": folder}), """
import socket
listener = socket.socket(socket.AF_UNIX)
listener.bind(os.fspath(runtime / "bus"))
os.chmod(runtime / "bus", 0o666)
listener.listen()
report("listening")
listener.accept()
report("lured")
""")
        listener.await_line("listening", "stdout")
        return folder, listener

    def assertRefused(self, folder, listener, reason):
        for user in (NOBODY, 0):
            bus = Commands(folder, self.folder)
            refused = self.command(user, bus, "status", "--runtime", folder)
            self.assertEqual(refused.status, 69, refused.describe())
            self.assertIn(reason, refused.stderr)
        self.assertNotIn(b"lured", listener.stdout)

    def test_a_folder_where_others_may_create_entries_is_refused(self):
        for mode in (0o1777, 0o777):
            with self.subTest(mode=oct(mode)), shared_folder() as parent:
                parent.chmod(mode)
                folder, listener = self.hostile(parent)
                self.assertRefused(folder, listener, "belongs to another user")

    def test_a_folder_below_one_of_another_user_is_refused(self):
        with shared_folder() as parent:
            os.chown(parent, DAEMON, DAEMON)
            folder, listener = self.hostile(parent)
            self.assertRefused(folder, listener, "belongs to another user")

    def test_a_folder_that_others_may_write_is_refused(self):
        with shared_folder() as parent:
            folder, listener = self.hostile(parent, 0o777)
            self.assertRefused(folder, listener, "others may write")

    def test_a_listener_that_does_not_own_the_folder_is_refused(self):
        # Its owner lets another user listen there, or a file was moved in.
        with shared_folder() as parent:
            folder, listener = self.hostile(parent)
            os.chown(folder, 2, 2)
            refused = self.command(NOBODY, Commands(folder, self.folder), "status", "--runtime", folder)
            self.assertEqual(refused.status, 69, refused.describe())
            self.assertNotEqual(refused.stderr, "")


if __name__ == "__main__":
    unittest.main()
