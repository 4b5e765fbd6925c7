"""A slow subscriber beside a fast one delays no other client and loses nothing.

Each of the 2,000 URLs is a separate file of 1 KiB. With EARSHOT_LONG=1 there are nearly as many as outcomes may wait for a client.
"""

import os
import shutil
import uuid

from support.crowd import Crowd
from support.figures import report
from support.harness import Bus, TestCase, temporary_folder
from support.nginx import Nginx
from support.processes import reset_peak, resident, resident_peak

MIB = 1 << 20
LONG = bool(os.environ.get("EARSHOT_LONG"))


class SharedURLTests(TestCase):
    COUNT, ROUNDS = (20_000, 2) if LONG else (2_000, 1)
    MOST_ROUNDS = 15
    BYTES = 1024
    PER_FOLDER = 1_000

    @classmethod
    def setUpClass(cls):
        folder = temporary_folder()
        cls.addClassCleanup(shutil.rmtree, folder)
        for first in range(0, cls.COUNT, cls.PER_FOLDER):
            (folder / f"root/{first // cls.PER_FOLDER}").mkdir(parents=True)
        for index in range(cls.COUNT):
            path = folder / f"root/{index // cls.PER_FOLDER}/{index}"
            path.write_bytes(f"{index} {uuid.uuid4()}".encode().ljust(cls.BYTES, b"."))
        cls.nginx = cls.enterClassContext(Nginx(folder / "nginx", folder / "root"))
        cls.bus = cls.enterClassContext(Bus(workers=2, slots=64, origin_limit=64, arguments=["--no-cache"]))

    def test_the_fast_one_is_not_held_up_and_the_slow_one_gets_all(self):
        observer = self.bus.client()
        alone, beside = [], []
        before = resident(self.bus.broker)
        reset_peak(self.bus.broker)
        for turn in range(self.MOST_ROUNDS):
            alone.append(self.crowd(f"alone{turn}").outcome()["seconds"])
            slow = self.crowd(f"slow{turn}", lag=200, stop=500).await_submitted()
            slow.await_stopped()
            beside.append(self.crowd(f"fast{turn}").outcome()["seconds"])
            self.assertTrue(slow.running)
            waiting = observer.query("ledger")["deliveries"]["outstanding"]
            self.assertGreater(waiting, self.COUNT // 2)
            slow.go_on()
            outcome = slow.outcome()
            self.assertEqual({name: outcome[name] for name in ("answered", "again", "failed")},
                             {"answered": self.COUNT, "again": 0, "failed": 0})
            self.await_requests(observer, pending=0)
            self.balance(observer)
            # All cores are busy with this: other load on the machine only increases a round's time.
            if turn + 1 >= self.ROUNDS and (not LONG or min(beside) <= 1.3 * min(alone)):
                break
        own, shared = min(alone), min(beside)
        grown = resident_peak(self.bus.broker) - before
        report(f"{self.COUNT} URLs: {own:.2f} s alone {short(alone)}, {shared:.2f} s beside a slow reader"
               f" {short(beside)}: {shared / own:.2f}; the broker grew from"
               f" {before / MIB:.0f} by at most {grown / MIB:.0f} MiB")
        if LONG:
            self.assertLessEqual(shared, 1.3 * own)
        # A record for each of the two requests, an outcome, and no body.
        self.assertLess(grown, 8 * MIB + 3 * 1024 * self.COUNT)

    def crowd(self, name, **options):
        crowd = Crowd(self.bus, name, self.COUNT, self.nginx.url + "/{folder}/{}", **options)
        self.addCleanup(lambda: crowd.running and crowd.kill())
        return crowd


def short(values):
    return "/".join(f"{value:.2f}" for value in values)
