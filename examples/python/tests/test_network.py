"""Tests of `connect("tcp://…")`: a bus behind an independent relay with CURVE, made with pyzmq."""

import asyncio
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import earshot_bus
import earshot_bus.blocking
from earshot_bus._network import LOYAL, Bus, Buses, find
from earshot_bus._pulling import NETWORK_READS, PIECE_BYTES
from fixture import PACKAGE, BusTestCase, environment, timed
from support.harness import Bus as LocalBus
from support.harness import check_ledgers
from support.origin import body
from support.relay import Keys, Relay


class NetworkTestCase(BusTestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.relay = cls.enterClassContext(Relay(cls.bus.runtime, cls.bus.folder))

    def options(self, **more):
        keys = self.relay.keys
        return {"key": keys.client_file, "server_key": keys.server_public, **more}

    def connect(self, address=None, **options):
        return earshot_bus.connect(address or self.relay.address, **self.options(**options))

    def ledger(self):
        with earshot_bus.blocking.connect(self.bus.runtime) as bus:
            found = bus.query("ledger")
        check_ledgers(found)
        return found

    async def settled(self, **requests):
        """Waits until counts of the bus's requests match."""
        while True:
            found = (await asyncio.to_thread(self.ledger))["requests"]
            if all(found[name] == value for name, value in requests.items()):
                return
            await asyncio.sleep(0.01)


class NetworkTests(NetworkTestCase):
    @timed
    async def test_bodies_of_all_sizes_arrive(self):
        sizes = [0, 10, 65_536, 65_537, 3_000_000]
        async with self.connect() as bus, bus.handler() as handler:
            results = await asyncio.gather(*(handler.fetch(f"{self.url}/bytes/{size}") for size in sizes))
            self.assertEqual([result.read() for result in results], [body(size) for size in sizes])
            await bus.ping()
            self.assertEqual(bus._parts, {})
        self.ledger()

    @timed
    async def test_threads_share_a_bus_on_a_network(self):
        with earshot_bus.blocking.connect(self.relay.address, **self.options()) as bus, bus.handler() as handler:
            transfers = [handler.start(f"{self.url}/bytes/{70_000 + number}") for number in range(20)]
            found = [await asyncio.to_thread(transfer.result) for transfer in transfers]
            self.assertEqual([result.read() for result in found], [body(70_000 + number) for number in range(20)])

    @timed
    async def test_variables_select_the_bus(self):
        with mock.patch.dict(os.environ, self.relay.variables()):
            async with earshot_bus.connect() as bus, bus.handler() as handler:
                self.assertEqual((await handler.fetch(f"{self.url}/bytes/5")).read(), body(5))
            self.assertIsNone(find(self.bus.runtime, None, None), "a directory selects the bus of this machine")

    @timed
    async def test_the_second_bus_serves_while_the_first_cannot_be_reached(self):
        async with self.connect(["tcp://127.0.0.1:1", self.relay.address]) as bus, bus.handler() as handler:
            self.assertEqual((await handler.fetch(f"{self.url}/bytes/5")).read(), body(5))

    @timed
    async def test_a_killed_relay_loses_and_doubles_nothing(self):
        before = self.origin.total
        async with self.connect() as bus, bus.handler() as handler:
            async def one(number):
                return (await handler.fetch(f"{self.url}/bytes/{300_000 + number}")).read()
            tasks = [asyncio.create_task(one(number)) for number in range(60)]
            for done in (5, 25):
                while sum(task.done() for task in tasks) < done:
                    await asyncio.sleep(0.001)
                await asyncio.to_thread(self.restart)
            self.assertEqual(await asyncio.gather(*tasks), [body(300_000 + number) for number in range(60)])
        self.assertEqual(self.origin.total, before + 60, "no URL was fetched twice")

    def restart(self):
        self.relay.kill()
        self.relay.start()

    @timed
    async def test_reading_goes_on_at_its_offset(self):
        size = 4 * NETWORK_READS * PIECE_BYTES  # A quarter arrives before the end, and another quarter may be on its way.
        async with self.connect() as bus, bus.handler() as handler:
            transfer = handler.start(f"{self.url}/bytes/{size}")
            while sum(os.fstat(part.fileno()).st_size for part in bus._parts.values()) < size // 4:
                await asyncio.sleep(0)
            self.relay.kill()  # Here, not in a thread: the client must not read on before the relay has ended.
            while bus._link is not None:
                await asyncio.sleep(0.001)
            pull, = bus._core._pulls.all()
            self.assertLess(pull.missing, size - size // 8)
            await asyncio.to_thread(self.relay.start)
            self.assertEqual((await transfer).read(), body(size))

    @timed
    async def test_the_end_of_the_program_ends_its_requests_at_once(self):
        script = ("import earshot_bus.blocking, sys\n"
                  "with earshot_bus.blocking.connect() as bus, bus.handler() as handler:\n"
                  "    handler.start(sys.argv[1])\n    bus.ping()\n")
        url = f"{self.url}/gate/{id(self)}"
        subprocess.run([sys.executable, "-c", script, url], env=environment(**self.relay.variables()), check=True, timeout=20)
        await self.settled(pending=0)

    @timed
    async def test_a_killed_program_keeps_its_requests_for_its_lease(self):
        script = ("import earshot_bus.blocking, os, sys\n"
                  "bus = earshot_bus.blocking.connect(**eval(sys.argv[2])).__enter__()\n"
                  "handler = bus.handler(sys.argv[3]).__enter__()\nhandler.start(sys.argv[1])\nbus.ping()\nos.kill(os.getpid(), 9)\n")
        for name, options in (("killed/usual", "{}"), ("killed/short", "{'lease': 0.05}")):
            subprocess.run([sys.executable, "-c", script, f"{self.url}/gate/{name[7:]}", options, name],
                           env=environment(**self.relay.variables()), timeout=20)
        with earshot_bus.blocking.connect(self.bus.runtime) as bus:
            def pending():
                return [row["handler"] for row in bus.query("handlers")["handlers"] if row["requests"]["pending"]]
            while "killed/short" in pending():
                await asyncio.sleep(0.01)
            self.assertIn("killed/usual", pending())
            bus.remove("killed/")

    @timed
    async def test_a_child_closes_its_copy(self):
        script = ("import earshot_bus.blocking, os, sys\n"
                  "with earshot_bus.blocking.connect() as bus, bus.handler() as handler:\n"
                  "    bus.ping()\n"
                  "    child = os.fork()\n"
                  "    if not child:\n"
                  "        try:\n            bus.ping()\n"
                  "        except earshot_bus.Closed:\n            os._exit(7)\n        os._exit(0)\n"
                  "    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
                  "    assert code == 7, code\n"
                  "    assert len(handler.fetch(sys.argv[1]).read()) == 70000\n")
        subprocess.run([sys.executable, "-c", "import earshot_bus\n" + script, f"{self.url}/bytes/70000"],
                       env=environment(**self.relay.variables()), check=True, timeout=20)


    def test_the_readme_fetches(self):
        [code] = [code for code in re.findall(r"^```python\n(.*?)^```$", (PACKAGE / "README.md").read_text(), re.M | re.S)
                  if "tcp://" in code]
        code = code.replace("tcp://bus.example.org:5765", self.relay.address).replace(
            "https://example.org/", f"{self.url}/bytes/70000")
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(self.relay.keys.client_file, f"{folder}/me.key")
            shutil.copy(self.relay.keys.server_file, f"{folder}/bus.pub")
            subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment(), check=True, timeout=20)
            self.assertEqual(pathlib.Path(folder, "page").read_bytes(), body(70_000))


class DrainTests(NetworkTestCase):
    """A bus of two that drains while a transfer runs. It would wait an hour for the end of the transfer."""

    def setUp(self):
        self.ending = self.enterContext(LocalBus(workers=1, arguments=["--drain-seconds", "3600"]))
        first = self.enterContext(Relay(self.ending.runtime, self.ending.folder, keys=self.relay.keys))
        self.addresses = [first.address, self.relay.address]
        self.path = f"/gate/{self.id()}?bytes=1000"

    def stop(self):
        """Stops the bus with the transfer, and opens the gate once another bus has requested the URL."""
        self.origin.await_count(self.path, 1)
        self.ending.program.signal(signal.SIGTERM)
        self.assertEqual(self.ending.program.wait(), 0, self.ending.program.describe())
        self.origin.await_count(self.path, 2)
        self.origin.open_gate(self.id())

    @timed
    async def test_a_bus_that_drains_is_left_before_its_transfers_end(self):
        async with self.connect(self.addresses) as bus, bus.handler() as handler:
            transfer = handler.start(f"{self.url}{self.path}")
            await self.in_thread(self.stop)
            self.assertEqual((await transfer).read(), body(1_000))

    @timed
    async def test_a_program_with_threads_leaves_it_too(self):
        with earshot_bus.blocking.connect(self.addresses, **self.options()) as bus, bus.handler() as handler:
            transfer = handler.start(f"{self.url}{self.path}")
            result = self.in_thread(transfer.result)
            _, found = await asyncio.gather(self.in_thread(self.stop), result)
            self.assertEqual(found.read(), body(1_000))

    @timed
    async def test_a_bus_without_another_one_is_not_left(self):
        async with self.connect(self.addresses[0]) as bus, bus.handler() as handler:
            transfer = handler.start(f"{self.url}{self.path}")
            await self.in_thread(self.origin.await_count, self.path, 1)
            self.ending.program.signal(signal.SIGTERM)
            while not bus._core.draining:
                await asyncio.sleep(0.001)
            self.assertIsNone(bus._reopening)
            self.origin.open_gate(self.id())
            self.assertEqual((await transfer).read(), body(1_000))


class MistakeTests(NetworkTestCase):
    async def refused(self, part, error=earshot_bus.NoBroker, address=None, **options):
        for connect in (self.in_asyncio, self.in_thread_form):
            with self.assertRaisesRegex(error, part):
                await connect(address or self.relay.address, **self.options(**options))

    async def in_asyncio(self, address, **options):
        async with earshot_bus.connect(address, **options):
            pass

    async def in_thread_form(self, address, **options):
        def enter():
            with earshot_bus.blocking.connect(address, **options):
                pass
        await asyncio.to_thread(enter)

    @timed
    async def test_mistakes_are_told_with_a_next_step(self):
        keys = self.relay.keys
        await self.refused("has not authorized the key", key=keys.new("other"))
        await self.refused("compare the server key", server_key=keys.public(keys.client_file))
        await self.refused("no bus answers at tcp://127.0.0.1:1", address="tcp://127.0.0.1:1", timeout=0.2)
        import zmq
        with zmq.Context.instance().socket(zmq.ROUTER) as plain:
            port = plain.bind_to_random_port("tcp://127.0.0.1")
            await self.refused("no bus with encryption|rejects the handshake", address=f"tcp://127.0.0.1:{port}")
        for address in ("tcp://127.0.0.1", "tcp://:5765", "tcp://a:0", "tcp://a:65536", "tcp://a/b:1"):
            await self.refused("use tcp://HOST:PORT", ValueError, address=address)
        await self.refused("earshot key new", ValueError, key=None)
        await self.refused("server keys", ValueError, server_key=None)
        await self.refused("neither a key", ValueError, server_key="short")
        await self.refused("No such file", key="/none")
        open_key = keys.new("open")
        open_key.chmod(0o640)
        await self.refused("chmod 600", key=open_key)
        with self.assertRaisesRegex(ValueError, "keys are for a bus on a network"):
            earshot_bus.connect(self.bus.runtime, key=keys.client_file)

    def test_a_missing_pyzmq_is_told_and_a_local_bus_needs_none(self):
        script = ("import sys; sys.modules['zmq'] = None\nimport earshot_bus.blocking\n"
                  "with earshot_bus.blocking.connect(sys.argv[1]) as bus: bus.ping()\n"
                  "try: earshot_bus.blocking.connect(sys.argv[2])\n"
                  "except earshot_bus.NoBroker as error: assert 'pip install pyzmq' in str(error), error\n"
                  "else: raise AssertionError\n")
        subprocess.run([sys.executable, "-c", script, str(self.bus.runtime), self.relay.address],
                       env=environment(EARSHOT_BUS_KEY=self.relay.keys.client_file,
                                       EARSHOT_SERVER_KEY=self.relay.keys.server_public), check=True, timeout=20)

    def test_a_local_bus_does_not_import_pyzmq(self):
        script = ("import earshot_bus.blocking, sys\nwith earshot_bus.blocking.connect(sys.argv[1]) as bus: bus.ping()\n"
                  "assert 'zmq' not in sys.modules\n")
        subprocess.run([sys.executable, "-c", script, str(self.bus.runtime)], env=environment(), check=True, timeout=20)


class BusesTests(unittest.TestCase):
    """The choice between several buses, without connections."""

    def buses(self, count=3):
        return Buses([Bus("host", 1 + number, "p", "s", "k") for number in range(count)])

    def test_a_lost_bus_is_tried_first_for_some_seconds(self):
        buses = self.buses()
        buses.connected()
        for moment in (0.0, 1.0, LOYAL - 0.1):
            buses.failed("lost", moment)
            self.assertEqual(buses.current.port, 1)
        buses.failed("unreachable", LOYAL)
        self.assertEqual(buses.current.port, 2)
        buses.failed("unreachable", LOYAL + 1)
        buses.connected()
        self.assertEqual((buses.current.port, buses.failures), (3, 0))

    def test_a_bus_that_drains_is_not_tried_again_first(self):
        buses = self.buses(2)
        buses.connected()
        buses.drained()
        buses.failed("lost", 1.0)
        self.assertEqual(buses.current.port, 2)
        self.assertTrue(buses.has_others)
        self.assertFalse(self.buses(1).has_others)

    def test_pauses_grow_to_their_bound_and_are_spread(self):
        buses = self.buses(1)
        pauses = [buses.failed("unreachable", 0) for _ in range(20)]
        self.assertLessEqual(pauses[0], 0.05)
        self.assertTrue(all(1 <= pause <= 2 for pause in pauses[6:]), pauses)
        self.assertGreater(len(set(pauses[6:])), 3)

    def test_a_refused_key_ends_the_search_if_no_other_bus_is_left(self):
        buses = self.buses(2)
        buses.failed("refused", 0)
        for _ in range(3):
            self.assertEqual(buses.current.port, 2)
            buses.failed("unreachable", 0)
        with self.assertRaisesRegex(earshot_bus.NoBroker, "has not authorized"):
            buses.failed("refused", 0)

    def test_a_bus_that_answered_may_fail_handshakes(self):
        buses = self.buses(1)
        buses.connected()
        for _ in range(10):
            buses.failed("handshake-failed", 0)
        fresh = self.buses(1)
        fresh.failed("handshake-failed", 0)
        fresh.failed("handshake-failed", 0)
        with self.assertRaisesRegex(earshot_bus.NoBroker, "server key"):
            fresh.failed("handshake-failed", 0)

    def test_a_bus_does_not_show_its_secret_key(self):
        self.assertNotIn("secret", repr(Bus("host", 1, "public", "secret", "server")))

    def test_keys_are_read_from_files(self):
        with tempfile.TemporaryDirectory() as folder:
            keys = Keys(folder)
            found = find("tcp://a:1,tcp://[::1]:2", keys.client_file, f"{keys.server_file},{keys.server_public}")
            self.assertEqual([str(bus) for bus in found._buses], ["tcp://a:1", "tcp://[::1]:2"])
            self.assertEqual({bus.server_key for bus in found._buses}, {keys.server_public})
            shown = pathlib.Path(folder, "shown")
            shown.write_text(f"{keys.server_public}\n")
            self.assertEqual(find("tcp://a:1", keys.client_file, str(shown))._buses[0].server_key, keys.server_public)
            pathlib.Path(folder, "bad").write_text("public-key = 'x'\n")
            with self.assertRaisesRegex(earshot_bus.NoBroker, "no public-key"):
                find("tcp://a:1", keys.client_file, f"{folder}/bad")
