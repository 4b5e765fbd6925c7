"""Tests of the core: its messages and deliveries after each event."""

import re
import unittest

import fixture  # noqa: F401 (it sets the paths)
from earshot_bus._messages import Fetch
from earshot_bus._protocol import (LONGEST_PAUSE, MOST_NOTICES, MOST_OPEN, MOST_REFUSALS, CloseBus, Core, Deliver,
                               Drain, Drop, Greeted, Note, Phase, Refuse, Reopen, Report, Resolve, Send, pages)

WELCOME = "WELCOME EAR/1\nbroker: 0000000000000001\nwindow: 4"
LEASED = f"{WELCOME}\nlease: 5\ntoken: {'0f' * 16}"
NEXT = "WELCOME EAR/1\nbroker: 0000000000000002\nwindow: 4"


class Script:
    """A core whose methods return its actions as short texts."""

    def __init__(self, window=4, greeted=True, lease=0):
        self.core = Core(window, lease)
        self.deliveries = []
        self.open = {}
        self.brief(self.core.opened())
        if greeted:
            self.receive(LEASED if lease else WELCOME)

    def resume(self, received):
        """Breaks the connection, and resumes the session."""
        self.brief(self.core.lost())
        self.brief(self.core.opened())
        return self.receive(f"{LEASED}\nresumed: {received}")

    def brief(self, actions):
        texts = []
        for action in actions:
            if isinstance(action, Send):
                line = action.head.decode().split("\n")[0]
                texts.append("send " + line)
                if line.startswith("HELLO "):
                    self.open = {}
                if action.number:
                    assert b"\nnumber: %d\n" % action.number in action.head, action.head
                    self.open[action.number] = line
                if b"\nreplace: yes\n" in action.head:
                    texts[-1] += " instead"
            elif isinstance(action, Deliver):
                self.deliveries.append(action)
                mine = ["me"] if action.wanted else []
                to = ",".join([*mine, *map(str, action.watches)])
                texts.append(f"deliver {' '.join(action.terminal.operands)} to {to}")
            elif isinstance(action, Resolve):
                texts.append(f"resolve {action.token} {action.answer.verb if action.answer else None}")
            elif isinstance(action, Drop):
                texts.append("drop " + " ".join("/".join(key) for key in action.keys))
            elif isinstance(action, Refuse):
                texts.append(f"refuse {'/'.join(action.key)} {action.code}")
            elif isinstance(action, Report):
                texts.append(f"report {'/'.join(action.key)} {action.received} {action.total}")
            elif isinstance(action, Reopen):
                texts.append(f"reopen {action.after:g}")
            elif isinstance(action, Greeted):
                texts.append("greeted")
            elif isinstance(action, Drain):
                texts.append("drain")
            elif isinstance(action, CloseBus):
                texts.append(f"close {action.code}")
            else:
                assert isinstance(action, Note)
                texts.append("note")
        return texts

    def number(self, head):
        """Returns the number of the first message that has such an answer; None for a message that answers none."""
        words = head.split("\n")[0].split(" ")
        verb = {"REMOVED": "REMOVE", "ANSWER": "QUERY", "CHANGED": "SET", "ACCEPTED": "RETRY", "FAILED": "RETRY",
                "OK": "SUBSCRIBE"}.get(words[0])
        operands = {"REMOVED": words[1:-1], "ANSWER": words[1:], "ACCEPTED": words[1:], "FAILED": words[1:3]}.get(
            words[0], [])
        for number, line in self.open.items():
            if line.split(" ")[0] == verb and (words[0] == "REMOVED" and line.split(" ")[1:] == operands
                                               or words[0] != "REMOVED" and line.startswith(" ".join([verb, *operands]))):
                del self.open[number]
                return number
        return None

    def refuse(self, line, code, *fields):
        """Receives the refusal of the first open message that begins with `line`."""
        number = next(number for number, sent in self.open.items() if sent.startswith(line))
        return self.receive("\n".join([f"ERROR {code}", f"to: {number}", *fields]))

    def receive(self, head, body=None):
        if head.startswith("WELCOME "):
            known = int(head.partition("\nresumed: ")[2] or 0)
            self.open = {number: line for number, line in self.open.items()
                         if number <= known and not line.startswith("QUERY ")}
        if "\nto: " in head:
            self.open.pop(int(head.partition("\nto: ")[2].partition("\n")[0]), None)
        elif "\nseq: " not in head and (number := self.number(head)):
            line, separator, rest = head.partition("\n")
            head = f"{line}\nto: {number}{separator}{rest}"
        frames = [head.encode() + b"\n"] + ([body] if body is not None else [])
        return self.brief(self.core.received(frames))

    def fetch(self, handler, request, replace=False):
        return self.brief(self.core.fetch(Fetch.make(handler, request, "http://x/", {}, replace)))

    def result(self, handler, request, sequence):
        return self.receive(f"RESULT {handler} {request} 200\nseq: {sequence}")

    def acknowledged(self):
        return self.brief(self.core.acknowledge())

    def finish(self, index):
        self.core.finish(self.deliveries[index].id)


