"""Workers with too few descriptors or too little memory: their transfers fail or are repeated, and the bus continues."""

import os
import resource

from support.harness import Bus, TestCase
from support.origin import Origin, body
from support.processes import eventually

MIB = 1 << 20
RETRYABLE = {"connect-failed", "dns-failed", "reset"}


class DescriptorTests(TestCase):
    COUNT = 60

    def test_a_worker_that_runs_out_of_descriptors_goes_on(self):
        with Origin() as origin, Bus(workers=1, origin_limit=64) as bus:
            client = bus.client()
            client.fetch("warm", 1, f"{origin.url}/bytes/100000")
            self.assertResult(client.terminal(), body(100_000))
            worker = bus.workers[0]
            _, most = resource.prlimit(worker, resource.RLIMIT_NOFILE)
            for spare in (0, 1, 2, 3, 5, 8, 13):
                with self.subTest(spare=spare):
                    highest = max(int(name) for name in os.listdir(f"/proc/{worker}/fd"))
                    resource.prlimit(worker, resource.RLIMIT_NOFILE, (highest + 1 + spare, most))
                    for index in range(self.COUNT):
                        url = f"{origin.url}/bytes/100000?seed={spare}-{index}"
                        client.fetch(f"few/{spare}", index, url, retries=1)
                    codes = set()
                    for answer in client.terminals(self.COUNT, timeout=60):
                        if answer.verb == "RESULT":
                            self.assertResult(answer, body(100_000, f"{spare}-{answer.id[1]}"))
                        else:
                            codes.add(answer.operands[2])
                    self.assertLessEqual(codes, RETRYABLE)
                    resource.prlimit(worker, resource.RLIMIT_NOFILE, (most, most))
                    client.fetch("enough", spare, f"{origin.url}/bytes/100000?seed=enough-{spare}")
                    self.assertResult(client.terminal(), body(100_000, f"enough-{spare}"))
            self.assertEqual(bus.workers, [worker], "the same worker")
            self.balance(client)

    def test_a_worker_takes_no_more_than_its_descriptors_allow(self):
        with Origin() as origin, Bus(workers=1, slots=1000, origin_limit=1000, descriptors=128) as bus:
            client = bus.client()
            slots = eventually(lambda: [w["slots"] for w in client.query("workers")["workers"] if w["slots"]], "a worker")
            self.assertEqual(slots, [(128 - 64) // 3])
            for index in range(100):
                client.fetch("few", index, f"{origin.url}/bytes/100000?seed={index}", retries=0)
            for answer in client.terminals(100):
                self.assertResult(answer, body(100_000, answer.id[1]))


class MemoryTests(TestCase):
    BODY, COUNT = 15 * MIB, 16

    def test_a_worker_beyond_its_memory_dies_alone_and_what_it_ran_runs_again_one_by_one(self):
        limits = ["--worker-memory", str(256 * MIB), "--inline-bytes", str(16 * MIB)]
        with Origin() as origin, Bus(workers=1, arguments=limits, origin_limit=40, crashes=True) as bus:
            client = bus.client()
            broker, worker = bus.broker, bus.workers[0]
            for index in range(self.COUNT):
                # Bodies come once all of them run: together they exceed a worker's memory, one by one they do not.
                client.fetch("large", index, f"{origin.url}/gate/all?bytes={self.BODY}&seed={index}", timeout=300)
            origin.await_running(self.COUNT)
            origin.open_gate("all")
            for answer in client.terminals(self.COUNT, timeout=300):
                self.assertResult(answer, body(self.BODY, answer.id[1]))
            client.fetch("small", 1, f"{origin.url}/bytes/5000")
            self.assertResult(client.terminal(), body(5000))
            self.assertNotEqual(bus.workers, [worker])
            self.assertNotIn("Registers:", bus.program.stderr, "what it had in memory stays out of the log")
            self.assertEqual(bus.broker, broker, "the broker is untouched")
            self.balance(client)

    def test_the_bound_is_a_setting_that_holds_at_once(self):
        with Bus(workers=2) as bus:
            client = bus.client()

            def limits():
                return [resource.prlimit(pid, resource.RLIMIT_AS)[0] for pid in bus.workers]
            eventually(lambda: limits() == [4 << 30] * 2, lambda: f"the bound is 4 GiB: {limits()}")
            before = bus.workers
            self.assertEqual(client.set(f"worker-memory {1 << 30}").verb, "CHANGED")
            eventually(lambda: limits() == [1 << 30] * 2, lambda: f"the bound is 1 GiB: {limits()}")
            self.assertEqual(client.set(f"worker-memory {2 << 30}").verb, "CHANGED")
            eventually(lambda: limits() == [2 << 30] * 2, lambda: f"and can be raised: {limits()}")
            self.assertEqual(bus.workers, before, "nobody was started again for it")
            client.set("workers 3")
            bus._count = 3
            eventually(lambda: limits() == [2 << 30] * 3, lambda: f"a new worker has it too: {limits()}")
            self.assertEqual(client.set(f"worker-memory {MIB}").verb, "ERROR")
