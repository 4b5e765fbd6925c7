"""Removals of very many requests: others are served meanwhile, each subscriber gets its terminals, and codes that wait for a
client take little memory.

It is 10,000 of 30,000 requests. With EARSHOT_LONG=1 it is 100,000 of 300,000, and the times count, which hold on an otherwise
idle machine.
"""

import collections
import json
import os
import re
import select
import time

from support.crowd import Crowd
from support.figures import milliseconds, report
from support.harness import Bus, TestCase, check_ledgers
from support.processes import eventually, resident
from support.raw import RawClient
from support.steady import Steady

IS_LONG = bool(os.environ.get("EARSHOT_LONG"))
MANY = 100_000 if IS_LONG else 10_000
REST = 2 * MANY
UNSENT = 5 * MANY
BATCHES = 10_000 if IS_LONG else 400
PIECE = 5_000
SMALL = 1_000
WAIT, REPLY = 0.005, 0.5
"""Seconds: the longest wait of another client, and the longest time until a large removal is answered."""
UNSENT_BYTES = 50
"""Of a code that waits for a client: 25 MB for 500,000."""
SEQUENCE = re.compile(rb"\nseq: (\d+)")


class Peer(RawClient):
    """Connection that writes and reads very many messages quickly."""

    def __init__(self, runtime):
        super().__init__(runtime)
        self._socket.settimeout(60)
        head = self.receive()
        assert head.startswith("WELCOME"), head

    def write(self, heads):
        """Sends messages, of which none has an answer, and waits until the broker has read them."""
        heads = list(heads)
        for first in range(0, len(heads), PIECE):
            self.send(*heads[first:first + PIECE])
        self.ping()

    def ping(self):
        self.send("QUERY ping\n")
        head = self.receive()
        assert head == "ANSWER ping\n", head
        self.receive()

    def query(self, subject):
        self.send(f"QUERY {subject}\n")
        assert self.receive() == f"ANSWER {subject}\n"
        return json.loads(self.receive())

    def ledger(self):
        """Returns the ledger, after checking that it balances."""
        ledger = self.query("ledger")
        check_ledgers(ledger)
        return ledger

    def trip(self, head, frames=1):
        """Returns the seconds until the answer to a message, which has this many frames, and the last of them."""
        began = time.monotonic()
        self.send(head)
        answer = [self.receive() for _ in range(frames)]
        return time.monotonic() - began, answer[-1]

    def await_input(self, seconds=0):
        """Returns whether there is something to read within this time."""
        return bool(self._received) or bool(select.select([self._socket], [], [], seconds)[0])

    def terminals(self, count):
        """Returns the first lines of the next `count` messages, of one frame each, and acknowledges them."""
        lines, data, acknowledged, last = [], self._received, 0, 0
        while len(lines) < count:
            start = 0
            while len(data) - start >= 2:
                size, head = (9, int.from_bytes(data[start + 1:start + 9], "big")) if data[start] & 2 else (2, data[start + 1])
                end = start + size + head
                if len(data) < end or data[start] & 2 and len(data) - start < 9:
                    break
                message = bytes(data[start + size:end])
                lines.append(message.partition(b"\n")[0].decode())
                if found := SEQUENCE.search(message):
                    last = int(found[1])
                start = end
            del data[:start]
            if last - acknowledged >= 100 or len(lines) >= count and last > acknowledged:
                self.send(f"ACK {last}\n")
                acknowledged = last
            if len(lines) < count:
                received = self._socket.recv(1 << 20)
                assert received, "the connection stands"
                data += received
        return lines


def removal_of(handler, request):
    """Returns the message that removes one request, and the beginning of its answer."""
    return f"REMOVE {handler} {request}\n", f"REMOVED {handler} {request}"


