"""Tests of the blocking form: the reader, work without a caller that waits, and interrupts."""

import contextlib
import os
import select
import signal
import threading
import time
from unittest import mock

import earshot_bus
import earshot_bus.blocking
from earshot_bus import _folders, _shell, _threads
from fixture import BusTestCase
from played import Played
from support.harness import check_ledgers
from support.origin import body
from support.processes import eventually, kill


def in_thread(call, *arguments):
    """Calls a function in another thread. Returns a function that returns its value or raises its exception."""
    ends = []

    def run():
        try:
            ends.append((call(*arguments), None))
        except BaseException as error:
            ends.append((None, error))
    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def end():
        thread.join(60)
        [(value, error)] = ends
        if error is not None:
            raise error
        return value
    return end


class ThreadsTestCase(BusTestCase):
    def open(self, **options):
        return earshot_bus.blocking.connect(self.bus.runtime, **options)


class ReadingTests(ThreadsTestCase):
    def test_who_waits_on_reads_when_the_one_who_read_has_its_answer(self):
        with self.open() as bus, bus.handler("turns") as handler:
            for turn in range(4):
                gates = [f"turn{turn}-{number}" for number in range(3)]
                transfers = [handler.start(f"{self.url}/gate/{gate}") for gate in gates]
                ends = []
                for transfer in transfers:
                    ends.append(in_thread(transfer.result))
                    eventually(lambda wanted=len(ends): (bus._reader is _threads.Reader.CALLER) +
                               len(bus._followers) == wanted, "it waits")
                order = list(zip(gates, ends))
                for left, (gate, end) in enumerate(order if turn % 2 else reversed(order), start=1):
                    self.origin.open_gate(gate)
                    self.assertEqual(end().read(), body(100))
                    if left < len(order):
                        eventually(lambda: bus._reader is _threads.Reader.CALLER, "another caller reads")

    def test_a_time_out_of_one_is_not_one_of_the_others(self):
        with self.open() as bus, bus.handler("patience") as handler:
            slow = handler.start(f"{self.url}/gate/patience")
            first = in_thread(slow.result)
            eventually(lambda: bus._reader is _threads.Reader.CALLER, "it waits")
            with self.assertRaises(TimeoutError):
                slow.result(0.01)
            second = in_thread(slow.result)
            self.origin.open_gate("patience")
            self.assertIs(first(), second())

    def test_a_time_out_is_kept_also_when_the_broker_reads_nothing(self):
        with self.open() as bus, bus.handler("stopped") as handler:
            os.kill(self.bus.broker, signal.SIGSTOP)
            try:
                # More than the socket's buffer holds.
                transfers = [handler.start(f"{self.url}/bytes/9?{'x' * 8000}") for _ in range(500)]
                with self.assertRaises(TimeoutError):
                    transfers[0].result(0.05)
                self.assertTrue(bus._link.is_full)
            finally:
                os.kill(self.bus.broker, signal.SIGCONT)
            self.assertEqual({transfer.result(60).read() for transfer in transfers}, {body(9)})

    def test_all_that_is_asked_for_leaves_though_nothing_comes_back(self):
        with Played() as broker:
            broker.listen()
            welcome = in_thread(broker.welcome)
            with earshot_bus.blocking.connect(broker.runtime) as bus:
                welcome()
                handler = bus.handler("silent").__enter__()
                transfers = [handler.start(f"http://x/{'x' * 8000}") for _ in range(500)]
                waiting = in_thread(transfers[0].result)
                eventually(lambda: bus._link.is_full, "the kernel takes no more")
                messages = broker.receive(len(transfers))
                self.assertEqual([head.split()[2].decode() for head, in messages], [t.request for t in transfers])
            with self.assertRaises(earshot_bus.Closed):
                waiting()

    def test_what_is_asked_for_while_another_waits_leaves_at_once(self):
        # The background thread would send it later.
        self.enterContext(mock.patch.multiple(_threads, REST=1000, LONG_REST=1000))
        with self.open() as bus, bus.handler("at-once") as handler:
            waiting = in_thread(handler.fetch, f"{self.url}/gate/at-once")
            eventually(lambda: bus._caller_polls, "one reads")
            self.assertEqual(handler.start(f"{self.url}/bytes/7").result(60).read(), body(7))
            self.origin.open_gate("at-once")
            self.assertEqual(waiting().read(), body(100))

    def test_a_forked_child_has_no_part_in_the_connection(self):
        with self.open() as bus, bus.handler("forked") as handler:
            transfer = handler.start(f"{self.url}/gate/forked")
            self.origin.await_count("/gate/forked", 1)
            child = os.fork()
            if child == 0:
                try:
                    with self.assertRaises(earshot_bus.Closed):
                        transfer.result()
                    with self.assertRaises(earshot_bus.Closed):
                        bus.ping()
                    handler.__exit__()
                    bus.__exit__()
                    with self.open() as own:
                        own.ping()
                    os._exit(0)
                finally:
                    os._exit(1)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.origin.open_gate("forked")
            self.assertEqual(transfer.result(60).read(), body(100))

    def test_a_child_needs_no_lock_that_another_thread_held(self):
        with self.open() as bus, bus.handler("locks") as handler:
            transfers = [handler.start(f"{self.url}/gate/locks{number}") for number in range(2)]
            ends = [in_thread(transfer.result) for transfer in transfers]
            eventually(lambda: len(bus._followers) == 1, "one reads, one follows")
            held = [bus._lock, _folders._lock, bus._nudge._cond]
            # A waiter that is set without a lock has none.
            held += [follower._cond for follower in bus._followers if isinstance(follower, threading.Event)]
            with contextlib.ExitStack() as stack:
                for lock in held:
                    stack.enter_context(lock)
                child = os.fork()
                if child == 0:
                    try:
                        handler.__exit__()
                        bus.__exit__()
                        with self.assertRaises(earshot_bus.Closed):
                            transfers[0].result()
                        with _folders._lock, self.open() as own:
                            own.ping()
                        os._exit(0)
                    finally:
                        os._exit(1)
                # A thread that waits for a lock waits forever.
                ended = os.pidfd_open(child)
                self.addCleanup(os.close, ended)
                if not select.select([ended], [], [], 60)[0]:
                    os.kill(child, signal.SIGKILL)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            for number, end in enumerate(ends):
                self.origin.open_gate(f"locks{number}")
                self.assertEqual(end().read(), body(100))

    def test_many_threads_ask_and_none_waits_for_ever(self):
        with self.open() as bus, bus.handler("many") as handler:
            def run_requests(seed):
                transfers = [handler.start(f"{self.url}/bytes/{n}?seed={seed}") for n in range(40)]
                return [transfer.result(60).read() for transfer in transfers]
            ends = [in_thread(run_requests, seed) for seed in range(6)]
            for seed, end in enumerate(ends):
                self.assertEqual(end(), [body(n, seed) for n in range(40)])
            ledger = bus.query("ledger")
            check_ledgers(ledger)
            self.assertEqual(ledger["deliveries"]["outstanding"], 0)

    def test_who_waits_when_the_bus_is_closed_is_told(self):
        with self.open() as bus:
            handler = bus.handler("closing").__enter__()
            ends = [in_thread(handler.fetch, f"{self.url}/gate/closing{number}") for number in range(2)]
            ends.append(in_thread(next, bus.watch("closing/")))
            eventually(lambda: len(bus._followers) == 2, "one reads, two follow")
        for end, error in zip(ends, (earshot_bus.Closed, earshot_bus.Closed, StopIteration)):
            with self.assertRaises(error):
                end()


