"""Tests of the asyncio form with a real bus and a faulty origin."""

import asyncio
import gc
import hashlib
import os
import pathlib
import signal
import tempfile
import unittest
import weakref
from unittest import mock

import earshot_bus
from earshot_bus._results import terminal
from fixture import BusTestCase, timed
from played import Played
from support.harness import check_ledgers
from support.origin import body
from support.processes import eventually, kill


class SessionTests(BusTestCase):
    @timed
    async def test_a_connection_that_breaks_costs_nothing_with_a_lease(self):
        async with self.connect(lease=20) as bus, bus.handler("kept") as handler:
            transfers = [handler.start(f"{self.url}/gate/kept?bytes=500&seed={seed}") for seed in range(3)]
            await self.in_thread(self.origin.await_running, 3)
            for _ in range(3):
                bus._apply(bus._core.lost())
                await bus.ping()
            self.origin.open_gate("kept")
            for seed, transfer in enumerate(transfers):
                self.assertEqual((await transfer).read(), body(500, seed))
            self.assertEqual(self.origin.count("/gate/kept"), 3, "nothing was fetched again")
            ledger = await bus.query("ledger")
            self.assertEqual(ledger["requests"]["removed"], 0)
            check_ledgers(ledger)

    @timed
    async def test_who_leaves_is_not_waited_for(self):
        async with self.connect() as observer:
            async with self.connect(lease=20) as bus, bus.handler("left") as handler:
                transfer = handler.start(f"{self.url}/gate/left")
                await self.in_thread(self.origin.await_running, 1)
                bus._close()
                with self.assertRaises(earshot_bus.Closed):
                    await transfer
            while (await observer.query("ledger"))["requests"]["pending"]:
                await asyncio.sleep(0)
            self.assertEqual((await observer.status())["clients-away"], 0)