class SessionTests(unittest.TestCase):
    def test_a_request_that_waited_for_a_broker_states_its_age(self):
        now = 7.0
        core = Core(4, 0, clock=lambda: now)

        def ages(actions):
            heads = [action.head.decode() for action in actions if isinstance(action, Send)]
            return [re.findall(r"^age-ms: (\d+)$", head, re.MULTILINE) for head in heads if head.startswith("FETCH ")]

        def welcome(text):
            core.opened()
            return ages(core.received([text.encode()]))

        core.fetch(Fetch.make("h", "1", "http://x/", {}))
        now += 0.25
        self.assertEqual(welcome(WELCOME), [["250"]])
        self.assertEqual(ages(core.fetch(Fetch.make("h", "2", "http://x/", {"priority": "high"}))), [[]])
        core.lost()
        now += 1
        self.assertEqual(welcome(NEXT), [["1250"], ["1000"]])
        core.lost()
        now += 1_000_000
        self.assertEqual(welcome(NEXT), [["86400000"], ["86400000"]])

    def test_the_next_hello_says_the_token_and_a_new_session_is_asked_for_all(self):
        script = Script(lease=5)
        script.fetch("h", "1")
        script.brief(script.core.lost())
        (hello,) = script.core.opened()
        self.assertIn(b"\nlease: 5.000\ntoken: 0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f\n", hello.head)
        self.assertEqual(script.receive(NEXT), ["greeted", "send FETCH h 1 http://x/"])
        script.brief(script.core.lost())
        (hello,) = script.core.opened()
        self.assertNotIn(b"token", hello.head)

    def test_what_was_not_heard_is_said_again_in_its_order_and_nothing_else(self):
        script = Script(lease=5)
        script.fetch("h", "1")
        script.brief(script.core.watch(7, "others/"))
        script.fetch("h", "2", replace=True)
        script.brief(script.core.unwatch(7))
        script.brief(script.core.remove("gone", 8, survives=True))
        script.fetch("h", "3")
        unreceived = ["send UNSUBSCRIBE others/", "send REMOVE gone", "send FETCH h 3 http://x/"]
        self.assertEqual(script.resume(3), ["greeted", *unreceived])
        self.assertEqual(script.resume(4), ["greeted", *unreceived[1:]])
        self.assertEqual(script.resume(6), ["greeted"])
        self.assertEqual(script.resume(0), ["greeted", "send FETCH h 2 http://x/ instead", "send REMOVE gone",
                                            "send FETCH h 3 http://x/"])

    def test_a_removal_that_nobody_awaits_any_more_reaches_the_broker(self):
        script = Script(lease=5)
        script.fetch("h", "1")
        script.brief(script.core.remove("h", 8, survives=False))
        self.assertEqual(script.brief(script.core.lost()), ["resolve 8 None", "reopen 0"])
        script.fetch("g", "1")
        self.assertEqual(script.brief(script.core.cancel(("f", "1"), 9)), [])
        script.brief(script.core.opened())
        self.assertEqual(script.receive(f"{LEASED}\nresumed: 1"),
                         ["greeted", "send REMOVE h", "send REMOVE f 1", "send FETCH g 1 http://x/"])
        self.assertEqual(script.receive("REMOVED h 1"), [])
        self.assertEqual(script.receive("REMOVED f 1 0"), ["resolve 9 REMOVED"])

    def test_answers_that_were_lost_are_awaited_and_queries_asked_again(self):
        script = Script(lease=5)
        script.fetch("h", "1")
        script.brief(script.core.command(7, "QUERY", "ping"))
        script.receive("ANSWER ping", b"{}")
        script.receive("PROGRESS h 1 2/3")
        script.brief(script.core.remove("gone", 8, survives=False))
        script.brief(script.core.remove("kept", 9, survives=True))
        script.brief(script.core.command(10, "QUERY", "status"))
        script.receive("FAILED other 1 not-stored")
        self.assertEqual(script.brief(script.core.lost()), ["resolve 8 None", "reopen 0"])
        (hello,) = script.core.opened()
        self.assertTrue(hello.head.endswith(b"\nunanswered: 3\n"), hello.head)
        self.assertEqual(script.receive(f"{LEASED}\nresumed: 5"), ["greeted", "send QUERY status"])
        self.assertEqual(script.brief(script.core.remove("gone", 11, survives=True)), ["send REMOVE gone"])
        self.assertEqual(script.receive("REMOVED gone 1"), [], "that was the first removal's")
        self.assertEqual(script.receive("REMOVED kept 1"), ["resolve 9 REMOVED"])
        self.assertEqual(script.refuse("FETCH h 1 ", "too-many-handlers"), ["refuse h/1 too-many-handlers"])
        self.assertEqual(script.receive("ANSWER status", b"{}"), ["resolve 10 ANSWER"])
        self.assertEqual(script.receive("REMOVED gone 0"), ["resolve 11 REMOVED"])
        script.brief(script.core.lost())
        (hello,) = script.core.opened()
        self.assertIn(b"\nunanswered: 8\n", hello.head)

    def test_a_terminal_that_comes_again_is_known_and_acknowledged_again(self):
        script = Script(lease=5)
        for request in "123":
            script.fetch("h", request)
        script.result("h", "1", 1)
        script.finish(0)
        self.assertEqual(script.acknowledged(), ["send ACK 1"])
        script.result("h", "2", 2)
        self.assertEqual(script.resume(4), ["greeted", "send ACK 1"])
        self.assertEqual(script.result("h", "1", 1) + script.result("h", "2", 2), [])
        self.assertEqual(script.result("h", "3", 3), ["deliver h 3 200 to me"])
        script.finish(2)
        self.assertEqual(script.acknowledged(), [], "the second is in use")
        script.finish(1)
        self.assertEqual(script.acknowledged(), ["send ACK 3"])

    def test_each_answer_to_a_retry_ends_its_own_question(self):
        script = Script()
        for token, request in enumerate(("1", "2", "3", "4")):
            script.brief(script.core.command(token, "RETRY", "h", request))
        self.assertEqual(script.receive("ACCEPTED h 3"), ["resolve 2 ACCEPTED"])
        self.assertEqual(script.refuse("RETRY h 2", "unknown-request"), ["resolve 1 ERROR"])
        self.assertEqual(script.receive("FAILED h 4 not-stored"), ["resolve 3 FAILED"])
        self.assertEqual(script.receive("FAILED h 5 not-stored"), [])
        self.assertEqual(script.receive("ACCEPTED h 5"), [])
        self.assertTrue(script.core.is_unanswered(0))

    def test_a_session_whose_connection_stands_is_tried_again_and_given_up_at_last(self):
        script = Script(lease=5)
        script.brief(script.core.lost())
        for attempt in range(MOST_REFUSALS):
            (hello,) = script.core.opened()
            self.assertIn(b"token", hello.head, attempt)
            (again,) = script.receive("ERROR session-in-use")
            self.assertTrue(again.startswith("reopen "), again)
        (hello,) = script.core.opened()
        self.assertNotIn(b"token", hello.head)

    def test_of_more_than_is_remembered_the_session_is_given_up(self):
        script = Script(lease=5)
        for token in range(MOST_NOTICES + 1):
            script.brief(script.core.watch(token, f"h/{token}"))
        script.brief(script.core.lost())
        self.assertNotIn(b"token", script.core.opened()[0].head)

    def test_more_than_256_messages_without_an_answer_wait_and_an_acknowledgement_does_not(self):
        script = Script(lease=5)
        count = MOST_OPEN + 300
        sent = [line for token in range(count) for line in script.brief(script.core.watch(token, f"h/{token}"))]
        sent += script.fetch("x", "1")
        self.assertEqual(sent, [f"send SUBSCRIBE h/{token}" for token in range(MOST_OPEN)])
        script.result("other", "1", 1)
        self.assertEqual(script.acknowledged(), ["send ACK 1"])
        for _ in range(count):
            sent += script.receive("OK")
        self.assertEqual(sent, [*(f"send SUBSCRIBE h/{token}" for token in range(count)), "send FETCH x 1 http://x/"])
        self.assertEqual(script.fetch("x", "2"), ["send FETCH x 2 http://x/"])
        # The session is resumed, with the numbers of the order on the wire.
        self.assertEqual(script.resume(len(sent)), ["greeted", "send ACK 1", "send FETCH x 2 http://x/"])

    def test_messages_that_waited_when_the_connection_broke_are_said_to_the_next_session(self):
        script = Script(lease=5)
        for token in range(MOST_NOTICES + 2):
            script.brief(script.core.watch(token, f"h/{token}"))
        self.assertEqual(script.fetch("x", "1"), [])
        script.brief(script.core.lost())
        self.assertNotIn(b"token", script.core.opened()[0].head)
        sent = script.receive(LEASED)
        self.assertEqual(len(sent), MOST_OPEN + 1)
        for _ in range(MOST_NOTICES + 2):
            sent += script.receive("OK")
        self.assertEqual(len([line for line in sent if "SUBSCRIBE" in line]), MOST_NOTICES + 2)
        self.assertTrue(sent[-1].startswith("send FETCH x 1 http://x/"), sent[-1])

    def test_an_answer_confirms_earlier_messages(self):
        script = Script(lease=5)
        for token in range(MOST_NOTICES + 1):
            script.brief(script.core.watch(token, f"h/{token}"))
            self.assertEqual(script.receive("OK"), [])
        script.brief(script.core.lost())
        self.assertTrue(script.core.opened()[0].head.endswith(b"\nunanswered: %d\n" % (MOST_NOTICES + 2)))

    def test_a_session_that_is_resumed_after_it_was_given_up_is_left(self):
        script = Script(lease=5)
        script.brief(script.core.lost())
        script.brief(script.core.opened())
        for token in range(MOST_NOTICES + 1):
            script.brief(script.core.watch(token, f"h/{token}"))
        self.assertEqual(script.receive(f"{LEASED}\nresumed: 0"), ["reopen 0"])
        self.assertNotIn(b"token", script.core.opened()[0].head)

    def test_a_malformed_answer_ends_the_question_that_it_names(self):
        script = Script(lease=5)
        script.brief(script.core.cancel(("h", "1"), 1))
        script.brief(script.core.remove("h", 2, survives=True))
        script.brief(script.core.command(3, "QUERY", "status"))
        script.brief(script.core.command(4, "SET", "slots", "8"))
        script.brief(script.core.command(5, "QUERY", "status"))
        self.assertEqual(script.receive("REMOVED h\nto: 1"), ["resolve 1 None", "note"])
        self.assertEqual(script.receive("REMOVED h\nto: 2"), ["resolve 2 None", "note"])
        self.assertEqual(script.receive("ANSWER\nto: 3", b"{}"), ["resolve 3 ERROR", "note"])
        self.assertEqual(script.receive("CHANGED\nto: 4"), ["resolve 4 ERROR", "note"])
        self.assertEqual(script.receive("ERROR a b"), ["note"])
        self.assertEqual(script.receive("FAILED h"), ["note"])
        self.assertEqual(script.receive("PROGRESS h"), ["note"], "no reply")
        self.assertEqual(script.receive("FAILED h 2 timeout\nseq: x"), ["note"], "no reply")
        self.assertEqual(script.receive("ANSWER status", b"{}"), ["resolve 5 ANSWER"])
        script.brief(script.core.lost())
        (hello,) = script.core.opened()
        self.assertTrue(hello.head.endswith(b"\nunanswered: 6\n"), hello.head)

    def test_a_malformed_terminal_ends_its_request_and_is_acknowledged(self):
        script = Script()
        script.fetch("h", "1")
        script.fetch("h", "2")
        self.assertEqual(script.receive("RESULT h 1\nseq: 1"), ["refuse h/1 internal", "note"])
        self.assertEqual(script.acknowledged(), ["send ACK 1"])
        self.assertEqual(script.receive("RESULT h 2\nseq: 1"), ["note"], "a repetition")
        self.assertEqual(script.result("h", "2", 2), ["deliver h 2 200 to me"])


