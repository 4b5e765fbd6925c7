"""Tests of workers with a real bus, and of the thumbnail worker as a user runs it."""

import asyncio
import contextlib
import hashlib
import io
import os
import signal
import threading
import unittest

import earshot_bus
import earshot_bus.worker
from earshot_bus.worker import Answer, JobFailed, Worker
from fixture import PACKAGE, PROGRAMS, BusTestCase, environment, timed
from played import Played
from support.harness import PYTHON
from support.processes import Program


class WorkerTestCase(BusTestCase):
    @contextlib.asynccontextmanager
    async def serving(self, function, *schemes, slots=4):
        worker = Worker(function, schemes, slots, self.bus.runtime)
        running = asyncio.create_task(worker.run())
        while not hasattr(worker, "registered"):
            await asyncio.sleep(0)
        await worker.registered.wait()
        try:
            yield worker
        finally:
            worker.stop()
            await running


class WorkerTests(WorkerTestCase):
    @timed
    async def test_a_coroutine_makes_what_a_url_stands_for(self):
        async def shout(job):
            return Answer(job.url.encode().upper(), (("content-type", "text/plain"), ("x-class", job.priority)))

        async with self.serving(shout, "shout"), self.connect() as bus, bus.handler() as handler:
            result = await handler.fetch("shout:hello", priority="high")
            self.assertEqual(result.read(), b"SHOUT:HELLO")
            self.assertEqual((result.header("content-type"), result.header("x-class")), ("text/plain", "high"))

    @timed
    async def test_a_plain_function_runs_in_a_thread(self):
        main = threading.get_ident()

        def where(job):
            return b"elsewhere" if threading.get_ident() != main else b"here"

        async with self.serving(where, "where"), self.connect() as bus, bus.handler() as handler:
            self.assertEqual((await handler.fetch("where:am-i")).read(), b"elsewhere")

    @timed
    async def test_large_bodies_go_through_the_spool(self):
        data = os.urandom(300_000)

        async def large(job):
            return data

        async with self.serving(large, "large"), self.connect() as bus, bus.handler() as handler:
            result = await handler.fetch("large:1", sha256=hashlib.sha256(data).hexdigest())
            self.assertIsNotNone(result.path)
            self.assertEqual(result.read(), data)

    @timed
    async def test_requests_for_the_same_are_one_job(self):
        calls = []
        gate = asyncio.Event()

        async def count(job):
            calls.append(job.url)
            await gate.wait()
            return b"once"

        async with self.serving(count, "count"), self.connect() as bus, contextlib.AsyncExitStack() as stack:
            handlers = [await stack.enter_async_context(bus.handler()) for _ in range(50)]
            transfers = [handler.start("count:one") for handler in handlers]
            while (await bus.status())["flights"]["joined"] < 49:
                pass
            gate.set()
            for transfer in transfers:
                self.assertEqual((await transfer).read(), b"once")
        self.assertEqual(calls, ["count:one"])

    @timed
    async def test_what_nobody_wants_any_more_is_cancelled(self):
        began, ended = asyncio.Event(), asyncio.Event()

        async def endless(job):
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.assertTrue(job.is_cancelled)
                ended.set()

        async with self.serving(endless, "endless"), self.connect() as bus:
            async with bus.handler() as handler:
                handler.start("endless:1")
                await began.wait()
            await ended.wait()

    @timed
    async def test_a_failure_has_the_workers_words(self):
        async def refuse(job):
            if job.url.endswith("known"):
                raise JobFailed("later perhaps", code="timeout")
            raise JobFailed("no such thing\nhere")

        async with self.serving(refuse, "refuse"), self.connect() as bus, bus.handler() as handler:
            with self.assertRaises(earshot_bus.FetchFailed) as caught:
                await handler.fetch("refuse:1")
            self.assertEqual((caught.exception.code, caught.exception.detail), ("worker-failed", "no such thing?here"))
            with self.assertRaises(earshot_bus.FetchFailed) as caught:
                await handler.fetch("refuse:known", retries=1)
            self.assertEqual((caught.exception.code, caught.exception.attempts), ("timeout", 2))

    @timed
    async def test_what_a_function_should_not_raise_ends_its_job_alone(self):
        async def broken(job):
            return 1 / 0

        async with self.serving(broken, "broken"), self.connect() as bus, bus.handler() as handler:
            with self.assertLogs("earshot_bus.worker"):
                for _ in range(2):
                    with self.assertRaises(earshot_bus.FetchFailed) as caught:
                        await handler.fetch("broken:1")
                    self.assertEqual(caught.exception.code, "worker-failed")

    @timed
    async def test_progress_is_told(self):
        reported = asyncio.Event()
        progresses = []

        async def slow(job):
            job.report(5, 10)
            await reported.wait()
            return b"0123456789"

        def note(progress):
            progresses.append(progress)
            reported.set()

        async with self.serving(slow, "slow"), self.connect() as bus, bus.handler() as handler:
            await handler.fetch("slow:1", on_progress=note, progress_ms=50)
        self.assertEqual(progresses[0], (5, 10))

    @timed
    async def test_two_pools_side_by_side_have_slots_of_their_own(self):
        gate = asyncio.Event()

        async def held(job):
            await gate.wait()
            return b"held"

        async def quick(job):
            return b"quick"

        async with self.serving(held, "held", slots=1), self.serving(quick, "quick", slots=1), self.connect() as bus:
            async with bus.handler() as handler:
                waiting = [handler.start(f"held:{n}") for n in range(3)]
                for number in range(20):
                    self.assertEqual((await handler.fetch(f"quick:{number}")).read(), b"quick")
                gate.set()
                for transfer in waiting:
                    self.assertEqual((await transfer).read(), b"held")

    @timed
    async def test_a_scheme_without_a_worker_is_refused(self):
        async with self.connect() as bus, bus.handler() as handler:
            with self.assertRaises(earshot_bus.FetchFailed) as caught:
                await handler.fetch("nobody:1")
            self.assertEqual(caught.exception.code, "unsupported-scheme")

    @timed
    async def test_http_is_not_for_anybody_to_register(self):
        worker = Worker(lambda job: b"", ["https"], 1, self.bus.runtime)
        with self.assertLogs("earshot_bus.worker"), self.assertRaises(earshot_bus.Refused) as caught:
            await worker.run()
        self.assertEqual(caught.exception.code, "not-a-child")


