"""The judge finds each kind of violation, and none in a correct run."""

import hashlib
import unittest
from types import SimpleNamespace

import whims
from journal import WORDS, Line
from judge import GRACE, Judge, Life
from timeline import RECOVERY_SECONDS, Disturbance, Timeline
from plans import PlannedRequest

BROKER = "00000000000000aa"
OWN = "http://127.0.0.1:1/whim/o-1?bytes=100"


class JudgeTests(unittest.TestCase):
    """One client with one request at 10 s, unless a test adds more. Times are in seconds."""

    def setUp(self):
        self.lives = {}
        self.timeline = Timeline()
        self.timeline.begin = 0
        self.timeline.lines.append((1000.0, "the end"))
        self.requests = []
        self.ledger = whims.Ledger()
        self.broker = None

    def life(self, client="1.1", died=None):
        return self.lives.setdefault(client, Life(client, {}, [], died))

    def write(self, at, verb, *words, client="1.1"):
        self.assertEqual(len(words), WORDS[verb])
        self.life(client).lines.append(Line(at, verb, tuple(map(str, words)), client))

    def submit(self, name="1.1-1", url=OWN, at=10.0, client="1.1", handler="chaos/c1/a", **options):
        planned = PlannedRequest(name, handler, url, options)
        self.life(client).planned_requests[name] = planned
        self.write(at, "request", name, planned.handler, url, client=client)
        return planned.whim

    def result(self, whim, at=11.0, name="1.1-1", generation=0, client="1.1", served=True, **changed):
        digest = changed.get("read", self.digest(whim, generation))
        if served:
            self.ledger.answers.setdefault(whim.name, []).append((generation, at))
        self.write(at, "end", name, BROKER, "-", 200, whim.size, changed.get("stated", digest), digest, generation,
                   client=client)

    def digest(self, whim, generation):
        return hashlib.sha256(whims.content(whim.name, generation, whim.size)).hexdigest()

    def fail_with(self, code, at=11.0, name="1.1-1"):
        self.write(at, "end", name, BROKER, code, "-", 0, "-", "-", "-")

    def fetched(self, started, ended=None, aborted=None, target="/whim/o-1?bytes=100"):
        self.requests.append(SimpleNamespace(target=target, path=target.partition("?")[0], started=started,
                                             ended=ended, aborted=aborted))

    def disturb(self, about, began, ended):
        self.timeline.disturbances.append(Disturbance(about, about, began, ended))

    def verdict(self):
        judge = Judge(list(self.lives.values()), self.timeline, self.requests, self.ledger, self.broker)
        return [violation.rule for violation in judge.judge()]

    # Correct runs.

    def test_a_result_with_the_right_bytes_is_right(self):
        self.result(self.submit())
        self.fetched(10.1, ended=10.9)
        self.assertEqual(self.verdict(), [])

    def test_a_killed_client_owes_no_end(self):
        self.life(died=12.0)
        self.submit()
        self.fetched(10.1, aborted=12.1)
        self.assertEqual(self.verdict(), [])

    def test_what_was_given_up_has_no_end(self):
        self.submit()
        self.write(10.5, "drop", "1.1-1")
        self.write(10.6, "cancelled", "1.1-1")
        self.assertEqual(self.verdict(), [])

    # Ends.

    def test_a_request_without_an_end_is_lost(self):
        self.submit()
        self.assertEqual(self.verdict(), ["lost"])

    def test_two_ends_are_one_too_many(self):
        whim = self.submit()
        self.result(whim)
        self.result(whim, at=12)
        self.assertEqual(self.verdict(), ["once"])

    def test_an_end_after_it_was_given_up_is_wrong(self):
        whim = self.submit()
        self.write(10.5, "drop", "1.1-1")
        self.result(whim)
        self.assertEqual(self.verdict(), ["removed"])

    def test_an_end_of_what_was_never_asked_for_is_found(self):
        self.result(self.submit())
        self.fail_with("removed", name="9.9-9")
        self.assertEqual(self.verdict(), ["unrequested"])

    def test_a_request_that_was_taken_for_none_is_found(self):
        self.submit()
        self.write(10.5, "refused", "1.1-1", "bad-message")
        self.assertEqual(self.verdict(), ["refused"])

    # Bytes.

    def test_other_bytes_than_read_told_or_named_are_found(self):
        other = "0" * 64
        for changed in ({"read": other}, {"stated": other}):
            with self.subTest(changed):
                self.setUp()
                self.result(self.submit(), **changed)
                self.assertEqual(self.verdict(), ["bytes"])

    def test_bytes_of_another_generation_than_named_are_found(self):
        whim = self.submit(url=OWN + "&change=1000")
        right = self.digest(whim, 1)
        self.result(whim, generation=0, read=right, stated=right)
        self.assertIn("bytes", self.verdict())

    def test_a_generation_that_the_origin_did_not_answer_is_found(self):
        self.result(self.submit(), served=False)
        self.assertEqual(self.verdict(), ["origin"])

    def test_an_old_generation_is_found(self):
        now = whims.EPOCH + 100
        whim = self.submit(url=OWN + "&change=10", at=now)
        self.result(whim, generation=3, at=now + 1)
        self.assertEqual(self.verdict(), ["stale"])
        self.setUp()
        whim = self.submit(url=OWN + "&change=10&cc=max-age=60", at=now)
        self.result(whim, generation=3, at=now + 1)
        self.assertEqual(self.verdict(), [])

    # Failures.

    def test_a_failure_that_nothing_explains_is_found(self):
        self.submit()
        self.fail_with("reset")
        self.assertEqual(self.verdict(), ["unexplained"])

    def test_a_failure_that_the_URL_says_is_right_and_a_result_is_not(self):
        whim = self.submit(url=OWN + "&then=404")
        self.fail_with("http-status")
        self.assertEqual(self.verdict(), [])
        self.setUp()
        self.submit(url=OWN + "&then=404")
        self.result(whim)
        self.assertEqual(self.verdict(), ["impossible"])

    def test_a_disturbance_explains_its_own_failure_alone(self):
        for about, code in (("disk", "spool-full"), ("queue", "queue-full"), ("cooling", "origin-cooling")):
            with self.subTest(code):
                self.setUp()
                self.submit()
                self.fail_with(code)
                self.disturb("client 1", 10, 11)
                self.assertEqual(self.verdict(), ["unexplained"])
                self.disturb(about, 10, 11)
                self.assertEqual(self.verdict(), [])

    def test_poison_takes_three_deaths(self):
        self.submit()
        self.fail_with("poisonous")
        self.disturb("worker", 10.1, 10.2)
        self.assertEqual(self.verdict(), ["unexplained"])
        self.disturb("worker", 10.3, 10.4)
        self.assertEqual(self.verdict(), ["unexplained"])
        self.disturb("worker", 10.5, 10.6)
        self.assertEqual(self.verdict(), [])

    def test_removed_takes_somebody_who_removed_it(self):
        self.submit()
        self.fail_with("removed")
        self.assertEqual(self.verdict(), ["unexplained"])
        self.write(10.5, "remove", "chaos/c1/", client="2.1")
        self.assertEqual(self.verdict(), [])

    def test_a_removal_counts_until_it_is_answered(self):
        self.submit()
        self.fail_with("removed")
        self.write(7, "remove", "chaos/c1/", client="2.1")
        self.write(8, "removed", "chaos/c1/", 0, client="2.1")
        self.assertEqual(self.verdict(), ["unexplained"])
        self.write(7, "remove", "chaos/c1/", client="3.1")
        self.write(10.8, "removed", "chaos/c1/", 1, client="3.1")
        self.assertEqual(self.verdict(), [])

    def test_a_deadline_is_not_over_early(self):
        self.submit(deadline="1")
        self.fail_with("deadline", at=10.5)
        self.assertEqual(self.verdict(), ["early"])
        self.disturb("broker", 9, 10.4)
        self.assertEqual(self.verdict(), [])

    # Terminals.

    def receive(self, at, name="1.1-1", client="1.1"):
        self.write(at, "received", "chaos/c1/a", "7", name, "200", BROKER, client=client)

    def test_a_terminal_heard_twice_is_found(self):
        self.result(self.submit())
        self.receive(11)
        self.receive(11.5)
        self.assertEqual(self.verdict(), ["once"])

    def test_a_lost_file_is_heard_of_again(self):
        self.result(self.submit())
        self.receive(11)
        self.write(11.2, "lost", "1.1-1")
        self.receive(11.5)
        self.assertEqual(self.verdict(), [])

    def test_a_body_that_was_lost_with_each_broker_is_given_up(self):
        self.submit()
        for at in (11, 12):
            self.receive(at)
            self.write(at + 0.5, "lost", "1.1-1")
        self.write(12.5, "end", "1.1-1", BROKER, "internal", "-", "0", "-", "-", "-")
        self.disturb("broker", 11.2, 11.3)
        self.assertEqual(self.verdict(), ["unexplained"])
        self.disturb("serve", 12.2, 12.3)
        self.assertEqual(self.verdict(), [])

    def test_a_terminal_that_nobody_asked_for_is_found(self):
        self.receive(11, name="9.9-9")
        self.assertEqual(self.verdict(), ["unrequested"])

    def test_what_is_heard_after_a_removal_is_answered_is_found(self):
        for answer in (("cancelled", "1.1-1"), ("removed", "chaos/c1/", 1)):
            with self.subTest(answer):
                self.setUp()
                self.submit()
                self.write(10.5, "drop", "1.1-1")
                self.write(10.6, *answer)
                self.receive(10.7)
                self.assertEqual(self.verdict(), ["removed"])
                self.disturb("client 1", 10.4, 10.4)
                self.assertEqual(self.verdict(), [])

    # The origin and the broker.

    def test_what_nobody_asked_for_is_found_at_the_origin(self):
        self.fetched(10)
        self.assertEqual(self.verdict(), ["unwanted"])

    def test_what_is_asked_for_too_early_is_found(self):
        self.result(self.submit())
        self.fetched(9)
        self.assertEqual(self.verdict(), ["unwanted"])

    def test_what_a_killed_client_alone_wanted_is_not_asked_for_any_more(self):
        self.life(died=12.0)
        self.submit()
        self.fetched(12 + GRACE + 0.1, ended=12 + GRACE + 0.2)
        self.assertEqual(self.verdict(), ["unwanted"])
        self.disturb("broker", 13, 14)
        self.assertEqual(self.verdict(), [], "who is stopped cannot do it")

    def test_what_a_killed_client_alone_wanted_does_not_go_on(self):
        self.life(died=12.0)
        self.submit()
        self.fetched(10.1, aborted=12 + GRACE + 0.1)
        self.assertEqual(self.verdict(), ["unwanted"])
        self.life().lease = 1
        self.assertEqual(self.verdict(), [], "its lease outlives it")

    def test_what_another_still_wants_goes_on(self):
        self.life(died=12.0)
        self.submit()
        whim = self.submit(name="2.1-1", client="2.1", handler="chaos/c2/a")
        self.result(whim, at=30, name="2.1-1", client="2.1")
        self.fetched(10.1, ended=29)
        self.assertEqual(self.verdict(), [])

    def test_a_broker_that_knows_less_than_its_clients_is_found(self):
        self.result(self.submit())
        self.receive(8, name="-")
        self.receive(11)
        self.broker = {"broker": BROKER, "requests": {"answered": 1}, "deliveries": {"due": 1}}
        self.assertEqual(self.verdict(), [])
        self.broker = {"broker": BROKER, "requests": {"answered": 0}, "deliveries": {"due": 0}}
        self.assertEqual(self.verdict(), ["ledger", "ledger"])


class TimelineTests(unittest.TestCase):
    def test_calm_is_what_no_disturbance_of_the_bus_covers(self):
        timeline = Timeline()
        timeline.disturbances = [Disturbance("broker", "", 1, 2), Disturbance("worker", "", 3, 3),
                                 Disturbance("client 1", "", 20, 30), Disturbance("serve", "", 40)]
        self.assertEqual(timeline.calm(0, 10), 1 + 10 - 3 - RECOVERY_SECONDS)
        self.assertEqual(timeline.calm(20, 30), 10)
        self.assertEqual(timeline.calm(35, 50), 5)


if __name__ == "__main__":
    unittest.main()
