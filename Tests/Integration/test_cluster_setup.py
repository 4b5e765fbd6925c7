"""The set-up of a cluster as docs/cluster.md describes it, and the check of its mistakes."""

import contextlib
import copy
import json
import os
import re
import subprocess
import unittest

from support.harness import Bus, TestCase, binary
from support.origin import Origin, body
from support.processes import eventually
from support.setup import SENTINEL_PORT, SetUp, documented_commands


class SetUpTestCase(TestCase):
    """Tests of the machines that the documented commands have set up."""

    installed = None

    def check(self, machine):
        """Runs the documented check on a machine. Returns its exit code and its findings."""
        done = machine.run(self.installed.last.rstrip() + " --json")
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]

    def assertFault(self, machine, part):
        """A fault with this text is found, with advice."""
        status, findings = self.check(machine)
        self.assertEqual(status, 78, findings)
        faults = [finding for finding in findings if finding["level"] == "fault"]
        self.assertTrue(any(part in fault["finding"] and fault["advice"] for fault in faults), f"{part}: {faults}")

    @property
    def first(self):
        return self.installed.machines[0]


class SetUpTests(SetUpTestCase):
    """Tests that leave the machines as they are."""

    @classmethod
    def setUpClass(cls):
        cls.installed = cls.enterClassContext(SetUp())

    def test_the_documented_commands_make_a_cluster_without_faults(self):
        with Origin() as origin, contextlib.ExitStack() as stack:
            buses = [stack.enter_context(machine.bus()) for machine in self.installed.machines]
            clients = [bus.client() for bus in buses]
            for client in clients:
                eventually(lambda: client.query("cluster")["cluster"].get("members-count") == 3, "three members")
                self.assertIs(client.query("cluster")["cluster"]["share-between-users"], True)
            for client in clients:
                client.fetch("h", 1, f"{origin.url}/bytes/1000")
            for client in clients:
                self.assertResult(client.terminal(30), body(1_000))
            for machine in self.installed.machines:
                # A node or a server that pauses is a fault meanwhile.
                findings = eventually(lambda: (checked := self.check(machine))[0] == 0 and checked[1], lambda: self.check(machine))
                self.assertEqual([f for f in findings if f["level"] == "fault"], [])
                self.assertIn("its port for bodies is open", [finding["finding"] for finding in findings])
                started = (machine.files / "systemctl").read_text().splitlines()
                self.assertEqual(started[-1], "restart redis-server redis-sentinel earshot-shared")

    def test_a_machine_needs_at_most_three_commands(self):
        for block in documented_commands()[:2]:
            self.assertLessEqual(len(block.splitlines()), 3)

    def test_files_are_private_and_passwords_differ(self):
        folders = sorted((self.first.home / "shop").iterdir())
        self.assertEqual(len(folders), 3)
        for folder in folders:
            self.assertEqual(folder.stat().st_mode & 0o777, 0o700)
            for file in folder.iterdir():
                self.assertEqual(file.stat().st_mode & 0o777, 0o600, file)
        cluster = self.first.cluster_file.read_text()
        passwords = re.findall(r'^(?:sentinel-)?password = "(.*)"$', cluster, re.MULTILINE)
        passwords += re.findall(r"^(?:masterauth|sentinel sentinel-pass|sentinel auth-pass shop) (\S+)$",
                                "\n".join((folders[0] / name).read_text() for name in ("redis.conf", "sentinel.conf")), re.MULTILINE)
        passwords.append(self.first.admin_password)
        self.assertEqual(len(set(passwords)), 6, passwords)
        # Files of users have digests only.
        users = (folders[0] / "users.acl").read_text()
        self.assertFalse([password for password in passwords if password in users])

    def test_strangers_and_nodes_change_nothing_at_a_sentinel(self):
        text = self.first.cluster_file.read_text()
        password = re.search(r'^sentinel-password = "(.*)"$', text, re.MULTILINE)[1]
        other = copy.copy(self.first.sentinel)
        for user, secret, refusal in ((None, None, "NOAUTH"), ("node", password, "NOPERM")):
            other.user, other.password = user, secret
            for words in (("SENTINEL", "FAILOVER", "shop"), ("SENTINEL", "MONITOR", "x", self.first.address, 1, 1),
                          ("SENTINEL", "SET", "shop", "quorum", 1), ("PUBLISH", "__sentinel__:hello", "x")):
                with self.subTest(user=user, words=words), self.assertRaisesRegex(AssertionError, refusal):
                    other.execute(*words)

    def test_mistakes_are_named(self):
        file = self.first.cluster_file
        right = file.read_text()
        for old, new, part in (
            (r'^password = ".*"', 'password = "wrong"', "redis-server refused user or password"),
            (r'^sentinel-password = ".*"', 'sentinel-password = "wrong"', "redis-sentinel refused user or password"),
            (r'^user = ".*"', 'user = "other"', "redis-server refused user or password"),
            (r'^primary = ".*"', 'primary = "other"', "it watches no primary named other, but shop"),
            (r"^members = .*", "members = 0", "members: must be a number"),
            (rf":{SENTINEL_PORT}", ":1", "cannot connect"),
            (r'^secret-key = ".*"', 'secret-key = "short"', "secret-key: must be a key of 40 characters"),
        ):
            with self.subTest(part=part):
                file.write_text(re.sub(old, new, right, flags=re.MULTILINE))
                self.assertFault(self.first, part)
        file.write_text(right)
        file.chmod(0o644)
        self.assertFault(self.first, "other users have access to the file")
        file.rename(file.with_suffix(".away"))
        self.assertFault(self.first, "there is no such file")
        file.with_suffix(".away").rename(file)
        file.chmod(0o600)


