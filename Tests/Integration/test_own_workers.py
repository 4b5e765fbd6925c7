"""Workers for users' own schemes, played over raw sockets: the broker's reaction to their messages."""

import collections
import concurrent.futures
import time

from support.harness import Bus, TestCase
from support.worker import HandWorker

RESPONSE_FIELD_BYTES = 48 * 1024
HEAD_BYTES = 65_536


class OwnWorker(HandWorker):
    """Worker of one scheme on `work`."""

    def __init__(self, bus, scheme, *fields):
        super().__init__(f"ipc://{bus.runtime}/work", "slots: 4", f"schemes: {scheme}", *fields)
        self.limits = self.hear()

    def job(self):
        """Returns the attempt of the next job."""
        head = self.hear()
        if head is None or not head.startswith("JOB "):
            raise AssertionError(f"no JOB but {head}")
        return head.split()[1]

    def serve(self, content, number):
        """Serves this number of jobs. Returns how often each URL was one. `content`: returns the content of a URL."""
        served = collections.Counter()
        while served.total() < number:
            verb, *operands = self.hear().partition("\n")[0].split(" ")
            if verb == "JOB":
                attempt, url = operands
                served[url] += 1
                self.say(f"DONE {attempt} 200", f"length: {len(content(url))}", body=content(url))
            elif verb == "PING":
                self.say("PONG")
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

    def done(self, worker, *fields, body=b"abc"):
        worker.say(f"DONE {worker.job()} 200", f"length: {len(body)}", *fields, body=body)

    def test_long_header_fields_never_make_a_longer_message_than_clients_read(self):
        worker = self.worker("long")
        url = "long:" + "u" * 8_000
        for excess, wanted in ((0, "RESULT"), (1, "FAILED"), (400_000, "FAILED")):
            with self.subTest(excess=excess):
                self.client.fetch("h", f"{excess}", url)
                self.done(worker, "", "x: " + "v" * (RESPONSE_FIELD_BYTES - 3 + excess))
                self.assertTrue(self.client.socket.poll(10_000))
                head = self.client.socket.recv_multipart()[0]
                self.assertLessEqual(len(head), HEAD_BYTES)
                code = b"200" if wanted == "RESULT" else b"protocol-error"
                self.assertTrue(head.startswith(b"%s h %d %s\n" % (wanted.encode(), excess, code)), head[:80])
        self.client.say("ACK 3")
        self.balance(self.client)

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

    def test_the_answer_to_HEAD_has_no_body(self):
        worker = self.worker("head")
        self.client.fetch("h", 1, "head:1", method="HEAD")
        self.done(worker)
        result = self.client.terminal()
        self.assertEqual((result.verb, result.fields["length"], result.body), ("RESULT", "0", None))
        self.assertNotIn("sha-256", result.fields)

    def test_a_file_that_is_not_there_is_the_workers_failure(self):
        worker = self.worker("file")
        self.client.fetch("h", 1, "file:1")
        worker.say(f"DONE {worker.job()} 200", "length: 9", "file: nothing.part", f"sha-256: {'0' * 64}")
        failure = self.client.terminal()
        self.assertFailed(failure, "worker-failed")
        self.assertIn("file", failure.fields["detail"])

    def test_a_silent_worker_is_asked_after_each_five_seconds(self):
        last = time.monotonic()
        worker = self.worker("slow")
        self.client.fetch("h", 1, "slow:1")
        attempt = worker.job()
        for _ in range(2):
            self.assertEqual(worker.hear(), "PING\n")
            self.assertGreater(time.monotonic() - last, 4.5)
            last = time.monotonic()
            worker.say("PONG")
        worker.say(f"DONE {attempt} 200")
        self.assertEqual(self.client.terminal().verb, "RESULT")

    def test_a_drain_is_told_to_workers_that_ask_for_it(self):
        told, quiet = self.worker("told", "drain: yes"), self.worker("quiet")
        self.client.fetch("h", 1, "told:1")
        attempt = told.job()
        self.bus.program.signal(15)
        self.assertEqual(told.hear(), "DRAIN\n")
        self.client.expect("GOODBYE")
        self.client.fetch("h", 2, "quiet:1")
        self.assertFailed(self.client.terminal(), "stopping")
        told.say(f"DONE {attempt} 200", "length: 3", body=b"abc")
        self.assertResult(self.client.terminal(), b"abc")
        self.assertIsNone(quiet.hear(0))

    def test_limits_are_told_when_they_change(self):
        worker = self.worker("limits")
        self.assertNotIn("slots:", worker.limits)
        self.client.set("inline-bytes 1000")
        self.assertIn("inline-bytes: 1000\n", worker.hear())
        self.client.set("slots 7")
        self.assertNotIn("slots:", worker.hear())