class DeliveryTests(unittest.TestCase):
    def test_a_terminal_is_delivered_once_and_acknowledged_when_it_is_finished(self):
        script = Script()
        script.brief(script.core.watch(7, "h"))
        self.assertEqual(script.fetch("h", "1"), ["send FETCH h 1 http://x/"])
        self.assertEqual(script.result("h", "1", 1), ["deliver h 1 200 to me,7"])
        self.assertEqual(script.result("h", "1", 1), [], "the same seq")
        script.finish(0)
        self.assertEqual(script.acknowledged(), [])
        script.finish(0)
        self.assertEqual(script.acknowledged(), ["send ACK 1"])
        self.assertEqual(script.acknowledged(), [], "once")

    def test_an_acknowledgement_stops_before_the_first_that_is_held(self):
        script = Script()
        for number in range(1, 5):
            script.fetch("h", str(number))
            script.result("h", str(number), number)
        for index, wanted in [(1, []), (3, []), (0, ["send ACK 2"]), (2, ["send ACK 4"])]:
            script.finish(index)
            self.assertEqual(script.acknowledged(), wanted, index)
        script.finish(0)
        self.assertEqual(script.acknowledged(), [], "finished twice")

    def test_what_nobody_wants_is_acknowledged_unseen(self):
        script = Script()
        self.assertEqual(script.result("other", "1", 1), [])
        self.assertEqual(script.acknowledged(), ["send ACK 1"])

    def test_several_who_hear_of_it_finish_each(self):
        script = Script()
        script.brief(script.core.watch(7, "h/"))
        script.brief(script.core.watch(8, "h/a"))
        script.fetch("h/a", "1")
        self.assertEqual(script.result("h/a", "1", 1), ["deliver h/a 1 200 to me,7,8"])
        for wanted in ([], [], ["send ACK 1"]):
            script.finish(0)
            self.assertEqual(script.acknowledged(), wanted)

    def test_progress_of_what_is_wanted_alone(self):
        script = Script()
        script.fetch("h", "1")
        self.assertEqual(script.receive("PROGRESS h 1 5/10"), ["report h/1 5 10"])
        self.assertEqual(script.receive("PROGRESS h 1 5/-"), ["report h/1 5 None"])
        self.assertEqual(script.receive("PROGRESS h 2 5/10"), [])
        for none in ("x/y", "/", "9" * 5000 + "/-"):
            self.assertEqual(script.receive(f"PROGRESS h 1 {none}"), [], none[:9])
        self.assertEqual(script.brief(script.core.received([b"PROGRESS h 1 \xb2/9\n"])), [])
        self.assertEqual(script.brief(script.core.received([b"PROGRESS h 1 9/\xb2\n"])), ["report h/1 9 None"])

    def test_what_is_no_message_is_noted(self):
        for head in ("RESULT h", "NONSENSE", "", "RESULT h 1 200"):
            self.assertEqual(Script().receive(head), ["note"], head)


