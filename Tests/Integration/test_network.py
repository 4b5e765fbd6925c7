"""Two machines: a bus on one, its client on the other, over a line with a delay of 20 ms and 1 % loss in each direction.

The strict form uses the numbers of a day's work and measures against curl over the same line.
"""

import hashlib
import json
import os
import shutil
import subprocess
import time
import unittest

from support.figures import report
from support.harness import Commands, TestCase, binary, temporary_folder
from support.link import NEAR_ADDRESS, Machines, obstacle
from support.network import NetworkBus
from support.nginx import Nginx
from support.processes import Program, eventually

IS_LONG = bool(os.environ.get("EARSHOT_LONG"))
MIB = 1 << 20
CONCURRENCY = 16
PORT = 5765
SMALL, SMALL_BYTES = (10_000 if IS_LONG else 300), 1024
LARGE, LARGE_BYTES = (20, 64 * MIB) if IS_LONG else (3, 3 * MIB)
KILLS = 20 if IS_LONG else 3
#: Seconds without any packet. Connections survive 20.
DOWN = 5 if IS_LONG else 2


@unittest.skipIf(obstacle(), f"no network namespaces with TUN devices: {obstacle()}")
class MachinesTests(TestCase):
    def setUp(self):
        self.machines = self.enterContext(Machines())
        self.folder = temporary_folder()
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.root, self.out = self.folder / "root", self.folder / "out"
        self.root.mkdir()
        self.nginx = self.enterContext(Nginx(self.folder / "nginx", self.root, NEAR_ADDRESS))
        self.bus = self.enterContext(NetworkBus(host=NEAR_ADDRESS, port=PORT, workers=2, origin_limit=CONCURRENCY, folder=self.folder,
                                                arguments=["--no-cache"]))
        far = Commands(self.folder / "far", self.folder)
        del far.environment["EARSHOT_RUNTIME"]
        self.environment = far.environment

    def files(self, count, size):
        """Publishes files of random bytes. Returns their URLs, and their hashes by name."""
        digests = {}
        for number in range(count):
            content = os.urandom(size)
            (self.root / f"f{number}").write_bytes(content)
            digests[f"f{number}"] = hashlib.sha256(content).hexdigest()
        return [f"{self.nginx.url}/{name}" for name in digests], digests

    def start(self, *arguments):
        return Program([*self.machines.far, binary(), *arguments], self.environment, self.folder)

    def get(self, urls, *arguments):
        """Starts `earshot get` for these URLs on the far machine."""
        (self.folder / "list").write_text("\n".join(urls))
        return self.start("get", "-i", self.folder / "list", "--json", *arguments, *self.bus.options())

    def assertAllOnce(self, program, digests):
        """Each URL was answered once, with the right body, and was fetched once."""
        self.assertEqual(program.wait(1_200), 0, program.describe()[-2_000:])
        lines = [json.loads(line) for line in program.stdout.splitlines()]
        self.assertEqual(sorted(line["index"] for line in lines), list(range(1, len(digests) + 1)))
        for line in lines:
            self.assertEqual(line["sha256"], digests[line["url"].rpartition("/")[2]], line)

    def assertWritten(self, digests):
        for name, digest in digests.items():
            with open(self.out / name, "rb") as file:
                self.assertEqual(hashlib.file_digest(file, "sha256").hexdigest(), digest, name)

    def curl(self, urls):
        """Seconds that curl needs over the same line, at the same concurrency."""
        configuration = self.folder / "curl"
        configuration.write_text("".join(f'url = "{url}"\noutput = "{self.folder}/curl-{number}"\n'
                                         for number, url in enumerate(urls)))
        began = time.monotonic()
        subprocess.run([*self.machines.far, "curl", "-sS", "--no-progress-meter", "-Z", "--parallel-max", str(CONCURRENCY), "-K", configuration],
                       check=True, timeout=1_200)
        return time.monotonic() - began

    def compare(self, what, urls, seconds):
        direct = self.curl(urls)
        report(f"{what}: {seconds:.2f} s, curl {direct:.2f} s, {seconds / direct:.2f} times as long")

    def test_small_bodies_arrive_whole(self):
        urls, digests = self.files(SMALL, SMALL_BYTES)
        began = time.monotonic()
        self.assertAllOnce(self.get(urls, "-d", self.out), digests)
        spent = time.monotonic() - began
        self.assertWritten(digests)
        self.compare(f"{SMALL} x {SMALL_BYTES} B", urls, spent)

    def test_large_bodies_arrive_whole(self):
        urls, digests = self.files(LARGE, LARGE_BYTES)
        began = time.monotonic()
        self.assertAllOnce(self.get(urls, "-d", self.out), digests)
        spent = time.monotonic() - began
        self.assertWritten(digests)
        self.compare(f"{LARGE} x {LARGE_BYTES // MIB} MiB", urls, spent)

    def test_an_interrupted_line_loses_nothing_and_reading_goes_on(self):
        urls, digests = self.files(LARGE, LARGE_BYTES)
        get = self.get(urls, "-d", self.out)
        eventually(lambda: len(get.stdout.splitlines()) >= 1, "a first body has arrived", 300)
        self.machines.pause(DOWN)
        self.assertAllOnce(get, digests)
        self.assertWritten(digests)
        self.nginx_counts(digests)

    def test_killed_gateways_lose_and_double_nothing(self):
        urls, digests = self.files(SMALL, SMALL_BYTES)
        get = self.get(urls)
        for number in range(1, KILLS + 1):
            eventually(lambda: len(get.stdout.splitlines()) >= number * SMALL // (KILLS + 2) or not get.running,
                       f"kill {number}", 120)
            self.bus.kill_gateway()
        self.assertAllOnce(get, digests)
        self.nginx_counts(digests)

    def nginx_counts(self, digests):
        """Each file was fetched once, by the log that nginx writes at the end of each response."""
        log = self.folder / "nginx/access.log"
        lines = log.read_text().splitlines()
        self.assertEqual(sorted(lines), sorted(f"/{name}" for name in digests))

    def test_no_url_and_no_body_is_readable_on_the_line(self):
        marks = [b"MARK-OF-THE-BODY-0123456789", b"mark-of-the-url", b"FETCH ", b"RESULT "]
        for name, size in (("mark-of-the-url-1", 100), ("mark-of-the-url-2", 300_000)):
            (self.root / name).write_bytes((marks[0] * (size // len(marks[0]) + 1))[:size])
        urls = [f"{self.nginx.url}/mark-of-the-url-{number}" for number in (1, 2)]

        def captured(name, *command):
            """Bytes on the line while a command runs on the far machine."""
            path = self.folder / name
            dump = Program([*self.machines.far, "tcpdump", "-U", "-i", "line", "-w", path, "-Z", "root"])
            dump.await_line("listening on")
            program = Program([*self.machines.far, *command], self.environment, self.folder)
            self.assertEqual(program.wait(60), 0, program.describe())
            eventually(lambda: path.stat().st_size > 300_000, "the packets were written")
            dump.signal(2)
            dump.wait()
            return path.read_bytes()

        plain = captured("plain", "curl", "-s", "-o", "one", urls[0], "-o", "two", urls[1])
        self.assertTrue(marks[0] in plain and marks[1] in plain, "the capture has the bytes of a plain connection")
        secret = captured("secret", binary(), "get", "-d", self.out, *self.bus.options(), *urls)
        self.assertEqual((self.out / "mark-of-the-url-2").stat().st_size, 300_000)
        for mark in marks:
            self.assertNotIn(mark, secret)
        self.assertNotIn(marks[0][5:12], secret)