class FetchTests(BusTestCase):
    @timed
    async def test_one_url(self):
        async with self.connect() as bus, bus.handler("one") as handler:
            result = await handler.fetch(f"{self.url}/bytes/1000", priority="high", timeout=5)
        self.assertEqual((result.handler, result.status, result.length), ("one", 200, 1000))
        self.assertEqual(result.read(), body(1000))
        self.assertEqual(result.read(), body(1000), "a body in memory can be read again")
        self.assertEqual(result.sha256, hashlib.sha256(body(1000)).hexdigest())
        self.assertEqual((result.source, result.url), ("network", f"{self.url}/bytes/1000"))
        self.assertEqual(result.header("content-LENGTH"), "1000")
        self.assertEqual(result.redirects, ())

    @timed
    async def test_a_request_learns_its_redirects(self):
        async with self.connect() as bus, bus.handler("redirected") as handler:
            result = await handler.fetch(f"{self.url}/redirect/2")
        self.assertEqual([url for _, url in result.redirects], [f"{self.url}/redirect/1", f"{self.url}/redirect/0"])
        self.assertTrue(all(300 <= status < 400 for status, _ in result.redirects), result.redirects)
        self.assertIsNone(result.path)
        self.assertGreaterEqual(result.elapsed_ms, result.queued_ms)

    @timed
    async def test_a_large_body_is_a_file_until_it_was_read(self):
        async with self.connect() as bus, bus.handler("large") as handler:
            result = await handler.fetch(f"{self.url}/bytes/3000000")
            path = pathlib.Path(result.path)
            self.assertIsNone(result.body)
            self.assertEqual(path.stat().st_size, 3_000_000)
            self.assertEqual((await bus.query("ledger"))["deliveries"]["outstanding"], 1)
            self.assertTrue(result.read() == body(3_000_000))
            self.assertRaises(ValueError, result.read)
            await self.in_thread(eventually, lambda: not path.exists(), "the broker took it away")

    @timed
    async def test_a_large_body_is_saved_and_released(self):
        with tempfile.TemporaryDirectory() as folder:
            async with self.connect() as bus, bus.handler("saved") as handler:
                for size in (10, 300_000):
                    target = pathlib.Path(folder, str(size))
                    (await handler.fetch(f"{self.url}/bytes/{size}?seed=saved")).save(target)
                    self.assertTrue(target.read_bytes() == body(size, "saved"))
                with await handler.fetch(f"{self.url}/bytes/300000?seed=with") as result:
                    self.assertTrue(pathlib.Path(result.path).exists())
                await bus.ping()
                self.assertEqual((await bus.query("ledger"))["deliveries"]["outstanding"], 0)
            self.assertEqual(len(list(pathlib.Path(folder).iterdir())), 2, "no parts are left")

    @timed
    async def test_a_file_that_is_gone_is_fetched_again_but_not_for_ever(self):
        for losses, fetches in ((1, 2), (100, 4)):
            lost = [FileNotFoundError] * losses

            def opening(*arguments, lost=lost):
                if lost:
                    raise lost.pop()
                return terminal(*arguments)

            with self.subTest(losses), mock.patch("earshot_bus._shell.terminal", opening):
                async with self.connect() as bus, bus.handler("lost") as handler:
                    path = f"/bytes/70000?seed=lost{losses}"
                    transfer = handler.start(self.url + path)
                    first = transfer.request
                    if losses == 1:
                        self.assertTrue((await transfer).read() == body(70_000, "lost1"))
                    else:
                        with self.assertRaises(earshot_bus.FetchFailed) as caught:
                            await transfer
                        self.assertEqual(caught.exception.code, "internal")
                    self.assertNotEqual(transfer.request, first)
                    self.assertEqual(self.origin.count(path), fetches)
                    await bus.ping()
                    self.assertEqual((await bus.query("ledger"))["deliveries"]["outstanding"], 0)

    @timed
    async def test_the_header_fields_are_the_server_s_to_read(self):
        async with self.connect() as bus, bus.handler() as handler:
            result = await handler.fetch(f"{self.url}/headers", headers={"Accept": "image/*", "x-note": "a: b"})
            self.assertIn(b"image/*", result.read())
            self.assertTrue(handler.name.startswith("python/"))

    @timed
    async def test_codes(self):
        async with self.connect() as bus, bus.handler("codes") as handler:
            cases = [("http-status", "/status/404", {}), ("truncated", "/cut/10/20", {}), ("reset", "/reset", {}),
                     ("protocol-error", "/garbage", {}), ("redirect-loop", "/loop/a", {}),
                     ("redirect-refused", "/redirect/1", {"redirect": "error"}),
                     ("too-large", "/bytes/1001", {"max_bytes": 1000}), ("deadline", "/hang?1", {"deadline": 0.2}),
                     ("digest-mismatch", "/bytes/1002", {"sha256": "0" * 64}), ("timeout", "/hang?2", {"timeout": 0.2}),
                     ("bad-header", "/bytes/9", {"headers": {"Host": "x"}}),
                     ("unsupported-method", "/bytes/9", {"method": "PUT"})]
            paths = [(code, self.url + path, options) for code, path, options in cases]
            paths += [("unsupported-scheme", "ftp://127.0.0.1/x", {}), ("malformed-url", "http://", {}),
                      ("connect-refused", "http://127.0.0.1:1/", {})]
            ends = await asyncio.gather(*(handler.fetch(url, retries=0, **options) for _, url, options in paths),
                                        return_exceptions=True)
        for (code, url, _), end in zip(paths, ends):
            with self.subTest(code):
                self.assertIsInstance(end, earshot_bus.FetchFailed)
                self.assertEqual(end.code, code, url)
                self.assertEqual(end.handler, "codes")
                self.assertTrue(end.detail)
        self.assertEqual((ends[0].status, ends[0].body), (404, b"the origin answers 404\n"))
        self.assertIn("404", str(ends[0]))
        self.assertIsNone(ends[1].status)

    @timed
    async def test_progress(self):
        async with self.connect() as bus, bus.handler("progress") as handler:
            steps = []
            url = f"{self.url}/steps/told-1/told-2?bytes=200001"
            transfer = handler.start(url, on_progress=steps.append, progress_ms=50)
            read = []
            async for step in transfer.progress():
                read.append(step)
                if step.received in (66_667, 133_334):
                    self.origin.open_gate(f"told-{step.received // 66_667}")
            self.assertEqual((await transfer).length, 200_001)
            self.assertGreater(len(steps), 1)
            self.assertLessEqual(set(read), set(steps))
            self.assertEqual(read[-1], steps[-1])
            self.assertEqual({step.total for step in steps}, {200_001})
            self.assertEqual([step.received for step in steps], sorted(step.received for step in steps))

    @timed
    async def test_a_caller_s_fault_is_told_at_once(self):
        bus = self.connect()
        with self.assertRaises(earshot_bus.Closed):
            bus.watch("a")
        with self.assertRaises(ValueError):
            bus.handler("a b")
        async with bus:
            handler = bus.handler("a")
            with self.assertRaises(RuntimeError):
                await handler.fetch(self.url)
            async with handler:
                with self.assertRaises(ValueError):
                    await handler.fetch(f"{self.url}/ x")
                with self.assertRaises(ValueError):
                    async with bus.handler("a"):
                        self.fail("open twice")
        with self.assertRaises(earshot_bus.Closed):
            await bus.ping()
        with self.assertRaises(RuntimeError):
            await bus.__aenter__()


