"""Very many requests for one URL are one request to its origin, and all get its response at once, cached or not.

Each waiting client is a separate connection. Other load on the machine only increases a round's time: the best of some rounds
counts, and only those in which all requests preceded the response. In each of them there is never more than one request at a
time.
"""

import os
import time

import zmq

from support.figures import report
from support.harness import Bus, TestCase
from support.steady import Steady

WAITERS = 1_000
ROUNDS = 5
MOST_ROUNDS = 40
LONG = bool(os.environ.get("EARSHOT_LONG"))
MOST_MILLISECONDS = 50
"""On an otherwise idle machine it is 12 to 18."""
SECONDS, MOST_SECONDS = 0.1, 8
"""Duration of the origin's response; increased if it responded before all had asked."""


class Waiters:
    """Connections that all request the same resource at the same time."""

    def __init__(self, bus):
        self._sockets = [zmq.Context.instance().socket(zmq.DEALER) for _ in range(WAITERS)]
        for socket in self._sockets:
            socket.linger = 0
            socket.rcvtimeo = 60_000
            socket.connect(f"ipc://{bus.runtime}/bus")
            socket.send(b"HELLO EAR/1\n")
        for socket in self._sockets:
            assert socket.recv().startswith(b"WELCOME")
        self._turn = 0

    def submit(self, url):
        """Returns when the last one had asked, when the last one had its response, and the first lines of the responses."""
        self._turn += 1
        for index, socket in enumerate(self._sockets):
            socket.send(f"FETCH waiter/{index} {self._turn} {url}\n".encode())
        submitted = time.monotonic()
        heads = [socket.recv_multipart()[0] for socket in self._sockets]
        return submitted, time.monotonic(), {head.split(b" ")[0] for head in heads}

    def close(self):
        for socket in self._sockets:
            socket.close()


class WaiterTests(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.origin = cls.enterClassContext(Steady())
        cls.bus = cls.enterClassContext(Bus(workers=1))
        cls.waiters = Waiters(cls.bus)
        cls.addClassCleanup(cls.waiters.close)

    def test_a_cold_url(self):
        self.check("cold", "cold/{}?cc=max-age=1000")

    def test_an_answer_that_may_not_be_kept(self):
        self.check("not kept", "no-store?cc=no-store")

    def test_a_kept_answer_that_has_just_expired(self):
        self.check("expired", "expired?cc=max-age=0")

    def check(self, name, target):
        lags, seconds = [], SECONDS
        for turn in range(MOST_ROUNDS):
            if lags and (not LONG or turn >= ROUNDS and min(lags) < MOST_MILLISECONDS):
                break
            before = self.origin.total()
            submitted, done, verbs = self.waiters.submit(f"{self.origin.url}/{seconds}/{target.format(turn)}")
            self.assertEqual(verbs, {b"RESULT"})
            first, *more = self.origin.log()[before:]
            for earlier, later in zip([first, *more], more):
                self.assertGreater(later.began, earlier.ended, "two requests at once")
            if not more and submitted < first.ended:
                lags.append(1000 * (done - first.ended))
            else:
                seconds = min(2 * seconds, MOST_SECONDS)
        self.assertTrue(lags, "one request for all")
        report(f"{name}: the last of {WAITERS} had its answer {'/'.join(f'{lag:.0f}' for lag in sorted(lags))} ms after it"
               " was there")
        if LONG:
            self.assertLess(min(lags), MOST_MILLISECONDS)