class BackgroundThreadTests(ThreadsTestCase):
    def test_what_nobody_waits_for_is_said_heard_and_acknowledged(self):
        with self.open() as observer, self.open() as bus, bus.handler("alone") as handler:
            transfers = [handler.start(f"{self.url}/bytes/{n}?alone") for n in range(50)]
            eventually(lambda: all(transfer.done() for transfer in transfers), "all have come")
            eventually(lambda: not observer.query("ledger")["deliveries"]["outstanding"], "all are acknowledged")
            held = handler.fetch(f"{self.url}/bytes/70000?alone")
            self.assertEqual(observer.query("ledger")["deliveries"]["outstanding"], 1)
            held.release()
            eventually(lambda: not observer.query("ledger")["deliveries"]["outstanding"], "its file was let go")

    def test_the_next_broker_is_found_while_nobody_waits(self):
        with self.open() as bus, bus.handler("found") as handler:
            transfer = handler.start(f"{self.url}/gate/found")
            self.origin.await_count("/gate/found", 1)
            before = bus.broker
            kill(self.bus.broker)
            eventually(lambda: bus.broker != before, "the next broker has answered")
            self.origin.open_gate("found")
            eventually(transfer.done, "it has come")
            self.assertEqual(transfer.result().read(), body(100))

    def test_progress_is_told_one_call_after_the_other_and_a_call_may_ask(self):
        calling, counts, followers = threading.Lock(), [], []
        with self.open() as bus, bus.handler("told") as handler:
            def on_progress(step):
                self.assertTrue(calling.acquire(blocking=False), "another call has not ended")
                counts.append(step.received)
                if not followers:
                    followers.append(handler.fetch(f"{self.url}/bytes/7?told").read())
                calling.release()
            transfer = handler.start(f"{self.url}/steps/rest?bytes=90000", progress_ms=50, on_progress=on_progress)
            eventually(lambda: counts, "somebody tells, though nobody waits")
            # The handler must stay open during the call.
            eventually(lambda: followers, "the request of the call ends while its transfer runs")
            self.origin.open_gate("rest")
            self.assertEqual(len(transfer.result().read()), 90_000)
        self.assertEqual(followers, [body(7)])
        self.assertEqual(counts, sorted(counts))

    def test_a_call_may_ask_while_others_are_still_to_be_called(self):
        with Played() as broker:
            broker.listen()
            welcome = in_thread(broker.welcome)
            with earshot_bus.blocking.connect(broker.runtime) as bus:
                welcome()
                handler = bus.handler("asks").__enter__()
                counts, followers = [], []

                def on_progress(step):
                    counts.append(step.received)
                    if len(counts) == 1:
                        followers.append(handler.start("http://x/2").result(60).status)
                transfer = handler.start("http://x/1", on_progress=on_progress)
                waiting = in_thread(transfer.result)
                broker.receive(1)
                broker.send_all(*(f"PROGRESS asks {transfer.request} {count}/9\n".encode() for count in range(1, 4)))
                [[head]] = broker.receive(1)
                broker.send(f"RESULT asks {head.split()[2].decode()} 200\nseq: 1\n".encode())
                eventually(lambda: len(counts) == 3, "the others are called when that one has ended")
                broker.send(f"RESULT asks {transfer.request} 201\nseq: 2\n".encode())
                self.assertEqual((waiting().status, counts, followers), (201, [1, 2, 3], [200]))

    def test_the_keeper_goes_when_a_caller_reads_and_comes_back(self):
        with self.open() as bus, bus.handler("back") as handler:
            for count in range(20):
                eventually(lambda: bus._reader is _threads.Reader.BACKGROUND and bus._background_polls,
                           "the background thread reads")
                handler.fetch(f"{self.url}/bytes/{count}?back")