class RemovalTests(BusTestCase):
    @timed
    async def test_1000_in_a_handler_that_is_left_half_way(self):
        async with self.connect() as bus:
            async with bus.handler("many") as handler:
                # The origin sends the first half only.
                tasks = [asyncio.create_task(handler.fetch(f"{self.url}/first/500/half-way?bytes=100&seed={n}"))
                         for n in range(1000)]
                for number, following in enumerate(asyncio.as_completed(tasks), 1):
                    await following
                    if number == 500:
                        break
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            fetched = self.origin.count("/first/500/half-way")
            found = [(n, end) for n, end in enumerate(ends) if isinstance(end, earshot_bus.Result)]
            self.assertTrue(all(end.body == body(100, str(n)) for n, end in found))
            self.assertEqual({end.code for end in ends if isinstance(end, earshot_bus.FetchFailed)}, {"removed"})
            self.assertEqual(len(found), 500)
            self.assertLess(fetched, 510, "no more than may run at once")
            ledger = await bus.query("ledger")
            check_ledgers(ledger)
            self.assertEqual(ledger["requests"]["pending"], 0)
            self.assertEqual(ledger["requests"]["removed"], 1000 - ledger["requests"]["answered"])
            await self.in_thread(self.origin.await_running, 0)
            self.assertEqual(self.origin.count("/first/500/half-way"), fetched, "nothing was fetched after the removal")

    @timed
    async def test_cancelling_a_task_reaches_the_origin(self):
        async with self.connect() as bus, bus.handler("cancelled") as handler:
            task = asyncio.create_task(handler.fetch(f"{self.url}/stall/1"))
            await self.in_thread(self.origin.await_count, "/stall/1", 1)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            await self.in_thread(self.origin.await_aborts, "/stall/1")
            self.assertEqual((await handler.fetch(f"{self.url}/bytes/7")).read(), body(7), "the handler lives")

    @timed
    async def test_a_time_out_of_the_caller_s_own_is_a_cancellation(self):
        async with self.connect() as bus, bus.handler("impatient") as handler:
            fetching = asyncio.create_task(handler.fetch(f"{self.url}/stall/2"))
            await self.in_thread(self.origin.await_count, "/stall/2", 1)
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(fetching, 0.05)
            await self.in_thread(self.origin.await_aborts, "/stall/2")

    @timed
    async def test_what_ends_a_handler_or_a_bus_ends_its_transfers(self):
        async with self.connect() as bus:
            async with bus.handler("left") as handler:
                left = handler.start(f"{self.url}/stall/3")
                await self.in_thread(self.origin.await_count, "/stall/3", 1)
            await self.in_thread(self.origin.await_aborts, "/stall/3")
            with self.assertRaises(earshot_bus.FetchFailed) as caught:
                await left
            self.assertEqual(caught.exception.code, "removed")
            handler = await bus.handler("closed").__aenter__()
            closed = handler.start(f"{self.url}/stall/4")
            await self.in_thread(self.origin.await_count, "/stall/4", 1)
        with self.assertRaises(earshot_bus.Closed):
            await closed
        await self.in_thread(self.origin.await_aborts, "/stall/4")

    @timed
    async def test_another_program_s_removal_is_a_failure(self):
        async with self.connect() as bus, self.connect() as other, bus.handler("shared/1") as handler:
            transfer = handler.start(f"{self.url}/stall/5")
            await bus.ping()
            self.assertEqual(await other.remove("shared/"), 1)
            with self.assertRaises(earshot_bus.FetchFailed) as caught:
                await transfer
            self.assertEqual(caught.exception.code, "removed")
            transfer = handler.start(f"{self.url}/stall/6")
            await bus.ping()
            await other.cancel("shared/1", transfer.request)
            with self.assertRaises(earshot_bus.FetchFailed):
                await transfer

    @timed
    async def test_the_reused_cell_gets_the_last_alone(self):
        async with self.connect() as bus, bus.handler("cell") as cell:
            stale = [asyncio.create_task(cell.replace(f"{self.url}/stall/{n}")) for n in (70, 71, 72)]
            await self.in_thread(self.origin.await_count, "/stall/72", 1)
            self.assertEqual((await cell.replace(f"{self.url}/bytes/72")).read(), body(72))
            for end in await asyncio.gather(*stale, return_exceptions=True):
                self.assertEqual(end.code, "removed")
            await self.in_thread(self.origin.await_aborts, "/stall/72")