class RemovalTests(unittest.TestCase):
    def test_nothing_is_delivered_of_what_was_removed(self):
        for words, command in [("REMOVE h/a 1", lambda core: core.cancel(("h/a", "1"), 9)),
                               ("REMOVE h/a", lambda core: core.remove("h/a", 9, False)),
                               ("REMOVE h/", lambda core: core.remove("h/", 9, False))]:
            with self.subTest(words):
                script = Script()
                script.brief(script.core.watch(7, "h/"))
                script.fetch("h/a", "1")
                self.assertEqual(script.brief(command(script.core)), ["drop h/a/1", f"send {words}"])
                self.assertEqual(script.result("h/a", "1", 1), [], "it was on its way")
                self.assertEqual(script.receive(words.replace("REMOVE", "REMOVED") + " 1"), ["resolve 9 REMOVED"])
                self.assertEqual(script.result("h/a", "2", 2), ["deliver h/a 2 200 to 7"], "another's, afterwards")

    def test_what_was_asked_after_the_removal_lives(self):
        script = Script()
        script.fetch("h", "1")
        script.brief(script.core.remove("h", 9, False))
        script.fetch("h", "2")
        self.assertEqual(script.receive("REMOVED h 1"), ["resolve 9 REMOVED"])
        self.assertEqual(script.result("h", "2", 1), ["deliver h 2 200 to me"])

    def test_replacing_forgets_and_is_not_repeated(self):
        script = Script()
        script.fetch("h", "1")
        script.fetch("other", "2")
        self.assertEqual(script.fetch("h", "3", replace=True), ["drop h/1", "send FETCH h 3 http://x/ instead"])
        self.assertEqual(script.result("h", "1", 1), [])
        script.brief(script.core.lost())
        script.brief(script.core.opened())
        self.assertEqual(script.receive(NEXT), ["greeted", "send FETCH other 2 http://x/", "send FETCH h 3 http://x/"])

    def test_a_replacement_that_was_never_said_still_replaces(self):
        script = Script(greeted=False)
        self.assertEqual(script.fetch("h", "1", replace=True), [])
        self.assertEqual(script.fetch("h", "2", replace=True), ["drop h/1"])
        self.assertEqual(script.receive(WELCOME), ["greeted", "send FETCH h 2 http://x/ instead"])

    def test_a_removal_for_a_leaving_handler_ends_with_the_connection_and_another_does_not(self):
        script = Script()
        script.brief(script.core.remove("mine", 1, False))
        script.brief(script.core.remove("all/", 2, True))
        self.assertEqual(script.brief(script.core.lost()), ["resolve 1 None", "reopen 0"])
        self.assertEqual(script.brief(script.core.remove("mine", 3, False)), ["resolve 3 None"], "nobody to ask")
        script.brief(script.core.opened())
        self.assertEqual(script.receive(NEXT), ["greeted", "send REMOVE mine", "send REMOVE all/"])
        self.assertEqual(script.receive("REMOVED mine 0"), [], "its caller has its answer")
        self.assertEqual(script.receive("REMOVED all/ 0"), ["resolve 2 REMOVED"])


    def test_a_cancellation_without_an_answer_is_repeated_before_all_else(self):
        script = Script()
        script.brief(script.core.watch(7, "w"))
        script.fetch("h", "1")
        script.fetch("h", "2")
        self.assertEqual(script.brief(script.core.cancel(("h", "1"), 8)), ["drop h/1", "send REMOVE h 1"])
        self.assertEqual(script.brief(script.core.lost()), ["reopen 0"])
        self.assertEqual(script.brief(script.core.cancel(("others", "1"), 9)), [], "another program may own it")
        self.assertEqual(script.brief(script.core.cancel(("h", "2"), 10)), ["drop h/2", "resolve 10 None"],
                         "it ended with the session")
        script.brief(script.core.opened())
        self.assertEqual(script.receive(NEXT), ["greeted", "send REMOVE h 1", "send REMOVE others 1", "send SUBSCRIBE w"])
        self.assertEqual(script.receive("REMOVED h 1 0"), ["resolve 8 REMOVED"])
        self.assertEqual(script.receive("REMOVED others 1 1"), ["resolve 9 REMOVED"])