class PlayedBrokerTests(unittest.IsolatedAsyncioTestCase):
    @timed
    async def test_a_broker_that_is_not_there_yet_is_looked_for_again_and_all_is_said_to_one_that_reads_late(self):
        body = os.urandom(1_000_000)

        async def large(job):
            return body

        with Played() as broker:
            worker = Worker(large, ["large"], 1, broker.runtime)
            running = asyncio.create_task(worker.run())
            while not hasattr(worker, "registered"):
                await asyncio.sleep(0)
            broker.listen("work")
            [head] = await asyncio.to_thread(broker.accept)
            self.assertTrue(head.startswith(b"READY EARW/1\n"))
            broker.send(b"LIMITS\nspool: /nowhere\ninline-bytes: 2000000\n")
            broker.send(b"JOB b.1.1 large:1\n")
            while worker._link is None or not worker._link.is_full:
                await asyncio.sleep(0)
            [(head, made)] = await asyncio.to_thread(broker.receive, 1)
            self.assertTrue(head.startswith(b"DONE b.1.1 200\n"))
            self.assertTrue(made == body)
            broker.send(b"DRAIN\n")
            broker.send(b"PING\n")
            self.assertEqual(await asyncio.to_thread(broker.receive, 1), [[b"PONG\n"]])
            self.assertFalse(running.done(), "a broker that ends does not end the worker")
            worker.stop()
            self.assertEqual(await asyncio.to_thread(broker.receive, 1), [[b"BYE\n"]])
            await running

    @timed
    async def test_a_job_that_is_cancelled_before_it_has_begun_is_answered_and_gives_its_slot_back(self):
        async def never(job):
            self.fail(f"{job.url} was begun after it was cancelled")

        with Played() as broker:
            broker.listen("work")
            worker = Worker(never, ["never"], 1, broker.runtime)
            running = asyncio.create_task(worker.run())
            await asyncio.to_thread(broker.accept)
            # The worker reads both messages together.
            broker.send_all(b"LIMITS\nspool: /nowhere\ninline-bytes: 1\n", b"JOB b.1.1 never:1\n", b"CANCEL b.1.1\n")
            self.assertEqual(await asyncio.to_thread(broker.receive, 1), [[b"FAILED b.1.1 cancelled\n"]])
            worker.stop()
            self.assertEqual(await asyncio.to_thread(broker.receive, 1), [[b"BYE\n"]])
            await running