class WatchTests(BusTestCase):
    @timed
    async def test_a_watch_hears_results_and_failures_of_others(self):
        async with self.connect() as bus, self.connect() as other, bus.watch("gallery/") as watch:
            await bus.ping()
            async with other.handler("gallery/1") as first, other.handler("gallery/2") as second:
                await first.fetch(f"{self.url}/bytes/10")
                self.assertEqual(len((await first.fetch(f"{self.url}/bytes/100000")).read()), 100_000)
                with self.assertRaises(earshot_bus.FetchFailed):
                    await second.fetch(f"{self.url}/status/404")
                terminals = [await anext(watch) for _ in range(3)]
            self.assertEqual([(end.handler, end.ok) for end in terminals],
                             [("gallery/1", True), ("gallery/1", True), ("gallery/2", False)])
            self.assertTrue(terminals[1].read() == body(100_000))
            self.assertEqual((terminals[2].code, terminals[2].status), ("http-status", 404))

    @timed
    async def test_one_bus_watches_what_it_fetches_also_after_the_handler_was_left(self):
        async with self.connect() as bus, bus.watch("own") as watch:
            for size in (1, 2):
                async with bus.handler("own") as handler:
                    await handler.fetch(f"{self.url}/bytes/{size}")
                self.assertEqual((await anext(watch)).length, size)

    @timed
    async def test_a_watch_ends_with_its_close_and_with_its_bus(self):
        async with self.connect() as bus:
            watches = [bus.watch("ends"), bus.watch("ends/")]
            waiting = [asyncio.create_task(anext(watch, None)) for watch in watches]
            await bus.ping()
            watches[0].close()
            self.assertIsNone(await waiting[0])
        self.assertIsNone(await waiting[1])

    @timed
    async def test_a_forgotten_watch_ends(self):
        async with self.connect() as bus:
            watch = weakref.ref(bus.watch("forgotten"))
            gc.collect()
            self.assertIsNone(watch())
            await bus.ping()
            self.assertEqual(bus._watches, {})