class WatchTests(unittest.TestCase):
    def test_one_subscription_for_several_watches(self):
        script = Script()
        self.assertEqual(script.brief(script.core.watch(1, "h")), ["send SUBSCRIBE h"])
        self.assertEqual(script.brief(script.core.watch(2, "h")), [])
        self.assertEqual(script.brief(script.core.unwatch(1)), [])
        self.assertEqual(script.brief(script.core.unwatch(2)), ["send UNSUBSCRIBE h"])
        self.assertEqual(script.brief(script.core.unwatch(2)), [], "once")

    def test_a_handler_in_use_stays_subscribed_to(self):
        script = Script()
        script.brief(script.core.watch(1, "h"))
        script.fetch("h", "1")
        self.assertEqual(script.brief(script.core.unwatch(1)), [])

    def test_a_removal_takes_the_subscription_that_a_watch_needs(self):
        script = Script()
        script.brief(script.core.watch(1, "h/a"))
        script.brief(script.core.watch(2, "h/"))
        self.assertEqual(script.brief(script.core.remove("h/a", 9, False)), ["send REMOVE h/a", "send SUBSCRIBE h/a"])
        self.assertEqual(script.brief(script.core.remove("h/", 9, False)), ["send REMOVE h/", "send SUBSCRIBE h/a"])
        self.assertEqual(script.brief(script.core.remove("g", 9, False)), ["send REMOVE g"])

    def test_a_removal_that_is_said_later_does_not_take_it_either(self):
        for lease in (0, 5):
            with self.subTest(lease=lease):
                script = Script(lease=lease)
                script.brief(script.core.watch(1, "h"))
                script.brief(script.core.remove("h", 2, survives=True))
                script.brief(script.core.lost())
                script.brief(script.core.remove("h", 3, survives=True))
                script.brief(script.core.opened())
                self.assertEqual(script.receive(NEXT)[-2:], ["send REMOVE h", "send SUBSCRIBE h"])
        script = Script(lease=5)
        script.brief(script.core.watch(1, "h"))
        script.brief(script.core.lost())
        script.brief(script.core.remove("h", 2, survives=False))
        script.brief(script.core.remove("h", 3, survives=True))
        script.brief(script.core.opened())
        self.assertEqual(script.receive(f"{LEASED}\nresumed: 1"),
                         ["greeted", "send REMOVE h", "send SUBSCRIBE h", "send REMOVE h", "send SUBSCRIBE h"])


