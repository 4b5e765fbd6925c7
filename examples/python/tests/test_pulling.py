"""Tests of `connect(bodies="pull")`: bodies come over the connection."""

import asyncio
import os
import pathlib
import tempfile
import unittest

import earshot_bus
import earshot_bus.blocking
from earshot_bus._messages import Fetch
from earshot_bus._protocol import Core, Deliver, Discard, Drop, Send, Store
from fixture import BusTestCase, timed
from support.harness import check_ledgers
from support.origin import body

PIECE = 256 << 10


class PullTests(BusTestCase):
    @timed
    async def test_a_large_body_is_read_saved_and_released(self):
        async with self.connect(bodies="pull") as bus, bus.handler("pull") as handler:
            result = await handler.fetch(f"{self.url}/bytes/3000000")
            self.assertIsNone(result.body)
            self.assertEqual(pathlib.Path(result.path).read_bytes(), body(3_000_000))
            self.assertEqual(result.read(), body(3_000_000))
            with self.assertRaises(ValueError):
                result.read()
            self.assertEqual((await handler.fetch(f"{self.url}/bytes/1000")).read(), body(1000))
            with tempfile.TemporaryDirectory() as folder:
                target = pathlib.Path(folder, "saved")
                (await handler.fetch(f"{self.url}/bytes/300000")).save(target)
                self.assertEqual(target.read_bytes(), body(300_000))
            self.assertEqual(bus._parts, {})
            await bus.ping()
            ledger = await bus.query("ledger")
            self.assertEqual(ledger["deliveries"]["outstanding"], 0)
            check_ledgers(ledger)

    @timed
    async def test_many_bodies_share_the_four_reads(self):
        async with self.connect(bodies="pull", window=3) as bus, bus.handler("many") as handler:
            async def one(size):
                return (await handler.fetch(f"{self.url}/bytes/{size}")).read()
            sizes = [70_000 + 100_000 * index for index in range(20)]
            found = await asyncio.gather(*(one(size) for size in sizes))
            self.assertEqual(found, [body(size) for size in sizes])

    @timed
    async def test_a_watch_and_the_request_have_the_body_each(self):
        async with self.connect(bodies="pull") as bus, bus.handler("both") as handler:
            async with bus.watch("both") as watch:
                own = await handler.fetch(f"{self.url}/bytes/400000")
                watched = await anext(watch)
            self.assertEqual((own.read(), watched.read()), (body(400_000), body(400_000)))
            self.assertEqual(own.sha256, watched.sha256)

    @timed
    async def test_a_resumed_session_reads_on_and_a_new_one_requests_again(self):
        for lease, name in ((20, "leased"), (0, "new")):
            async with self.connect(bodies="pull", lease=lease) as bus, bus.handler(name) as handler:
                transfer = handler.start(f"{self.url}/bytes/2000000?seed={name}")
                while not bus._parts:
                    await asyncio.sleep(0)
                bus._apply(bus._core.lost())
                self.assertEqual((await transfer).read(), body(2_000_000, name))
                check_ledgers(await bus.query("ledger"))

    @timed
    async def test_a_cancelled_request_is_not_read_to_its_end(self):
        async with self.connect(bodies="pull") as bus, bus.handler("cancelled") as handler:
            transfer = asyncio.ensure_future(handler.fetch(f"{self.url}/bytes/2000000?seed=c"))
            while not bus._parts:
                await asyncio.sleep(0)
            transfer.cancel()
            await bus.ping()
            await bus.ping()
            self.assertEqual((bus._parts, bus._core._pulls.all()), ({}, []))
            self.assertEqual((await handler.fetch(f"{self.url}/bytes/300000")).read(), body(300_000))
            await bus.ping()
            self.assertEqual((await bus.query("ledger"))["deliveries"]["outstanding"], 0)

    @timed
    async def test_a_lost_file_is_requested_again(self):
        async with self.connect(bodies="pull") as bus, bus.handler("lost") as handler:
            transfer = handler.start(f"{self.url}/bytes/900000?seed=lost", cache="no-store")
            deliver = bus._core._terminal

            def lose(message, question):
                os.unlink(self.bus.spool / message.field("sha-256"))
                bus._core._terminal = deliver
                return deliver(message, question)
            bus._core._terminal = lose
            self.assertEqual((await transfer).read(), body(900_000, "lost"))
            self.assertEqual(self.origin.count("/bytes/900000"), 2)

    def test_the_blocking_form(self):
        with earshot_bus.blocking.connect(self.bus.runtime, bodies="pull") as bus, bus.handler("blocking") as handler:
            self.assertEqual(handler.fetch(f"{self.url}/bytes/1000000").read(), body(1_000_000))

    def test_wrong_values(self):
        with self.assertRaises(ValueError):
            self.connect(bodies="push")


