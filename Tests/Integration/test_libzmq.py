"""Workers at a ROUTER of libzmq: nothing is lost, added or reordered, however many messages wait and whoever reads late.

The clients of all modules are DEALER sockets of libzmq, `test_own_workers` has workers with one, and `test_puller` a ROUTER.
"""

from support.cluster import PlayedBroker
from support.harness import TestCase
from support.origin import Origin, body

SLOTS = 600
SIZES = [0, 1, 254, 255, 256, 20_000, 65_536, 65_537, 200_000]
"""Around the lengths at which ZMTP has another header, and at which a body becomes a file."""


class LibraryTests(TestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.broker = PlayedBroker(lambda _: ["worker", "--slots", SLOTS], slots=SLOTS)
        self.addCleanup(self.broker.close)
        self.assertEqual(self.broker.expect("SLOTS").operands, [str(SLOTS)])

    def send_jobs(self, count):
        """Sends jobs in one burst. Returns the size of each attempt's body."""
        return {self.broker.job(f"{self.origin.url}/bytes/{SIZES[n % len(SIZES)]}?seed={n}"): (SIZES[n % len(SIZES)], n)
                for n in range(count)}

    def assertAnswered(self, wanted):
        for _ in range(len(wanted)):
            message = self.broker.expect("DONE")
            size, seed = wanted.pop(message.operands[0])
            name = message.fields.get("file")
            self.assertEqual(name is not None, size > 65_536, message)
            content = (self.broker.spool / name).read_bytes() if name else message.inline or b""
            self.assertTrue(content == body(size, seed), f"{message}: other bytes than the origin's")
        self.assertEqual(wanted, {})

    def test_each_job_of_a_burst_has_one_answer(self):
        self.assertAnswered(self.send_jobs(SLOTS))
        self.broker.send("PING")
        self.assertEqual(self.broker.receive().verb, "PONG", "nothing else was left")

    def test_the_answers_wait_for_a_broker_that_reads_late(self):
        wanted = self.send_jobs(SLOTS)
        # More bytes than libzmq and the kernel accept.
        self.origin.await_total(SLOTS)
        self.assertAnswered(wanted)

    def test_the_worker_serves_the_next_broker(self):
        self.broker.listen()
        self.assertEqual(self.broker.welcome().verb, "READY")
        self.broker.expect("SLOTS")
        self.assertAnswered(self.send_jobs(100))