class AnswerTests(unittest.TestCase):
    def test_answers_find_their_questions(self):
        script = Script()
        for token, words in enumerate((("QUERY", "status"), ("QUERY", "why", "h", "1"), ("SET", "slots", "08"),
                                       ("QUERY", "status"), ("SET", "slots", "x"))):
            self.assertEqual(script.brief(script.core.command(token, *words)), ["send " + " ".join(words)])
        self.assertEqual(script.receive("ANSWER why h 1", b"{}"), ["resolve 1 ANSWER"])
        self.assertEqual(script.receive("ANSWER status", b"{}"), ["resolve 0 ANSWER"])
        self.assertEqual(script.receive("CHANGED slots 8"), ["resolve 2 CHANGED"])
        self.assertEqual(script.refuse("SET", "bad-setting", "detail: no"), ["resolve 4 ERROR"])
        self.assertEqual(script.receive("ANSWER status", b"{}"), ["resolve 3 ANSWER"])
        self.assertEqual(script.receive("ANSWER status", b"{}"), [], "nobody asked")

    def test_a_table_is_asked_for_page_by_page(self):
        script = Script()
        questions = pages(("status",))
        self.assertEqual(script.brief(script.core.query(next(questions), 1)), ["send QUERY status"])
        second = questions.send({"phase": "serving", "workers": [], "origins": [1], "origins-next": "7"})
        self.assertEqual(script.brief(script.core.query(second, 2)), ["send QUERY origins"])
        self.assertEqual(second, (("origins",), "7"))
        self.assertEqual(questions.send({"origins": [2], "origins-next": "9"}), (("origins",), "9"))
        with self.assertRaises(StopIteration) as end:
            questions.send({"origins": [3]})
        self.assertEqual(end.exception.value, {"phase": "serving", "workers": [], "origins": [1, 2, 3]})

    def test_an_error_ends_the_request_it_names(self):
        script = Script()
        script.fetch("h", "1")
        self.assertEqual(script.refuse("FETCH h 1 ", "id-in-use"), ["refuse h/1 id-in-use"])
        self.assertEqual(script.result("h", "1", 1), [])

    def test_other_errors(self):
        for head, wanted in [("ERROR unknown-request\nto: 7", []), ("ERROR too-many-handlers\nto: 7", ["note"]),
                             ("ERROR limit", ["note"]), ("ERROR version", ["close version"])]:
            self.assertEqual(Script().receive(head), wanted, head)

    def test_a_priority_is_said_now_and_to_the_next_broker(self):
        script = Script()
        script.fetch("h", "1")
        self.assertEqual(script.brief(script.core.prioritize(("h", "1"), "high")), ["send PRIORITY h 1 high"])
        self.assertEqual(script.brief(script.core.prioritize(("h", "2"), "high")), [])
        script.core.lost()
        script.core.opened()
        self.assertIn(b"\npriority: high\n", script.core.received([NEXT.encode()])[1].head)


