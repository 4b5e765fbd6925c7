"""Workers for users' own schemes, played over raw sockets: the broker's reaction to their messages."""

import collections
import concurrent.futures

from support.harness import Bus, TestCase
from support.worker import HandWorker


class OwnWorker(HandWorker):
    """Worker of one scheme on `work`."""

    def __init__(self, bus, scheme, *fields):
        super().__init__(f"ipc://{bus.runtime}/work", "slots: 4", f"schemes: {scheme}", *fields)
        self.limits = self.receive()

    def serve(self, content, number):
        """Serves this number of jobs. Returns how often each URL was one. `content`: returns the content of a URL."""
        served = collections.Counter()
        while served.total() < number:
            verb, *operands = self.receive().partition("\n")[0].split(" ")
            if verb == "JOB":
                attempt, url = operands
                served[url] += 1
                self.send(f"DONE {attempt} 200", f"length: {len(content(url))}", body=content(url))
            elif verb == "PING":
                self.send("PONG")
            else:
                raise AssertionError(f"no JOB but {verb}")
        return served


class OwnWorkerTests(TestCase):
    def setUp(self):
        self.bus = self.enterContext(Bus(workers=1))
        self.client = self.bus.client()

    def worker(self, scheme, *fields):
        worker = OwnWorker(self.bus, scheme, *fields)
        self.addCleanup(worker.close)
        return worker

    def test_a_DEALER_of_libzmq_serves_several_jobs_at_a_time(self):
        def content(url):
            return url.encode() * 1_000
        worker = self.worker("back")
        urls = [f"back:{number}-" + "x" * (number % 40) for number in range(300)]
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            served = thread.submit(worker.serve, content, len(urls))
            for number, url in enumerate(urls):
                self.client.fetch("h", number, url)
            for _ in urls:
                terminal = self.client.terminal()
                self.assertResult(terminal, content(urls[int(terminal.operands[1])]))
            self.assertEqual(served.result(), {url: 1 for url in urls})
        self.balance(self.client)
