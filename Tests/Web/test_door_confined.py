"""Tries of code that took over the HTTP door, one system call each, beside the table of docs/operations.md."""

import os
import pathlib
import shutil
import socket
import unittest

import checkout  # noqa: F401
from door import HOST, Door
from support.figures import report
from support.harness import TestCase, temporary_folder
from support.injection import IS_SUPPORTED, LANDLOCK, Injected
from support.origin import Origin, body
from support.zmtp import GREETING, frame, ready
from test_confined import (CLOSED, CREATE, HERE, OPEN, READ, WRITE, address, file_tries, kernel_tries, process_tries, socket_tries,
                           unix_address)

LARGE = 200_000


def body_tries(path):
    """A finished body, which the door opens for its clients."""
    yield "read", "open", (path, READ, 0), OPEN
    for name, *arguments in (("open", path, READ | os.O_TRUNC, 0), ("truncate", path, 0), ("chmod", path, 0o777),
                             ("renameat", HERE, path, HERE, f"{path}.moved"), ("linkat", HERE, path, HERE, f"{path}.second", 0)):
        yield "change of a body", name, arguments, CLOSED
    for name, *arguments in (("open", path, WRITE, 0), ("unlink", path), ("rename", path, f"{path}.moved"), ("link", path, f"{path}.second"),
                             ("open", f"{path}.new", CREATE, 0o600)) if LANDLOCK else ():
        yield "change of a body", name, arguments, CLOSED


@unittest.skipUnless(IS_SUPPORTED, "system calls are injected on x86-64 only")
class ConfinedDoorTests(TestCase):
    def setUp(self):
        self.folder = temporary_folder()
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        for name in ("secret", "other-user"):
            (self.folder / name).write_text("secret")
        if not os.geteuid():
            os.chown(self.folder / "other-user", 65534, 65534)
        stores = ["--cache-folder", self.folder / "cache", "--durable-folder", self.folder / "durable", "--http-api", "0"]
        self.door = self.enterContext(Door(workers=1, arguments=stores))
        self.client = self.enterContext(self.door.client())
        self.origin = self.enterContext(Origin())

    def test_the_door_reads_bodies_and_reaches_the_broker_as_its_users(self):
        door = self.door
        self.client.hold()
        self.client.fetch("h", 1, f"{self.origin.url}/bytes/{LARGE}")
        path = self.client.terminal().fields["file"]
        worker, = door.workers
        other = door.spool / f"worker-{worker}"
        self.assertTrue(other.is_dir())
        outside = [self.folder / "secret", self.folder / "other-user", self.folder / "durable/requests.sqlite",
                   self.folder / "cache/index.sqlite", door.runtime / "broker.lock", f"/proc/{door.broker}/mem", f"/proc/{worker}/environ"]
        outside = [os.fspath(name) for name in outside if os.path.exists(name)]
        self.assertGreaterEqual(len(outside), 6)
        with Injected(door.door) as process:
            tries = [*file_tries(outside, None), *body_tries(path), *kernel_tries(), *socket_tries(True),
                     *process_tries(process.pid, [door.broker, worker, os.getpid()])]
            if LANDLOCK:
                tries += [("list or read", "open", (name, READ, 0), CLOSED)
                          for name in (os.fspath(door.runtime), "/root", "/etc/passwd", "/etc/shadow") if os.path.exists(name)]
            wrong = [(title, call, arguments) for title, call, arguments, expected in tries
                     if process.outcome(call, *arguments) not in expected]
            self.assertEqual(wrong, [])
            self.check_connections(process)
            self.check_sessions(process)
        report(f"the HTTP door: {len(tries)} tries")
        status = pathlib.Path(f"/proc/{door.door}/status").read_text()
        self.assertRegex(status, r"CapPrm:\s0+\nCapEff:\s0+\n")
        self.assertTrue(pathlib.Path(path).read_bytes() == body(LARGE))
        self.assertEqual((self.folder / "secret").read_text(), "secret")
        self.assertEqual(door.get(f"{self.origin.url}/bytes/100")[0], 200)

    def check_connections(self, process):
        """The sockets that it has connect to no address, loopback, link-local and metadata included."""
        descriptors = [int(entry.name) for entry in os.scandir(f"/proc/{process.pid}/fd")
                       if os.readlink(entry.path).startswith("socket:")]
        self.assertGreaterEqual(len(descriptors), 3)
        with socket.create_server((HOST, 0)) as server:
            for host, port in ((HOST, server.getsockname()[1]), ("169.254.169.254", 80), (HOST, self.door.port)) if LANDLOCK >= 4 else ():
                outcomes = {process.outcome("connect", descriptor, address(port, host), 16) for descriptor in descriptors}
                self.assertLessEqual(outcomes, CLOSED | {"EINVAL", "EISCONN"})
            server.setblocking(False)
            with self.assertRaises(BlockingIOError):
                server.accept()
        if LANDLOCK >= 6:
            with socket.socket(socket.AF_UNIX) as outside:
                name = b"\0earshot-" + os.urandom(8).hex().encode()
                outside.bind(name)
                outside.listen()
                made = process.call("socket", socket.AF_UNIX, socket.SOCK_STREAM, 0)
                there = socket.AF_UNIX.to_bytes(2, "little") + name
                self.assertEqual(process.outcome("connect", made, there, len(there)), "EPERM")
                process.call("close", made)

    def check_sessions(self, process):
        """Without the proof that the supervisor gave to the door, no HELLO opens a session, and no READY makes a worker."""
        proof = "proof: " + "0" * 64 + "\n"
        claims = ["", "rights: user\n", "principal: uid:0\n", f"principal: uid:0\n{proof}", f"rights: user\n{proof}"]
        first = [("bus", f"HELLO EAR/1\n{fields}") for fields in claims] + [("work", "READY EARW/1\npid: 1\nslots: 1\nscheme: mine\n")]
        for name, text in first:
            self.assertIn(b"ERROR not-authorized", self.answer(process, name, text), text)
        present = {row["name"]: row["value"] for row in self.client.query("settings")["settings"]}
        self.assertNotEqual(present["origin-limit"], "7")
        self.assertEqual(len(self.client.query("workers")["workers"]), 1)

    def answer(self, process, name, text):
        """Returns the answer of the broker to a message and a SET that the process sends."""
        data = GREETING + ready(b"DEALER") + frame(text.encode()) + frame(b"SET origin-limit 7\n")
        made = process.call("socket", socket.AF_UNIX, socket.SOCK_STREAM, 0)
        there = unix_address(self.door.runtime / name)
        self.assertIsNone(process.outcome("connect", made, there, len(there)), "the kernel does not forbid it")
        process.call("sendto", made, data, len(data), 0, 0, 0)
        answer, count = b"", 1
        with open(f"/proc/{process.pid}/mem", "rb", buffering=0) as memory:
            while count and b"ERROR" not in answer and b"WELCOME" not in answer:
                count = process.call("recvfrom", made, bytes(4_096), 4_096, 0, 0, 0)
                memory.seek(process._room)
                answer += memory.read(count)
        process.call("close", made)
        return answer


if __name__ == "__main__":
    unittest.main()