class RemovalTests(TestCase):
    """The requests wait for one origin, whose transfers last longer than a test."""

    def setUp(self):
        self.origin = self.enterContext(Steady())
        self.bus = self.enterContext(Bus(workers=1, slots=8, origin_limit=4, arguments=["--no-cache"]))
        self.other, self.small = self.peer(), self.peer()

    def peer(self):
        peer = Peer(self.bus.runtime)
        self.addCleanup(peer.close)
        return peer

    def fetches(self, handler, count):
        """Returns FETCHes of separate URLs. `{}` in the handler is the number of the request."""
        return (f"FETCH {handler.format(number)} {number} {self.origin.url}/600/{handler.format(number)}-{number}\n"
                for number in range(count))

    def test_requests_of_one_handler(self):
        self.removal("big", "big", subscribers=0)

    def test_requests_of_one_handler_with_three_subscribers(self):
        self.removal("big", "big", subscribers=3)

    def test_handlers_of_a_subtree(self):
        self.removal("big/{}", "big/", subscribers=0)

    def test_handlers_of_a_subtree_with_three_subscribers(self):
        self.removal("big/{}", "big/", subscribers=3)

    def removal(self, handler, pattern, subscribers):
        remover, rest = self.peer(), self.peer()
        listeners = [self.peer() for _ in range(subscribers)]
        for listener in listeners:
            listener.write([f"SUBSCRIBE {pattern}\n"])
        rest.write(self.fetches("rest", REST))
        self.small.write(self.fetches("small/{}", SMALL))
        remover.write(self.fetches(handler, MANY))
        self.assertEqual(self.other.ledger()["requests"]["pending"], MANY + REST + SMALL)

        # The later messages are carried out after the removal: the request is a new one.
        again = handler.format(1)
        began = time.monotonic()
        remover.send(f"REMOVE {pattern}\n", f"FETCH {again} 1 {self.origin.url}/600/again\n", "QUERY ping\n")
        self.serve_others(began, lambda _: remover.await_input())
        self.assertEqual([remover.receive() for _ in range(2)], [f"REMOVED {pattern} {MANY}\n", "ANSWER ping\n"])
        remover.receive()

        expected = {f"FAILED {handler.format(number)} {number} removed" for number in range(MANY)}
        for listener in listeners:
            found = listener.terminals(MANY)
            self.assertEqual((len(found), set(found)), (MANY, expected), "each once")
            listener.ping()
        # Nothing but the answer comes.
        remover.ping()
        requests = self.other.ledger()["requests"]
        self.assertEqual((requests["pending"], requests["removed"]), (REST + SMALL - self.removed + 1, MANY + self.removed))

    def serve_others(self, began, is_over):
        """Sends queries and small removals, one after the other, until `is_over` and all of the removed requests have left the
        queue. `is_over` may use its argument for a query."""
        waits, removals, self.removed, duration, is_gone = [], [], 0, None, False

        def query(subject):
            wait, answer = self.other.trip(f"QUERY {subject}\n", frames=2)
            waits.append(wait)
            return json.loads(answer)
        while not is_gone or time.monotonic() - began < 0.1:
            query("ping")
            if len(waits) % 8 == 0 and self.removed < SMALL:
                wait, reply = self.small.trip(f"REMOVE small/{self.removed}\n")
                self.assertEqual(reply, f"REMOVED small/{self.removed} 1\n")
                removals.append(wait)
                self.removed += 1
            if duration is None and is_over(query):
                duration, meanwhile = time.monotonic() - began, len(waits)
            elif duration is not None and not is_gone and len(waits) % 16 == 0:
                is_gone = query("status")["flights-now"]["queued"] <= REST + SMALL + 1
        report(f"{MANY} after {1000 * duration:.0f} ms: {len(waits)} queries wait {milliseconds(waits):.2f} ms, 99 %"
               f" {milliseconds(waits, 99):.2f}, at most {1000 * max(waits):.2f}, {len(removals)} removals at most"
               f" {1000 * max(removals):.2f}; {meanwhile} queries before the reply")
        if IS_LONG:
            self.assertLessEqual(max(waits), WAIT)
            self.assertLessEqual(max(removals), WAIT)
            self.assertLessEqual(duration, REPLY)

    def test_requests_of_a_killed_client(self):
        self.death(subscribers=0)

    def test_requests_of_a_killed_client_with_three_subscribers(self):
        self.death(subscribers=3)

    def death(self, subscribers):
        listeners = [self.peer() for _ in range(subscribers)]
        for listener in listeners:
            listener.write(["SUBSCRIBE dead\n"])
        self.peer().write(self.fetches("rest", REST))
        self.small.write(self.fetches("small/{}", SMALL))
        crowd = Crowd(self.bus, "dead", MANY, self.origin.url + "/600/{}")
        self.addCleanup(lambda: crowd.running and crowd.kill())
        crowd.await_submitted()
        began = time.monotonic()
        crowd.signal(9)
        self.serve_others(began, lambda query: query("ledger")["requests"]["removed"] - self.removed == MANY)
        self.assertEqual(crowd.wait(), -9)
        expected = {f"FAILED dead {number} removed" for number in range(MANY)}
        for listener in listeners:
            found = listener.terminals(MANY)
            self.assertEqual((len(found), set(found)), (MANY, expected), "each once")
            listener.ping()
        self.assertEqual(self.other.ledger()["requests"]["pending"], REST + SMALL - self.removed)

    def test_owed_codes_take_little_memory(self):
        remover, subscriber = self.peer(), self.peer()
        remover.write(self.fetches("owed", UNSENT))
        subscriber.write(["SUBSCRIBE owed\n"])
        remover.send("REMOVE owed\n")
        self.assertEqual(remover.receive(), f"REMOVED owed {UNSENT}\n")
        eventually(lambda: self.other.ledger()["deliveries"]["outstanding"] == UNSENT, "all are due")
        # Of a tenth the pages of the allocator are a large part, so only the strict form measures.
        full = self.at_rest() if IS_LONG else 0
        found = subscriber.terminals(UNSENT)
        self.assertEqual((len(found), set(found)), (UNSENT, {f"FAILED owed {number} removed" for number in range(UNSENT)}))
        subscriber.ping()
        self.assertEqual(self.other.ledger()["deliveries"]["outstanding"], 0)
        if IS_LONG:
            # Both times the requests are gone, so the difference is what was due.
            size = full - self.at_rest()
            report(f"{UNSENT} codes take {size / 1e6:.1f} MB, {size / UNSENT:.1f} bytes each")
            self.assertLessEqual(size, UNSENT * UNSENT_BYTES)

    def test_codes_that_wait_for_the_remover(self):
        remover, subscriber = self.peer(), self.peer()
        remover.write(self.fetches("owed", UNSENT))
        subscriber.write(["SUBSCRIBE owed\n"])
        remover.send("REMOVE owed\n")
        self.assertEqual(remover.receive(), f"REMOVED owed {UNSENT}\n")
        eventually(lambda: self.other.ledger()["deliveries"]["outstanding"] == UNSENT, "all are due")
        self.small.write(self.fetches("small/{}", SMALL))
        began = time.monotonic()
        subscriber.send("REMOVE owed\n", "QUERY ping\n")
        self.serve_others(began, lambda query: query("ledger")["deliveries"]["outstanding"] <= SMALL)
        # Those of the window were sent before, and nothing follows the answer.
        sent = self.other.ledger()["deliveries"]["outstanding"]
        heads = [subscriber.receive() for _ in range(sent + 2)]
        self.assertTrue(all(head.startswith("FAILED owed ") for head in heads[:sent]))
        self.assertEqual(heads[sent:], ["REMOVED owed 0\n", "ANSWER ping\n"])
        subscriber.receive()
        self.assertEqual(self.other.ledger()["deliveries"]["lost"], UNSENT - sent)
        subscriber.send(f"ACK {sent}\n")
        subscriber.ping()
        self.assertEqual(self.other.ledger()["deliveries"]["outstanding"], 0)

    def at_rest(self):
        """Returns the least memory of the broker in the next three seconds: it returns that of a burst after one."""
        samples, end = [], time.monotonic() + 3

        def is_over():
            samples.append(resident(self.bus.broker))
            return time.monotonic() > end
        eventually(is_over, "three seconds are over")
        return min(samples)