@unittest.skipUnless(os.environ.get("EARSHOT_LONG"), "ten seconds for one fail-over: EARSHOT_LONG=1")
class DamageTests(SetUpTestCase):
    def setUp(self):
        self.installed = self.enterContext(SetUp())

    def test_a_dead_primary_is_replaced_and_the_check_names_it(self):
        self.first.server.kill()
        second = self.installed.machines[1].sentinel
        eventually(lambda: second.execute("SENTINEL", "get-master-addr-by-name", "shop")[0] != self.first.address,
                   "another primary", 30)
        self.assertFault(self.first, "cannot connect")


class FolderTests(TestCase):
    def new(self, *words):
        bus = Bus(workers=1)
        program = bus.run("cluster", "new", "shop", *words)
        self.assertEqual(program.status, 0, program.describe())
        return bus.folder / "shop", program.stdout.decode()

    def test_a_node_of_its_own_has_a_redis_without_sentinels(self):
        folder, _ = self.new("--nodes", "node1.example", "--with-redis")
        files = folder / "node1.example"
        self.assertFalse((files / "sentinel.conf").exists())
        self.assertIn('servers = ["node1.example:6379"]', (files / "cluster.toml").read_text())
        self.assertNotIn("min-replicas-to-write", (files / "redis.conf").read_text())
        self.assertNotIn("redis-sentinel", (files / "install.sh").read_text())

    def test_the_fourth_machine_has_a_node_alone(self):
        folder, output = self.new("--nodes", "10.0.0.1,10.0.0.2,10.0.0.3:5000,2001:db8::4", "--with-redis")
        fourth = folder / "2001-db8--4"
        self.assertFalse((fourth / "redis.conf").exists())
        self.assertFalse((fourth / "sentinel.conf").exists())
        text = (fourth / "cluster.toml").read_text()
        self.assertIn('node = "[2001:db8::4]:5767"\nmembers = 4\n', text)
        self.assertIn('sentinels = ["10.0.0.1:26379", "10.0.0.2:26379", "10.0.0.3:26379"]', text)
        self.assertIn('node = "10.0.0.3:5000"', (folder / "10.0.0.3" / "cluster.toml").read_text())
        self.assertIn("cluster check", output)
        # All nodes have one server key.
        keys = {(files / "keys.toml").read_text() for files in folder.iterdir()}
        self.assertEqual(len(keys), 1)

    def test_a_cluster_with_another_engine_has_no_files_of_redis(self):
        folder, _ = self.new("--nodes", "10.0.0.1,10.0.0.2", "--server", "10.0.0.9:6379")
        names = sorted(file.name for file in (folder / "10.0.0.1").iterdir())
        self.assertEqual(names, ["README.txt", "cluster.toml", "install.sh", "keys.toml", "shared.toml", "unit.conf"])

    def test_an_installation_over_older_keys_names_the_server_key_that_stays(self):
        bus = Bus(workers=1)
        keys = {}
        for name in ["older", "newer"]:
            program = bus.run("cluster", "new", "shop", "--nodes", "10.0.0.1", "--server", "10.0.0.9:6379", "--output", name)
            keys[name] = re.search(r"server key  (\S+)", program.stdout.decode())[1]
        # Commands that change nothing on this machine.
        commands = bus.folder / "commands"
        commands.mkdir()
        for name, text in {"install": "exit 0", "systemctl": "exit 0", "earshot": f'exec {binary()} "$@"'}.items():
            (commands / name).write_text(f"#!/bin/sh\n{text}\n")
            (commands / name).chmod(0o755)
        environment = dict(os.environ, PATH=f"{commands}:{os.environ['PATH']}")
        for name, notes in {"older": [], "newer": [keys["older"]]}.items():
            script = bus.folder / name / "10.0.0.1" / "install.sh"
            script.write_text(script.read_text().replace("/etc/earshot/", f"{bus.folder}/older/10.0.0.1/"))
            done = subprocess.run(["sh", str(script)], capture_output=True, text=True, env=environment)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(re.findall(r"stays; programs need its server key, (\S+), for this node\n", done.stderr), notes)

    def test_an_existing_folder_stays(self):
        bus = Bus(workers=1)
        (bus.folder / "shop").mkdir()
        program = bus.run("cluster", "new", "shop", "--nodes", "10.0.0.1", "--with-redis")
        self.assertEqual(program.status, 23, program.describe())
        self.assertIn("--output", program.stderr)


class KeyTests(TestCase):
    def test_a_new_key_prints_the_line_that_authorizes_it_on_other_nodes(self):
        bus = Bus(workers=1)
        output = bus.run("key", "new", "laptop", "--connections", "5", "--keys", "a.toml").stdout.decode()
        name, key, *options = re.search(r"earshot key add (.*)", output)[1].split()
        added = bus.run("key", "add", name, key.strip("'"), *options, "--keys", "b.toml")
        self.assertEqual(added.status, 0, added.describe())
        rows = [bus.run("key", "list", "--json", "--keys", file).stdout for file in ("a.toml", "b.toml")]
        self.assertEqual(*rows)
