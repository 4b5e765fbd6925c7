"""Limits of the machine: few descriptors, small files, little address space, no /proc. Each request has the right answer or a reason."""

import contextlib
import json
import os
import pathlib
import re
import time
import unittest

from support.harness import Bus, Commands, TestCase, binary, temporary_folder, web
from support.origin import Origin, body
from support.processes import Program

MIB = 1 << 20
#: Seconds within which a program with too low a limit refuses to start.
AT_ONCE = 5 if os.environ.get("EARSHOT_LONG") else 30
FILE_LIMIT = 1_000_000


def mixture(urls, count):
    """Returns URLs of small and large bodies, errors and redirects, each with its body, or None for an error."""
    requests = {}
    for number in range(count):
        path, content = [
            (f"/bytes/{number}?seed=s{number}", body(number, f"s{number}")),
            (f"/bytes/300000?seed={number}", body(300_000, number)),
            (f"/status/404?{number}", None),
            (f"/redirect/2?{number}", b"arrived\n"),
        ][number % 4]
        requests[f"{urls[number % len(urls)]}{path}"] = content
    return requests


class MachineCase(TestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin(ports=4))
        self.folder = temporary_folder()
        self.commands = Commands(self.folder / "run", self.folder)
        self.addCleanup(self.commands.await_no_survivors)

    def limited(self, limit, program, *arguments, runtime=None):
        """Runs a program under prlimit(1) to its end."""
        environment = dict(self.commands.environment)
        if runtime:
            environment["EARSHOT_RUNTIME"] = str(runtime)
        run = Program(["prlimit", f"--{limit}", program, *arguments], environment, self.folder)
        run.status = run.wait()
        self.assertEqual(run.crash_lines, [], run.describe())
        return run

    def fetch_all(self, limit, runtime=None, count=100):
        """Fetches a mixture, and checks each answer."""
        wanted = mixture(self.origin.urls, count)
        (self.folder / "list").write_text("\n".join(wanted))
        get = self.limited(limit, binary(), "get", "-q", "--json", "-i", "list", "-d", "out", runtime=runtime)
        self.assertEqual(get.status, 2, get.describe())
        answers = {answer["url"]: answer for answer in map(json.loads, get.stdout.splitlines())}
        self.assertEqual(answers.keys(), wanted.keys(), get.describe())
        for url, content in wanted.items():
            answer = answers[url]
            if content is None:
                self.assertEqual((answer["code"], answer["status"]), ("http-status", 404))
            else:
                self.assertNotIn("code", answer)
                self.assertTrue(pathlib.Path(self.folder / answer["path"]).read_bytes() == content, url)


class DescriptorTests(MachineCase):
    def test_too_low_a_limit_is_refused_at_once_with_the_limit_and_the_least_value(self):
        with Bus(workers=1) as bus:
            programs = {
                "serve": ([binary(), "serve", "--workers", "2"], None),
                "get": ([binary(), "get", f"{self.origin.url}/bytes/1"], None),
                "broker": ([binary(), "broker"], None),
                "worker": ([binary(), "worker"], bus.runtime),
                "work": ([binary(), "work", "--scheme", "sum", "--", "true"], bus.runtime),
            }
            with contextlib.suppress(AssertionError):
                programs["web"] = ([web()], None)
            for name, (command, runtime) in programs.items():
                for limit in (12, 16):
                    with self.subTest(program=name, limit=limit):
                        started = time.monotonic()
                        run = self.limited(f"nofile={limit}", *command, runtime=runtime)
                        self.assertLess(time.monotonic() - started, AT_ONCE)
                        self.assertEqual(run.status, 73, run.describe())
                        self.assertRegex(run.stderr, rf"^\S+: cannot start: the limit of open files is {limit}, and \d+ are needed; raise it ")
                        self.assertEqual(len(run.stderr.splitlines()), 1, run.describe())
        (self.folder / "two").write_text(f"{self.origin.url}/bytes/1\n{self.origin.url}/bytes/2\n" * 20)
        refused = self.limited("nofile=16", binary(), "get", "-i", "two", "-d", "out")
        least = re.search(r"and (\d+) are", refused.stderr)[1]
        self.fetch_all(f"nofile={least}", count=20)

    def test_a_low_limit_bounds_connections_and_transfers_with_one_warning(self):
        for limit in (48, 64, 128):
            with self.subTest(limit=limit), Bus(descriptors=limit) as bus:
                bus.program.await_line("open files")
                warnings = [line for line in bus.program.stderr.splitlines() if "open files" in line]
                self.assertEqual(len(warnings), 1, bus.program.describe())
                self.assertRegex(warnings[0], rf"the limit of open files, {limit}, permits \d+ connections of programs and \d+ transfers")
                most = int(re.search(r"connections=(\d+)", warnings[0])[1])
                clients = [bus.client() for _ in range(most)]
                self.assertTrue(all(client.query("ledger") for client in clients), "as many as the warning says")
                for client in clients:
                    client.close()
                self.fetch_all(f"nofile={limit}", bus.runtime)
        self.fetch_all("nofile=64")