class Pictures:
    """Server that sends pictures only after all of them were requested, and counts the requests."""

    def __init__(self, data, wanted):
        self._data = data
        self._wanted = wanted
        self._all = asyncio.Event()
        self.served = 0

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self._server.close()

    def open(self):
        self._all.set()

    async def _serve(self, reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        await self._all.wait()
        self.served += 1
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncache-control: no-store\r\ncontent-length: %d\r\n\r\n"
                     % len(self._data) + self._data)
        await writer.drain()
        writer.close()


class ThumbnailTests(WorkerTestCase):
    @timed
    async def test_200_clients_and_20_thumbnails_are_20_computations(self):
        from PIL import Image
        picture = io.BytesIO()
        Image.new("RGB", (640, 480), (200, 30, 30)).save(picture, "PNG")
        # A quarter of the slots is reserved for priority high.
        program = Program(
            [PYTHON, "-m", "earshot_bus.worker", "thumbnail_worker:thumbnail", "--scheme", "thumb", "--slots", "28"],
            environment(EARSHOT_RUNTIME=self.bus.runtime, PYTHONPATH=f"{PACKAGE}:{PROGRAMS}"))
        async with Pictures(picture.getvalue(), 20) as pictures, contextlib.AsyncExitStack() as stack:
            monitor = await stack.enter_async_context(self.connect())
            while not any("thumb" in worker["schemes"] for worker in (await monitor.status())["workers"]):
                await asyncio.sleep(0)
            before = await monitor.status()
            transfers = []
            for number in range(200):
                bus = await stack.enter_async_context(self.connect())
                handler = await stack.enter_async_context(bus.handler())
                transfers.append(handler.start(f"thumb:96/{pictures.url}/{number % 20}.png"))
            while (await monitor.status())["requests"]["submitted"] < before["requests"]["submitted"] + 220:
                await asyncio.sleep(0)
            pictures.open()
            for transfer in transfers:
                with Image.open(io.BytesIO((await transfer).read())) as small:
                    self.assertEqual((small.format, small.size), ("WEBP", (96, 72)))
            self.assertEqual(pictures.served, 20)
            after = await monitor.status()
            # One flight for each thumbnail, and one for each picture.
            self.assertEqual(after["flights"]["started"] - before["flights"]["started"], 40)
        program.signal(signal.SIGTERM)
        self.assertEqual(await self.in_thread(program.wait, 60), 0)
        self.assertEqual(program.stderr, "")

    @timed
    async def test_what_is_no_picture_is_said_so(self):
        program = Program([PYTHON, "-m", "earshot_bus.worker", "thumbnail_worker:thumbnail", "--scheme", "thumb"],
                          environment(EARSHOT_RUNTIME=self.bus.runtime, PYTHONPATH=f"{PACKAGE}:{PROGRAMS}"))
        async with self.connect() as bus, bus.handler() as handler:
            while not any("thumb" in worker["schemes"] for worker in (await bus.status())["workers"]):
                await asyncio.sleep(0)
            for url, words in ((f"thumb:96/{self.url}/bytes/500", "the response is not a picture"),
                               (f"thumb:96/{self.url}/status/404", "the picture could not be fetched: http-status")):
                with self.assertRaises(earshot_bus.FetchFailed) as caught:
                    await handler.fetch(url)
                self.assertEqual(caught.exception.detail, words)
            with self.assertRaises(earshot_bus.FetchFailed) as caught:
                await handler.fetch("thumb:large")
            self.assertEqual(caught.exception.code, "malformed-url")
        program.signal(signal.SIGTERM)
        self.assertEqual(await self.in_thread(program.wait, 60), 0)
