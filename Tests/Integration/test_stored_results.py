"""A client that reads, but with a window of 1, gets very many results that the broker already has: all arrive, and the client is
not too slow. The results wait in the cache, on disk, or share one outcome.

It is 4,000, more than wait in memory. With EARSHOT_LONG=1 it is 100,000, more than the bound of 20,000 outcomes.
"""

import os
import shutil
import time

from support.figures import report
from support.harness import Bus, TestCase, temporary_folder
from support.nginx import Nginx
from support.origin import Origin
from support.processes import eventually, resident

COUNT = 100_000 if os.environ.get("EARSHOT_LONG") else 4_000
BODY = b"." * 1_000
#: Terminals that wait for a window before stored results wait where they are.
WAITING = 1_000
MIB = 1 << 20


class StoredResultTests(TestCase):
    @classmethod
    def setUpClass(cls):
        folder = temporary_folder()
        cls.addClassCleanup(shutil.rmtree, folder)
        (folder / "root").mkdir()
        (folder / "root/body").write_bytes(BODY)
        # The response is fresh for a tenth of its age.
        os.utime(folder / "root/body", (1_000_000_000, 1_000_000_000))
        cls.nginx = cls.enterClassContext(Nginx(folder / "nginx", folder / "root"))

    def setUp(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder)
        self.bus = self.enterContext(Bus(workers=2, origin_limit=64, arguments=["--cache-folder", folder / "cache"]))
        self.observer = self.bus.client()

    def url(self, number):
        return f"{self.nginx.url}/body?{number}"

    def test_very_many_responses_from_the_cache(self):
        filler = self.bus.client()
        for number in range(COUNT):
            filler.fetch("fill", number, self.url(number))
        filler.terminals(COUNT, timeout=300)
        reader = self.bus.client(window=1)
        reader.hold()
        for number in range(COUNT):
            reader.fetch("read", number, self.url(number))
        answers = self.read_all(reader)
        self.assertEqual({int(message.operands[1]) for message in answers}, set(range(COUNT)))
        cached = sum(message.fields["source"] == "cache" for message in answers)
        # The cache may still be storing the last ones.
        self.assertGreater(cached, COUNT * 0.99)

    def test_very_many_durable_results(self):
        submitter = self.bus.client()
        for number in range(COUNT):
            submitter.fetch("durable", number, self.url(number), durable="yes", subscribe="no", cache="no-store")
        for _ in range(COUNT):
            submitter.expect("ACCEPTED", timeout=120)
        eventually(lambda: self.observer.query("ledger")["flights"]["bytes"] >= COUNT * len(BODY), "all were fetched", 300)
        reader = self.bus.client(window=1)
        reader.hold()
        reader.send("SUBSCRIBE durable")
        answers = self.read_all(reader)
        self.assertEqual({int(message.operands[1]) for message in answers}, set(range(COUNT)))
        self.await_requests(self.observer, pending=0)

    def test_very_many_requests_for_one_url(self):
        origin = self.enterContext(Origin())
        reader = self.bus.client(window=1)
        reader.hold()
        for number in range(COUNT):
            reader.fetch("one", number, f"{origin.url}/gate/late?bytes=1000")
        reader.query("ping")
        origin.open_gate("late")
        answers = self.read_all(reader, least=COUNT - 1)
        self.assertEqual({int(message.operands[1]) for message in answers}, set(range(COUNT)))
        self.assertEqual(origin.total, 1)

    def read_all(self, reader, least=WAITING):
        """Returns all terminals of a client that begins to read when at least this many are due to it."""
        def is_due():
            return self.observer.query("ledger")["deliveries"]["outstanding"] > least
        reader.query("ping")
        eventually(is_due, "its window is full")
        memory, began = resident(self.bus.broker), time.monotonic()
        reader.release()
        answers = reader.terminals(COUNT, timeout=600)
        seconds = time.monotonic() - began
        self.assertEqual({message.verb for message in answers}, {"RESULT"})
        self.assertTrue(all(message.content() == answers[0].content() for message in answers))
        self.assertEqual([message for message in reader.rest() if message.is_terminal], [], "each once")
        self.balance(self.observer)
        report(f"{COUNT} results over a window of 1 in {seconds:.1f} s; the broker had {memory / MIB:.0f} MiB")
        return answers