class FileSizeTests(MachineCase):
    def test_a_body_beyond_the_limit_of_file_sizes_fails_alone(self):
        with Bus(prefix=["prlimit", f"--fsize={FILE_LIMIT}"]) as bus:
            client = bus.client()
            workers = bus.workers
            client.fetch("large", 1, f"{self.origin.url}/bytes/3000000")
            for number in range(8):
                client.fetch("small", number, f"{self.origin.url}/bytes/300000?seed={number}")
            for answer in client.terminals(9):
                if answer.id[0] == "large":
                    self.assertFailed(answer, "spool-full")
                    self.assertIn("file size limit", answer.fields["detail"])
                else:
                    self.assertResult(answer, body(300_000, answer.id[1]))
            self.assertEqual(bus.workers, workers)
            get = bus.run("get", f"{self.origin.url}/bytes/3000000?again", "-o", "none")
            self.assertEqual(get.status, 23, get.describe())
            self.assertIn("permits (spool-full); raise the limit (ulimit -f, LimitFSIZE=)", get.stderr)

    def test_a_client_beyond_the_limit_says_so(self):
        self.commands.environment["EARSHOT_BODIES"] = "pull"
        with Bus(workers=1) as bus:
            for option in ("-o", "-d"):
                with self.subTest(option=option):
                    url = f"{self.origin.url}/bytes/3000000"
                    get = self.limited(f"fsize={FILE_LIMIT}", binary(), "get", url, option, "out", runtime=bus.runtime)
                    self.assertEqual(get.status, 23, get.describe())
                    self.assertIn("File too large (write-failed); raise the limit of file sizes (ulimit -f)", get.stderr)


class AddressSpaceTests(MachineCase):
    def test_a_bus_with_250_mib_of_address_space_answers_everything(self):
        self.fetch_all(f"as={250 * MIB}")


@unittest.skipUnless(os.geteuid() == 0, "a mount namespace needs root")
class WithoutProcTests(MachineCase):
    def without_proc(self, *arguments, program=None):
        run = Program(["unshare", "--mount", "sh", "-c", 'umount -l /proc && exec "$0" "$@"', program or binary(), *arguments],
                      self.commands.environment, self.folder)
        run.status = run.wait()
        return run

    def test_a_command_works_without_proc(self):
        version = self.without_proc("--version")
        self.assertTrue(version.stdout.startswith(b"earshot "), version.describe())
        self.assertEqual(self.without_proc("get").status, 64)
        url = f"{self.origin.url}/bytes/300000"
        for arguments in (["-o", "file"], ["-o", "/dev/stdout"], ["--no-cache", "-d", "folder"]):
            get = self.without_proc("get", url, *arguments)
            self.assertEqual(get.status, 0, get.describe())
        self.assertTrue((self.folder / "file").read_bytes() == body(300_000))
        self.assertEqual(self.without_proc("--listen", "x", program=web()).status, 64)

    def test_a_bus_without_proc_serves_and_stops(self):
        prefix = ["unshare", "--mount", "sh", "-c", 'umount -l /proc && exec "$0" "$@"']
        with Bus(workers=1, prefix=prefix) as bus:
            client = bus.client()
            for number, size in enumerate((10, 300_000)):
                client.fetch("a", number, f"{self.origin.url}/bytes/{size}")
                self.assertResult(client.terminal(), body(size))
        stop = self.without_proc("stop")
        self.assertEqual(stop.status, 69, stop.describe())