class BrokerTests(unittest.TestCase):
    def busy(self):
        """Starts one watch, one question, and three requests, and answers the second."""
        script = Script()
        script.brief(script.core.watch(1, "w/"))
        script.brief(script.core.command(2, "QUERY", "status"))
        for number in "123":
            script.fetch("h", number)
        self.assertEqual(script.result("h", "2", 1), ["deliver h 2 200 to me"])
        return script

    AGAIN = ["greeted", "send SUBSCRIBE w/", "send FETCH h 1 http://x/", "send FETCH h 3 http://x/", "send QUERY status"]

    def test_the_next_broker_is_asked_for_all_that_is_still_wanted(self):
        script = self.busy()
        self.assertEqual(script.brief(script.core.lost()), ["reopen 0"])
        self.assertEqual(script.fetch("h", "4"), [])
        self.assertEqual(script.brief(script.core.opened()), ["send HELLO EAR/1"])
        self.assertEqual(script.receive(NEXT), [*self.AGAIN[:-1], "send FETCH h 4 http://x/", self.AGAIN[-1]])
        self.assertEqual(script.result("h", "1", 1), ["deliver h 1 200 to me"], "seq begins anew")
        self.assertEqual(script.result("h", "2", 2), [], "it was answered by the one before")

    def test_a_broker_that_asks_for_a_hello_gets_it_once(self):
        script = self.busy()
        self.assertEqual(script.receive("ERROR hello-required"), ["send HELLO EAR/1"])
        self.assertEqual(script.receive("ERROR hello-required"), [])
        self.assertEqual(script.result("h", "1", 2), [], "of before the greeting")
        self.assertEqual(script.receive("ERROR limit\nto: 2\ndetail: of a message before HELLO"), [])
        self.assertEqual(script.receive(NEXT), self.AGAIN)

    def test_an_error_without_a_number_refuses_the_greeting(self):
        script = self.busy()
        script.core.lost()
        script.core.opened()
        self.assertEqual(script.receive("ERROR limit\ndetail: too much"), ["close limit"])

    def test_what_was_held_of_an_earlier_broker_acknowledges_nothing_of_the_next(self):
        script = self.busy()
        script.core.lost()
        script.core.opened()
        script.receive(NEXT)
        script.result("h", "1", 1)
        script.finish(0)
        self.assertEqual(script.acknowledged(), [])
        script.finish(1)
        self.assertEqual(script.acknowledged(), ["send ACK 1"])

    def test_a_draining_broker_is_asked_nothing_new_and_its_refusals_are_no_answers(self):
        script = self.busy()
        self.assertFalse(script.core.may_move())
        self.assertEqual(script.receive("GOODBYE\nreason: draining"), ["drain"])
        self.assertTrue(script.core.may_move())
        self.assertEqual(script.fetch("h", "4"), [])
        self.assertEqual(script.receive("FAILED h 1 stopping\nseq: 2"), [])
        self.assertEqual(script.result("h", "3", 3), ["deliver h 3 200 to me"])
        script.core.lost()
        script.core.opened()
        self.assertEqual(script.receive(NEXT)[-3:-1], ["send FETCH h 1 http://x/", "send FETCH h 4 http://x/"])

    def test_one_that_was_too_slow_connects_again(self):
        self.assertEqual(self.busy().receive("GOODBYE\nreason: too-slow"), ["reopen 0"])

    def test_connections_that_are_closed_without_a_welcome_are_made_ever_more_slowly(self):
        script = Script(greeted=False)
        pauses = []
        for _ in range(8):
            pauses += script.brief(script.core.lost())
            script.core.opened()
        self.assertEqual(pauses[:3], ["reopen 0.01", "reopen 0.02", "reopen 0.04"])
        self.assertEqual(pauses[-1], f"reopen {LONGEST_PAUSE:g}")
        script.receive(WELCOME)
        self.assertEqual(script.brief(script.core.lost()), ["reopen 0"])

    def test_a_broker_of_another_version_is_not_tried_again(self):
        script = Script(greeted=False)
        self.assertEqual(script.receive("ERROR version\ndetail: EAR/2"), ["close version"])
        self.assertEqual(script.brief(script.core.lost()), [])
        self.assertIs(script.core.phase, Phase.USELESS)

    def test_a_window_out_of_its_range_is_refused(self):
        for window in (0, 4097):
            with self.assertRaises(ValueError):
                Core(window)