class CoreTests(unittest.TestCase):
    """The state machine, with the messages of a broker."""

    def setUp(self):
        self.core = Core(256, 20, bodies="pull")
        self.hello = self.core.opened()[0].head
        self.receive("WELCOME EAR/1", "broker: 0123456789abcdef", "window: 256", "lease: 20", f"token: {'0' * 32}")
        self.core.fetch(Fetch.make("h", "1", "http://a.example/", {}, False))

    def receive(self, *lines, body=None):
        return self.core.received([("\n".join(lines) + "\n").encode(), *([] if body is None else [body])])

    def result(self, length):
        return self.receive("RESULT h 1 200", "seq: 1", f"length: {length}", "pull: yes")

    def heads(self, actions):
        return [action.head.decode().strip() for action in actions if isinstance(action, Send)]

    def test_hello_asks_for_it(self):
        self.assertIn(b"\nbodies: pull\n", self.hello)

    def test_at_most_four_reads_are_open_and_data_comes_in_any_order(self):
        self.assertEqual(self.heads(self.result(5 * PIECE + 1)), [f"READ 1 {n * PIECE} {PIECE}" for n in range(4)])
        stored, *more = self.receive(f"DATA 1 {PIECE}", body=b"b" * PIECE)
        self.assertEqual(stored, Store((self.core._link, 1), PIECE, b"b" * PIECE))
        self.assertEqual(self.heads(more), [f"READ 1 {4 * PIECE} {PIECE}"])
        # Fewer bytes than asked: the rest is asked for again.
        self.assertEqual(self.heads(self.receive("DATA 1 0", body=b"a")), [f"READ 1 1 {PIECE - 1}"])
        self.assertEqual(self.receive("DATA 1 0", body=b"a"), [], "it answers no READ")
        self.assertEqual(self.core.unacknowledged(), 0)

    def test_the_terminal_follows_the_last_byte(self):
        self.result(10)
        stored, delivered = self.receive("DATA 1 0", body=b"0123456789 and more")
        self.assertEqual((stored.data, delivered.id, delivered.wanted), (b"0123456789", stored.id, True))
        self.assertFalse(self.core.wants(("h", "1")))
        self.core.finish(delivered.id)
        self.assertEqual(self.heads(self.core.acknowledge()), ["ACK 1"])

    def test_a_lost_body_is_delivered_without_bytes(self):
        for answer in (["DATA 1 0", "error: unknown-body", "detail: gone"], ["DATA 1 0"]):
            with self.subTest(answer):
                self.setUp()
                self.result(10)
                self.assertEqual([type(action) for action in self.receive(*answer)], [Discard, Deliver])
        self.assertEqual(self.receive("DATA 1 0", "error: unknown-body"), [], "it is no longer read")

    def test_a_removal_ends_reading(self):
        for remove in (lambda: self.core.cancel(("h", "1"), 9), lambda: self.core.remove("h", 9, True)):
            self.setUp()
            self.result(10)
            self.assertEqual({type(action) for action in remove()}, {Drop, Discard, Send})
            self.assertEqual(self.receive("DATA 1 0", body=b"0123456789"), [])
            self.assertEqual(self.core.unacknowledged(), 1)

    def test_a_resumed_session_repeats_the_open_reads(self):
        self.result(3 * PIECE)
        self.receive("DATA 1 0", body=b"a" * PIECE)
        self.core.lost()
        self.core.opened()
        actions = self.receive("WELCOME EAR/1", "broker: 0123456789abcdef", "window: 256", "lease: 20", f"token: {'0' * 32}",
                               "resumed: 1")
        self.assertEqual(self.heads(actions), [f"READ 1 {PIECE} {PIECE}", f"READ 1 {2 * PIECE} {PIECE}"])
        self.assertEqual(self.result(3 * PIECE), [], "the repetition of the terminal")

    def test_a_new_session_requests_again(self):
        self.result(10)
        self.core.lost()
        self.core.opened()
        actions = self.receive("WELCOME EAR/1", "broker: 0123456789abcdef", "window: 256")
        self.assertEqual([head.split("\n")[0] for head in self.heads(actions)], ["FETCH h 1 http://a.example/"])


if __name__ == "__main__":
    unittest.main()