class WindowTests(BusTestCase):
    @timed
    async def test_what_came_whole_is_acknowledged_together_and_soon(self):
        async with self.connect() as observer, self.connect() as bus, bus.handler("together") as handler:
            for count in range(1, 4):
                await handler.fetch(f"{self.url}/bytes/{count}?together")
            while (await observer.query("ledger"))["deliveries"]["outstanding"]:
                await asyncio.sleep(0)
            self.assertEqual(bus._core.unacknowledged(), 0)

    @timed
    async def test_no_more_results_than_the_window_are_held(self):
        async with self.connect(window=4) as bus, bus.handler("window") as handler:
            came = asyncio.Queue()

            async def one(n):
                came.put_nowait(await handler.fetch(f"{self.url}/bytes/70000?seed={n}"))

            tasks = [asyncio.create_task(one(n)) for n in range(10)]
            for count in (4, 4, 2):
                held = [await came.get() for _ in range(count)]
                await bus.ping()
                self.assertTrue(came.empty(), "the window is full")
                for result in held:
                    self.assertEqual(len(result.read()), 70_000)
            await asyncio.gather(*tasks)

    @timed
    async def test_what_is_forgotten_makes_room(self):
        async with self.connect(window=1) as bus, bus.handler("forgetful") as handler:
            for n in range(5):
                self.assertIsNotNone((await handler.fetch(f"{self.url}/bytes/70000?seed=f{n}")).path)

    @timed
    async def test_what_a_watch_has_not_taken_fills_it_for_all(self):
        async with self.connect(window=2) as bus, self.connect() as other, bus.watch("slow/") as watch:
            await bus.ping()
            async with other.handler("slow/1") as theirs, bus.handler("mine") as mine:
                for size in (1, 2):
                    await theirs.fetch(f"{self.url}/bytes/{size}?slow")
                while len(watch._queue._items) < 2:
                    await asyncio.sleep(0)
                transfer = mine.start(f"{self.url}/bytes/3?slow")
                while (await transfer.why()).get("waits-for") != "window":
                    pass
                self.assertEqual([(await anext(watch)).length for _ in range(2)], [1, 2])
                self.assertEqual((await transfer).length, 3)


class QuestionTests(BusTestCase):
    @timed
    async def test_status_why_and_set(self):
        async with self.connect() as bus, bus.handler("asked") as handler:
            status = await bus.status()
            self.assertEqual((status["broker"], status["phase"]), (bus.broker, "serving"))
            held = [handler.start(f"{self.url}/stall/{n}", priority="low") for n in range(80, 90)]
            await self.in_thread(self.origin.await_running, 5)  # Of 6, one slot is reserved for priority high.
            self.assertEqual((await held[-1].why())["waits-for"], "origin")
            self.assertEqual((await bus.why("asked", held[-1].request))["class"], "low")
            held[-1].set_priority("background")
            self.assertEqual((await held[-1].why())["class"], "background")
            self.assertEqual(await bus.set("origin-limit", 10), "origin-limit 10")
            self.assertEqual({row["name"]: row["value"] for row in await bus.settings()}["origin-limit"], "10")
            with self.assertRaises(earshot_bus.Refused) as caught:
                await bus.set("origin-limit", 0)
            self.assertEqual(caught.exception.code, "bad-setting")
            with self.assertRaises(earshot_bus.Refused):
                await bus.query("nonsense")
            with self.assertRaises(ValueError):
                await bus.set("origin limit", 1)
            await bus.ping()


class StoppedBrokerTests(BusTestCase):
    @timed
    async def test_a_broker_that_reads_nothing_holds_up_neither_the_loop_nor_what_it_is_asked_for(self):
        async with self.connect() as bus, bus.handler("stopped") as handler:
            os.kill(self.bus.broker, signal.SIGSTOP)
            try:
                # More than the socket's buffer holds.
                transfers = [handler.start(f"{self.url}/bytes/9?{'x' * 8000}") for _ in range(500)]
                while not bus._link.is_full:
                    await asyncio.sleep(0)
            finally:
                os.kill(self.bus.broker, signal.SIGCONT)
            self.assertEqual({(await transfer).read() for transfer in transfers}, {body(9)})
            self.assertFalse(bus._link.is_full)

    @timed
    async def test_it_does_not_hold_up_who_leaves(self):
        async with self.connect() as observer:
            async with self.connect() as bus:
                handler = await bus.handler("leaves").__aenter__()
                os.kill(self.bus.broker, signal.SIGSTOP)
                try:
                    transfer = handler.start(f"{self.url}/bytes/8?{'x' * 8000}")
                    for _ in range(500):
                        handler.start(f"{self.url}/bytes/8?{'x' * 8000}")
                    while not bus._link.is_full:
                        await asyncio.sleep(0)
                    bus._close()
                    with self.assertRaises(earshot_bus.Closed):
                        await transfer
                finally:
                    os.kill(self.bus.broker, signal.SIGCONT)
            while (await observer.query("ledger"))["requests"]["pending"]:
                await asyncio.sleep(0)