class ReplacementTests(TestCase):
    """A client removes its requests and makes others under the same name in one write, while their transfers end."""

    def setUp(self):
        self.origin = self.enterContext(Steady())
        self.bus = self.enterContext(Bus(workers=1, slots=16, origin_limit=16, arguments=["--no-cache"]))
        self.peer = Peer(self.bus.runtime)
        self.addCleanup(self.peer.close)

    def test_a_handler_is_replaced(self):
        self.replace(1, lambda size: (["REMOVE r\n"], ["REMOVED r"]))

    def test_a_large_handler_is_replaced(self):
        self.replace(100, lambda size: (["REMOVE r\n"], ["REMOVED r"]), batches=BATCHES // 20, pause=0.005)

    def test_one_request_is_replaced(self):
        def removals(size):
            messages, answers = zip(*(removal_of("r", index) for index in range(size)))
            return messages, answers
        self.replace(1, removals)

    def replace(self, size, removals, batches=BATCHES, pause=0.0005):
        """Makes `size` requests in each batch, with the IDs of those before. The URL of each names its batch. `pause`: unit of
        the seconds between two batches without a result."""
        messages, answers = removals(size)
        counts, terminals, odd = [], collections.Counter(), []
        for batch in range(batches):
            fetches = (f"FETCH r {index} {self.origin.url}/{batch % 3 * 0.001}/{batch}-{index}\n"
                       for index in range(size))
            self.peer.send(*messages, *fetches)
            self.read(batch, answers, counts, terminals, odd)
            # Some transfers end before the next batch, and some while it is read.
            self.peer.await_input(batch % 4 * pause)
        self.peer.send("REMOVE r\n")
        self.read(batches, ["REMOVED r"], counts, terminals, odd)
        self.assertEqual(odd, [], "those of removed requests, and failures")
        self.assertEqual({count for count in terminals.values() if count > 1}, set(), "each once")
        for batch in range(batches):
            of_batch = sum(f"{batch}-{index}" in terminals for index in range(size))
            # The count of one removal is that of the batch before. An answer to a single removal may have none.
            if counts[batch + 1] is not None:
                self.assertEqual(of_batch + counts[batch + 1], size, f"batch {batch}")
        report(f"{batches} batches of {size}: {len(terminals)} results, {batches * size - len(terminals)} removed")
        self.assertTrue(terminals, "some transfers end before their removal")
        requests = self.peer.ledger()["requests"]
        self.assertEqual((requests["answered"], requests["removed"], requests["pending"]),
                         (len(terminals), batches * size - len(terminals), 0))

    def read(self, batch, answers, counts, terminals, odd):
        """Reads until the answers to the removals of a batch. Only terminals of the batch before come until then."""
        count = 0
        for answer in answers:
            while not (head := self.peer.receive()).startswith(answer):
                lines = head.split("\n")
                url = next((line[5:] for line in lines if line.startswith("url: ")), "")
                name = url.rpartition("/")[2]
                if not lines[0].startswith("RESULT r ") or int(name.partition("-")[0] or -1) != batch - 1:
                    odd.append(head)
                    continue
                self.peer.receive()  # Its body.
                terminals[name] += 1
                self.peer.send(f"ACK {SEQUENCE.search(head.encode())[1].decode()}\n")
            number = head.split()[-1]
            count += int(number)
        counts.append(count)
