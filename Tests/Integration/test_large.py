"""A large body is on disk once, for any number of readers, and in no process's memory. Other requests are served meanwhile.

It has 64 MiB; with EARSHOT_LONG=1 it has 1 GiB, and others must be served as fast as documented.
"""

import hashlib
import os
import shutil
import threading
import time

from support.figures import milliseconds, report
from support.harness import Bus, TestCase, temporary_folder
from support.nginx import Nginx
from support.origin import Origin, body
from support.processes import eventually, reset_peak, resident, resident_peak

MIB = 1 << 20
IS_LONG = bool(os.environ.get("EARSHOT_LONG"))
SIZE = (1 << 30) if IS_LONG else 64 * MIB
SUBSCRIBERS = 100


class LargeTests(TestCase):
    def setUp(self):
        self.folder = temporary_folder()
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "root").mkdir()
        piece, self.sum = os.urandom(MIB), hashlib.sha256()
        with open(self.folder / "root/large", "wb") as file:
            for _ in range(SIZE // MIB):
                file.write(piece)
                self.sum.update(piece)
        (self.folder / "root/small").write_bytes(b"small" * 200)
        self.nginx = self.enterContext(Nginx(self.folder / "nginx", self.folder / "root"))

    def test_100_subscribers_share_one_copy_and_the_broker_does_not_grow(self):
        with Bus(workers=1) as bus:
            observer = bus.client()
            clients = [bus.client() for _ in range(SUBSCRIBERS)]
            before = resident(bus.broker)
            reset_peak(bus.broker)
            for index, client in enumerate(clients):
                client.take_files = False
                client.hold()
                client.fetch(f"large/{index}", 1, f"{self.nginx.url}/large", stream="yes" if index % 2 else "no")
            paths = set()
            for client in clients:
                message = client.terminal(240)
                self.assertEqual((message.verb, message.fields["sha-256"]), ("RESULT", self.sum.hexdigest()))
                paths.add(message.fields["file"])
            grown = resident_peak(bus.broker) - before
            (path,) = paths
            with open(path, "rb") as file:
                self.assertEqual(hashlib.file_digest(file, "sha256").hexdigest(), self.sum.hexdigest())
            used = self.bytes_on_disk(bus.folder)
            report(f"{SIZE // MIB} MiB for {SUBSCRIBERS}: {used / MIB:.0f} MiB on the disk, the broker grew by"
                   f" {grown / MIB:.1f} MiB")
            self.assertLess(used, SIZE + 8 * MIB)
            self.assertLess(grown, 32 * MIB)
            for client in clients:
                client.release()
            self.await_requests(observer, pending=0)
            eventually(lambda: not os.path.exists(path), "nobody has it any more")
            self.assertEqual(self.balance(observer)["flights"]["started"], 1)

    def test_others_are_not_held_up_by_a_large_body(self):
        with Origin() as origin, Bus(workers=1, arguments=["--no-cache"]) as bus:
            client, other = bus.client(), bus.client()
            client.take_files = False
            quiet = self.small(other, "quiet", lambda taken: len(taken) < 100)
            # In the ordinary form its second half waits for the others.
            url = f"{self.nginx.url}/large" if IS_LONG else f"{origin.url}/steps/end?bytes={SIZE}"
            client.fetch("large", 1, url, timeout=240)
            ended = []
            waiter = threading.Thread(target=lambda: ended.append(client.terminal(240)))
            waiter.start()
            beside = self.small(other, "beside", lambda taken: waiter.is_alive() if IS_LONG else len(taken) < 100)
            origin.open_gate("end")
            waiter.join()
            expected = self.sum if IS_LONG else hashlib.sha256(body(SIZE))
            self.assertEqual(ended[0].fields["sha-256"], expected.hexdigest())
            report(f"{SIZE // MIB} MiB took {int(ended[0].fields['elapsed-ms']) / 1000:.2f} s; 1 KiB took"
                   f" {milliseconds(quiet):.1f} ms before, {milliseconds(beside):.1f} beside it, {len(beside)} times")
            self.assertGreater(len(beside), 3, "they do not wait for its end")
            if IS_LONG:
                self.assertLessEqual(milliseconds(beside), 4)

    def small(self, client, handler, goes_on):
        taken = []
        while goes_on(taken):
            began = time.monotonic()
            client.fetch(handler, len(taken), f"{self.nginx.url}/small?{handler}-{len(taken)}")
            message = client.terminal()
            self.assertEqual(message.verb, "RESULT", message)
            taken.append(message.at - began)
        return taken

    @staticmethod
    def bytes_on_disk(folder):
        """Returns the disk usage of the files below, each counted once regardless of its links."""
        files = {}
        for path in folder.rglob("*"):
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue
            files[status.st_ino] = status.st_blocks * 512
        return sum(files.values())