class PlayedBrokerTests(unittest.IsolatedAsyncioTestCase):
    @timed
    async def test_all_that_is_asked_for_leaves_though_nothing_comes_back(self):
        with Played() as broker:
            broker.listen()
            welcome = asyncio.create_task(asyncio.to_thread(broker.welcome))
            async with earshot_bus.connect(broker.runtime) as bus:
                await welcome
                handler = await bus.handler("silent").__aenter__()
                transfers = [handler.start(f"http://x/{'x' * 8000}") for _ in range(500)]
                while not bus._link.is_full:
                    await asyncio.sleep(0)
                terminals = await asyncio.to_thread(broker.receive, len(transfers))
                self.assertEqual([head.split()[2].decode() for head, in terminals], [t.request for t in transfers])

    @timed
    async def test_a_broker_that_is_not_there_yet_is_looked_for_again(self):
        with Played() as broker:
            bus = earshot_bus.connect(broker.runtime)
            entering = asyncio.create_task(bus.__aenter__())
            while not hasattr(bus, "_folder") or bus._obstacle is None:
                await asyncio.sleep(0)
            broker.listen()
            await asyncio.to_thread(broker.welcome)
            await entering
            self.assertEqual(bus.broker, "0000000000000001")
            bus._close()


class RestartTests(BusTestCase):
    @timed
    async def test_200_open_requests_outlive_the_broker(self):
        async with self.connect() as bus, self.connect() as listener, bus.handler("restart") as handler, \
                listener.watch("restart") as watch:
            await listener.ping()
            before = await handler.fetch(f"{self.url}/bytes/100000?seed=before")
            self.assertEqual((await anext(watch)).request, before.request)
            first = bus.broker
            tasks = [asyncio.create_task(handler.fetch(f"{self.url}/gate/restart?bytes=900&seed={n}"))
                     for n in range(200)]
            await self.in_thread(self.origin.await_running, 5)
            await self.in_thread(kill, self.bus.broker)
            question = asyncio.create_task(bus.status())
            await listener.ping()  # The next broker has received the subscription.
            self.origin.open_gate("restart")
            results = await asyncio.gather(*tasks)
            self.assertEqual([result.body for result in results], [body(900, str(n)) for n in range(200)])
            self.assertNotEqual(bus.broker, first)
            self.assertEqual((await question)["broker"], bus.broker)
            self.assertTrue(before.read() == body(100_000, "before"), "what was held of the dead broker can be read")
            self.assertEqual((await handler.fetch(f"{self.url}/bytes/5")).read(), body(5))
            requests = [(await anext(watch)).request for _ in range(201)]
            self.assertEqual(len(set(requests)), 201, "the watch came back too, and each is told once")
            ledger = await bus.query("ledger")
            check_ledgers(ledger)
            self.assertEqual(ledger["requests"]["pending"], 0)

    @timed
    async def test_one_that_waits_and_says_nothing_notices_the_next_broker(self):
        async with self.connect() as bus, bus.handler("quiet") as handler:
            task = asyncio.create_task(handler.fetch(f"{self.url}/gate/quiet?bytes=8"))
            await self.in_thread(self.origin.await_count, "/gate/quiet", 1)
            await self.in_thread(kill, self.bus.broker)
            # The next broker fetches it again.
            self.origin.open_gate("quiet")
            self.assertEqual((await task).read(), body(8))

    @timed
    async def test_a_handler_can_be_left_while_there_is_no_broker(self):
        async with self.connect() as bus:
            async with bus.handler("gone") as handler:
                task = asyncio.create_task(handler.fetch(f"{self.url}/gate/gone"))
                await self.in_thread(self.origin.await_count, "/gate/gone", 1)
                kill(self.bus.broker)
            with self.assertRaises(earshot_bus.FetchFailed):
                await task
            await bus.ping()
            self.assertEqual((await bus.status())["requests"]["pending"], 0)