class Interrupted:
    """Wraps a function, and interrupts once before or after its call."""

    def __init__(self, call, after):
        self._call = call
        self._after = after
        self.is_over = False

    def __call__(self, *arguments):
        if self.is_over:
            return self._call(*arguments)
        self.is_over = True
        if self._after:
            self._call(*arguments)
        raise KeyboardInterrupt


class InterruptTests(ThreadsTestCase):
    def test_an_interrupt_between_any_two_steps_loses_nothing(self):
        for lease in (0, 20):
            with self.open(lease=lease) as bus, bus.handler(f"torn{lease}") as handler:
                # An interrupted connection is discarded and replaced.
                steps = [*((lambda: bus._core, name) for name in ("received", "acknowledge", "_take")),
                         *((lambda: bus, name) for name in ("_deliver", "_flush", "_apply")),
                         *((lambda: bus._link, name) for name in ("send", "receive", "flush")),
                         (lambda: _shell, "in_memory")]
                for number, (find, name) in enumerate(steps):
                    for after in (False, True):
                        with self.subTest(name, after=after, lease=lease):
                            target = find()
                            path = f"{self.url}/bytes/{{}}?seed={lease}-{number}-{after}"
                            kept = [handler.start(path.format(n)) for n in range(5)]
                            step = Interrupted(getattr(target, name), after)
                            with mock.patch.object(target, name, step):
                                # The interrupt hits any thread that arrives there; this thread notices if it was the one.
                                try:
                                    for n in range(5, 50):
                                        handler.start(path.format(n)).result(60)
                                except KeyboardInterrupt:
                                    pass
                                self.assertTrue(step.is_over)
                                for n, transfer in enumerate(kept):
                                    self.assertEqual(transfer.result(60).read(), body(n, f"{lease}-{number}-{after}"))
                            bus.ping()

    def test_an_interrupt_on_the_way_to_reading_leaves_that_to_others(self):
        for name, after in (("wake", False), ("wake", True), ("_read", False)):
            with self.subTest(name, after=after), self.open() as bus, bus.handler("way") as handler:
                transfer = handler.start(f"{self.url}/gate/way{name}{after}")
                eventually(lambda: bus._background_polls, "the background thread polls")
                target = bus._background_poller if name == "wake" else bus
                with mock.patch.object(target, name, Interrupted(getattr(target, name), after)):
                    with self.assertRaises(KeyboardInterrupt):
                        bus._wait(transfer._ending)
                self.origin.open_gate(f"way{name}{after}")
                self.assertEqual(transfer.result(60).read(), body(100))

    def test_an_interrupt_while_the_next_connection_is_made_is_got_over(self):
        for owner, name in (("_caller_poller", "detach"), ("_background_poller", "detach"), ("_link", "close"),
                            ("_caller_poller", "attach"), ("_background_poller", "attach")):
            for after in (False, True):
                with self.subTest(owner, name=name, after=after), self.open() as bus, bus.handler("next") as handler:
                    transfer = handler.start(f"{self.url}/bytes/7?next")
                    target = getattr(bus, owner)
                    step = Interrupted(getattr(target, name), after)
                    with mock.patch.object(target, name, step), self.assertRaises(KeyboardInterrupt):
                        bus._do(lambda: (bus._apply(bus._core.lost()), bus._turn()))
                    self.assertEqual(transfer.result(60).read(), body(7))
                    bus.ping()

    def test_a_fetch_that_is_interrupted_while_it_waits_is_cancelled_and_the_connection_stays(self):
        with self.open() as bus, bus.handler("waits") as handler:
            link = bus._link
            poll = Interrupted(bus._caller_poller.poll, after=False)
            with mock.patch.object(bus._caller_poller, "poll", poll), self.assertRaises(KeyboardInterrupt):
                handler.fetch(f"{self.url}/gate/waits")
            bus.ping()
            self.assertIs(bus._link, link)
            self.assertEqual(bus.query("ledger")["requests"]["pending"], 0)


class SpeedTests(ThreadsTestCase):
    def test_one_who_asks_and_waits_needs_no_other_thread(self):
        with self.open() as bus, bus.handler("single") as handler:
            handler.fetch(f"{self.url}/bytes/1")
            eventually(lambda: bus._reader is _threads.Reader.BACKGROUND, "the background thread reads")
            # Long enough for this thread to run on a busy machine; otherwise the background thread reads again.
            self.enterContext(mock.patch.object(_threads, "REST", 0.25))
            for _ in range(10):
                if self.readers(bus, handler) == {threading.current_thread()}:
                    break
            else:
                self.fail("another thread reads each time")

    def readers(self, bus, handler):
        """Returns the threads that read while one thread requests and waits."""
        # The background thread may read an answer before the caller waits for it.
        while bus._reader is _threads.Reader.BACKGROUND:
            handler.fetch(f"{self.url}/bytes/2")
        threads = set()
        pump = bus._pump

        def watched(is_readable):
            threads.add(threading.current_thread())
            pump(is_readable)
        with mock.patch.object(bus, "_pump", watched):
            deadline = time.monotonic() + 4 * _threads.REST
            while time.monotonic() < deadline:
                handler.fetch(f"{self.url}/bytes/3")
        return threads
