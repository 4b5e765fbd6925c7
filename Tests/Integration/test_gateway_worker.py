"""Workers on other machines: keys of the role `worker`, the requests of one client, and bodies in messages only."""

import hashlib
import json
import os
import pathlib
import signal
import sys


from support.harness import TestCase
from support.network import NetworkBus, RemoteClient
from support.origin import body
from support.processes import Program, eventually, watch_all
from support.puller import pull
from support.worker import HandWorker

MOST_BYTES = 4 << 20


class RawWorker(HandWorker):
    """Worker over tcp. `key`: (public key, secret key)."""

    def __init__(self, bus, key, *fields, line="READY EARW/1"):
        super().__init__(bus.endpoint, *fields, line=line, key=key, server_key=bus.server_key)

    def job(self):
        """Returns the head of the next job."""
        while (head := self.receive()) is not None:
            if head.startswith("JOB "):
                return head
        raise AssertionError("no JOB within 10 s")

    def answer(self, content, *fields):
        """Answers the next job."""
        digest = hashlib.sha256(content).hexdigest()
        self.send(f"DONE {self.job().split()[1]} 200", f"length: {len(content)}", f"sha-256: {digest}", *fields, body=content)


class GatewayWorkerTests(TestCase):
    def setUp(self):
        self.bus = self.enterContext(NetworkBus(workers=1))
        self.worker_key = self.bus.new_key("gpu", "--role", "worker", "--serves", "test")
        self.bus.reload(2)
        self.admin = self.bus.client()

    def worker(self, *fields, key=None, slots=4, line="READY EARW/1"):
        worker = RawWorker(self.bus, key or self.worker_key, *fields, f"slots: {slots}", line=line)
        self.addCleanup(worker.close)
        return worker

    def serving(self, *fields, **options):
        """Returns a worker that the broker has accepted, and its LIMITS."""
        worker = self.worker(*fields, **options)
        limits = worker.receive()
        self.assertTrue(limits and limits.startswith("LIMITS\n"), limits)
        return worker, limits

    def other_client(self):
        """Returns a client with another key."""
        key = self.bus.new_key("other")
        self.bus.reload(3)
        return self.bus.remote(key=key)

    def assertRefusedReady(self, code, *fields, **options):
        head = self.worker(*fields, **options).receive()
        self.assertTrue(head and head.startswith(f"ERROR {code}\n"), head)
        return head

    def rows(self):
        """Returns the entries of workers on other machines."""
        return [row for row in self.admin.query("workers")["workers"] if "principal" in row]

    # Jobs and bodies.

    def test_a_remote_worker_serves_its_client_and_learns_no_path(self):
        worker, limits = self.serving("schemes: x y")
        for word in ("spool", str(self.bus.folder), "address-policy"):
            self.assertNotIn(word, limits)
        self.assertIn(f"inline-bytes: {MOST_BYTES}\n", limits)
        client = self.bus.remote()
        client.fetch("h", 1, "x:one", body=b"question", method="POST", coalesce="no")
        job = worker.job()
        self.assertIn(" x:one\n", job)
        self.assertIn("method: POST\n", job)
        self.assertNotIn(str(self.bus.folder), job)
        worker.send(f"DONE {job.split()[1]} 200", "length: 3", body=b"abc")
        result = client.terminal()
        self.assertResult(result, b"abc")
        self.assertEqual(result.fields["sha-256"], hashlib.sha256(b"abc").hexdigest())
        self.balance(self.admin)

    def test_bodies_of_all_sizes_come_in_messages(self):
        worker, _ = self.serving("schemes: x")
        client = self.bus.remote()
        client.hold()
        for number, size in enumerate((0, 1, 65_536, 65_537, MOST_BYTES)):
            with self.subTest(size=size):
                client.fetch("h", number, f"x:{size}")
                worker.answer(body(size))
                result = client.terminal()
                self.assertEqual((result.verb, result.fields["length"]), ("RESULT", str(size)))
                content = result.body or b"" if size <= 65_536 else pull(client, result)
                self.assertEqual(content, body(size))
        client.release()

    def test_a_hash_that_is_a_lie_names_no_content(self):
        worker, _ = self.serving("schemes: x")
        client = self.bus.remote()
        client.hold()
        lie = hashlib.sha256(body(100_000)).hexdigest()
        for number, size in enumerate((1000, 100_001)):
            client.fetch("h", number, f"x:{size}")
            worker.send(f"DONE {worker.job().split()[1]} 200", f"length: {size}", f"sha-256: {lie}", body=body(size))
            result = client.terminal()
            self.assertEqual(result.fields["sha-256"], hashlib.sha256(body(size)).hexdigest())

    # Principals.

    def test_a_scheme_belongs_to_the_client_that_the_key_serves(self):
        worker, _ = self.serving("schemes: x")
        other, own, local = self.other_client(), self.bus.remote(), self.bus.client()
        for client in (other, local):
            client.fetch("h", 1, "x:1")
            self.assertFailed(client.terminal(), "unsupported-scheme")
            client.fetch("h", 2, "nobody:1")
            unknown = client.terminal()
            client.fetch("h", 3, "x:1")
            known = client.terminal()
            for field in ("attempts", "detail"):
                self.assertEqual(known.fields.get(field), unknown.fields.get(field))
        own.fetch("h", 1, "x:1")
        worker.answer(b"own")
        self.assertResult(own.terminal(), b"own")
        self.assertIsNone(worker.receive(0))

    # Roles.

    def test_a_worker_cannot_say_HELLO(self):
        for line in ("HELLO EAR/1", "FETCH h 1 x:1", "QUERY ping", "DONE 00000000000000aa.1.1 200"):
            head = self.assertRefusedReady("not-authorized", "window: 1", line=line)
            self.assertIn("READY", head)
        client = RemoteClient(self.bus, self.worker_key, hello=False)
        self.addCleanup(client.close)
        self.assertEqual(client.greet(), "not-authorized")

    # Losses.

    # The command.

    def options(self, name="gpu"):
        return ["--bus", self.bus.endpoint, "--bus-key", str(self.bus.folder / f"{name}.key"),
                "--server-key", self.bus.server_key.decode()]

    def command(self, *program, options=None, name="gpu"):
        started = self.bus.start("work", *(options or self.options(name)), "--scheme", "x", "--", *program)
        # Before the end of the bus: workers outlive it.
        self.addCleanup(started.kill)
        return started

    def test_the_command_serves_over_a_network(self):
        program = self.command("sh", "-c", 'cat; printf " %s" "$1"', "sh")
        program.await_line("serving x:")
        client = self.bus.remote()
        client.fetch("h", 1, "x:one", body=b"body", method="POST", coalesce="no")
        self.assertResult(client.terminal(), b"body x:one")
        program.signal(signal.SIGTERM)
        self.assertEqual(program.wait(), 0, program.describe())
        eventually(lambda: not self.rows(), "BYE has arrived")

    def test_large_output_of_a_program_comes_in_a_message_and_too_much_is_told(self):
        self.command("sh", "-c", 'head -c "${1#x:}" /dev/zero', "sh").await_line("serving x:")
        client = self.bus.remote()
        client.hold()
        client.fetch("h", 1, f"x:{MOST_BYTES}")
        self.assertEqual(pull(client, client.terminal()), bytes(MOST_BYTES))
        client.fetch("h", 2, f"x:{MOST_BYTES + 1}")
        self.assertFailed(client.terminal(), "too-large")

    def test_a_key_of_a_client_serves_nothing(self):
        program = self.command("cat", name="test")
        self.assertEqual(program.wait(), 73, program.describe())
        self.assertIn("--role worker", program.stderr)

    def test_an_unknown_key_ends_the_command(self):
        self.bus.revoke("gpu")
        self.bus.reload(1)
        program = self.command("cat")
        self.assertEqual(program.wait(), 69, program.describe())
        self.assertIn("has not authorized the key", program.stderr)

    def test_the_job_of_a_killed_gateway_runs_again_and_ends_once(self):
        marks = self.bus.folder / "marks"
        marks.mkdir()
        program = self.command("sh", "-c", f'touch {marks}/$$; [ "$(ls {marks} | wc -l)" -gt 1 ] || sleep 60; printf done')
        program.await_line("serving x:")
        # A local session of the client's principal, which the death of the gateway does not touch.
        acting = self.bus.client(hello=False)
        acting.send("HELLO EAR/1", window="8", principal="key:test")
        acting.expect("WELCOME")
        acting.fetch("h", 1, "x:1")
        eventually(lambda: len(list(marks.iterdir())) == 1, "the program runs")
        gateway = self.bus.gateway
        [process] = watch_all([gateway])
        os.kill(gateway, signal.SIGKILL)
        process.await_death()
        process.close()
        self.assertResult(acting.terminal(), b"done")
        self.assertEqual(acting.rest(), [])
        self.assertEqual(len(list(marks.iterdir())), 2)
        self.balance(self.admin)

    def test_a_killed_command_leaves_its_job_to_the_next_one(self):
        first = self.command("sh", "-c", "while printf .; do sleep 0.05; done")
        first.await_line("serving x:")
        client = self.bus.remote()
        client.fetch("h", 1, "x:1")
        eventually(lambda: self.rows()[0]["running"] == 1, "the job runs")
        first.kill()
        self.command("sh", "-c", "printf second").await_line("serving x:")
        self.assertResult(client.terminal(), b"second")

    def test_a_function_in_Python_serves_over_a_network(self):
        (self.bus.folder / "served.py").write_text("def answer(job):\n    return job.url.encode() * int(job.url[2:])\n")
        package = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"
        program = Program([sys.executable, "-B", "-m", "earshot_bus.worker", "served:answer", "--scheme", "x", *self.options()],
                          cwd=self.bus.folder, environment={**os.environ, "PYTHONPATH": str(package)})
        self.addCleanup(program.kill)
        eventually(self.rows, program.describe)
        client = self.bus.remote()
        client.hold()
        client.fetch("h", 1, "x:3")
        self.assertResult(client.terminal(), b"x:3x:3x:3")
        client.fetch("h", 2, "x:50000")
        self.assertEqual(pull(client, client.terminal()), b"x:50000" * 50_000)
        client.fetch("h", 3, "x:5000000")
        self.assertFailed(client.terminal(), "too-large")
        program.signal(signal.SIGTERM)
        self.assertEqual(program.wait(), 0, program.describe())

    # Keys.

    def test_the_list_shows_roles(self):
        listed = self.bus.run("key", "list", "--json")
        rows = {row["name"]: row for row in map(json.loads, listed.stdout.splitlines())}
        self.assertEqual((rows["gpu"]["role"], rows["gpu"]["serves"]), ("worker", "test"))
        self.assertEqual((rows["test"]["role"], "serves" in rows["test"]), ("client", False))
        self.assertIn("worker:test", self.bus.run("key", "list").stdout.decode())

    def test_role_and_serves_need_each_other(self):
        for words in (["--role", "worker"], ["--serves", "test"], ["--role", "worker", "--serves", "a b"], ["--role", "x"]):
            program = self.bus.run("key", "new", "bad", *words)
            self.assertEqual(program.status, 64, program.describe())
