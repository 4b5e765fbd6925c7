"""Clients that see other files or other process numbers than the broker, as in a container."""

import os
import shutil
import unittest

from support.client import Client
from support.harness import Bus, Commands, Program, TestCase, binary, temporary_folder
from support.origin import Origin, body
from support.visitor import Visitor

#: A body that does not fit into a message.
LARGE = 300_000
FETCH = f"""
c.hold()
c.fetch("h", 1, url)
terminal = c.terminal()
report(["file" in terminal.fields, terminal.fields.get("pull")])
report(len(pull(c, terminal)) if "pull" in terminal.fields else -1)
c.release()
"""


@unittest.skipUnless(os.geteuid() == 0, "namespaces need root")
class ContainerTests(TestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.url = f"{self.origin.url}/bytes/{LARGE}"

    def contained(self, bus, code):
        """Starts a client in mount and PID namespaces of its own. It has the runtime folder, and an empty folder in place of the
        one that holds the spool."""
        mounts = f"mount --bind {bus.runtime} /mnt && mount -t tmpfs none {bus.folder} && exec \"$@\""
        client = Visitor(0, "/mnt", f"url = {self.url!r}\n{code}",
                         prefix=["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "/bin/sh", "-ec", mounts,
                                 "sh"])
        self.addCleanup(client.kill)
        return client

    def test_a_contained_client_of_the_same_user_reads_bodies_over_the_connection(self):
        with Bus(workers=1) as bus:
            reported = self.contained(
                bus, "c = client(bodies='pull')\nreport(os.getpid() < 10)\nreport(c.settings() != {})" + FETCH).reported()
            self.assertEqual(reported, [True, True, [False, "yes"], LARGE])

    def test_a_growing_body_is_read_in_a_container(self):
        with Bus(workers=1) as bus:
            client = self.contained(bus, """
from support.puller import Follower
c = client(bodies="pull")
c.hold()
c.fetch("h", 1, url.rsplit("/", 2)[0] + "/drip?bytes=300000&seconds=1", stream="yes")
follower = Follower(c, "h", 1)
terminal = follower.follow()
report(len(follower.content) > 0)
report(len(follower.finish(terminal)))
""")
            self.assertEqual(client.reported(), [True, LARGE])

    def test_a_contained_client_that_is_killed_is_purged_with_its_requests(self):
        with Bus(workers=1) as bus:
            watcher = bus.client()
            client = self.contained(bus, """
c = client(bodies="pull")
for number in range(20):
    c.fetch("h", number, url.rsplit("/", 2)[0] + f"/hang?{number}")
c.query("ping")
report("requested")
# A child that inherits the connection must not keep the client alive.
if os.fork() == 0:
    sys.stdin.read()
sys.stdin.read()
""")
            client.await_line("requested", "stdout")
            self.await_requests(watcher, pending=20)
            client.kill()
            self.await_requests(watcher, pending=0, removed=20)
            self.balance(watcher)

    def test_a_broker_in_a_container_notices_the_end_of_a_client_without_a_number(self):
        """SO_PEERCRED reports 0 for a process outside of the broker's PID namespace: the end of the connection counts."""
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        bus = Commands(folder / "run", folder)
        program = Program(["unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc", binary(), "serve", "--workers",
                           "1", "--runtime", bus.runtime], bus.environment, folder)
        self.addCleanup(bus.await_no_survivors)
        self.addCleanup(program.kill)
        program.await_line("ready, bus ")
        with Client(bus.runtime) as watcher:
            code = f"""
url = {self.origin.url!r}
c = client(bodies="pull")
for number in range(20):
    c.fetch("h", number, url + f"/hang?{{number}}")
c.query("ping")
report("requested")
sys.stdin.read()
"""
            client = Visitor(0, bus.runtime, code)
            client.await_line("requested", "stdout")
            self.await_requests(watcher, pending=20)
            client.kill()
            self.await_requests(watcher, pending=0, removed=20)
            watcher.fetch("other", 1, f"{self.origin.url}/bytes/10")
            self.assertResult(watcher.terminal(), body(10))


if __name__ == "__main__":
    unittest.main()
