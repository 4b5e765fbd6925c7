"""Example programs of all languages, run as their READMEs show, against a bus and an origin on loopback.

Libraries have the same three programs, and most have a worker. Java, Perl and Ruby have one short program each. The same
tests run for each language. A language with missing packages fails, and names them; `bin/setup --examples` installs them.
"""

import pathlib
import signal
import tempfile
import unittest

import zmq

from languages import EXAMPLES, LANGUAGES, SHORT, SWIFT_DISTRUST, WORKERS  # This import sets the path for the next three.
from support.harness import Bus, Commands, TestCase
from support.origin import Origin, body
from support.processes import eventually

NO_BROKER = 69
USAGE = 64


class Cases:
    """Tests of `fetch` and `watch`, run for each language."""

    language = None

    def setUp(self):
        self.language.built  # noqa: B018 (reports a missing package before a process starts)
        self.origin = self.enterContext(Origin())
        self.bus = self.enterContext(Bus(workers=1, origin_limit=3))

    def start(self, program, *arguments, output=None):
        return self.language.start(program, *arguments, environment=self.bus.environment, output=output)

    def fetch(self, target, output=None):
        """Runs `fetch` for a target of the origin to its end."""
        program = self.start("fetch", self.origin.url + target, output=output)
        program.status = program.wait()
        return program

    def test_a_body_comes_whole(self):
        """Bodies inline, in a file, empty, and after redirects."""
        for target, content in (("/bytes/1000", body(1000)), ("/bytes/200000", body(200_000)), ("/bytes/0", b""),
                                ("/redirect/2", b"arrived\n")):
            program = self.fetch(target)
            self.assertEqual(program.status, 0, program.describe())
            self.assertTrue(program.stdout == content, program.describe())
            self.assertEqual(program.messages, [], program.describe())
        ledger = self.balance(self.bus.client())["deliveries"]
        self.assertEqual((ledger["acknowledged"], ledger["lost"]), (4, 0), "all are acknowledged")

    def test_an_error_page_is_no_result(self):
        for target in ("/status/410", "/status/599"):
            program = self.fetch(target)
            self.assertNotEqual(program.status, 0, program.describe())
            self.assertEqual(program.stdout, b"", program.describe())
            output = program.stderr.replace(self.origin.url + target, "")
            self.assertIn("http-status", output)
            self.assertIn(target[-3:], output)

    def test_an_output_that_takes_nothing_is_a_failure(self):
        for size in (100, 200_000):
            program = self.fetch(f"/bytes/{size}", output="/dev/full")
            self.assertNotEqual(program.status, 0, program.describe())
            self.assertTrue(program.stderr.startswith("earshot: "), program.describe())
        watcher = self.start("watch", "page/", output="/dev/full")
        watcher.await_line("earshot: listening")
        client = self.bus.client()
        client.fetch("page/1", "one", self.origin.url + "/bytes/1")
        self.assertNotEqual(watcher.wait(), 0, watcher.describe())
        self.assertIn("earshot: ", watcher.stderr)

    def test_a_url_cannot_say_more_than_a_url(self):
        """A line feed would inject a field, or a header field of the request."""
        for target in ("/bytes/1\nreplace: yes", "/bytes/1 2", "/bytes/1\n\nx-more: 1"):
            program = self.fetch(target)
            self.assertNotEqual(program.status, 0, program.describe())
            self.assertTrue(program.stderr.startswith("earshot: "), program.describe())
        self.assertEqual(self.origin.total, 0)

    def test_a_watcher_hears_what_another_asked_for(self):
        """More results than the window holds, so that a missing acknowledgement shows."""
        watcher = self.start("watch", "page/", "303")
        watcher.await_line("earshot: listening")
        client = self.bus.client()
        client.fetch("page/1", "small", self.origin.url + "/bytes/10")
        client.fetch("page/1", "none", self.origin.url + "/status/404")
        client.fetch("page/2", "scheme", "gopher://127.0.0.1/")
        client.fetch("other", "unheard", self.origin.url + "/bytes/12")
        for number in range(300):
            client.fetch("page/3", number, self.origin.url + "/bytes/11")
        client.terminals(304)
        self.assertEqual(watcher.wait(), 2 if self.language.counts_failures else 0, watcher.describe())
        expected = [f"page/1 small 200 {self.origin.url}/bytes/10",
                    f"page/1 none http-status {self.origin.url}/status/404",
                    *(f"page/3 {number} 200 {self.origin.url}/bytes/11" for number in range(300))]
        lines = watcher.stdout.decode().splitlines()
        self.assertEqual(len(lines), 303)
        self.assertEqual(set(expected) - set(lines), set())
        self.assertEqual(len([line for line in lines if line.startswith("page/2 scheme unsupported-scheme")]), 1)
        self.assertEqual(self.balance(client)["deliveries"]["lost"], 0, "all are acknowledged")

    def test_a_watcher_is_told_of_what_was_removed(self):
        watcher = self.start("watch", "page/", "1")
        watcher.await_line("earshot: listening")
        client = self.bus.client()
        client.fetch("page/1", "slow", self.origin.url + "/hang")
        self.origin.await_count("/hang", 1)
        client.remove("page/1")
        self.assertEqual(watcher.wait(), 5 if self.language.counts_failures else 0, watcher.describe())
        self.assertEqual(watcher.stdout.decode().split()[:3], ["page/1", "slow", "removed"])

    def test_the_readme_tells_these_commands(self):
        lines = (EXAMPLES / self.language.name / "README.md").read_text().splitlines()
        for command in self.language.commands.values():
            self.assertTrue([line for line in lines if line.startswith(command + " ")], f"no line with {command}")
        if self.language.build:
            self.assertTrue([line for line in lines if self.language.build in line], f"no {self.language.build}")


class LibraryCases(Cases):
    """Tests of the three programs of a library."""

    def test_a_folder_that_others_may_write_is_not_trusted(self):
        """The listener there, here a broker, receives nothing. A symbolic link is refused, because its owner proves nothing."""
        link = self.bus.folder / "link"
        link.symlink_to(self.bus.runtime)
        program = self.language.start("fetch", self.origin.url + "/bytes/1",
                                      environment=dict(self.bus.environment, EARSHOT_RUNTIME=str(link)))
        self.assertNotEqual(program.wait(), 0, program.describe())
        self.assertIn(str(link), program.stderr)
        self.addCleanup(self.bus.runtime.chmod, 0o700)
        # Only a folder that all may enter, that of a bus with `users`, is trusted as well.
        others = () if self.language.distrust == SWIFT_DISTRUST else (0o710, 0o701)
        for mode in (0o775, 0o757, 0o722, *others):
            self.bus.runtime.chmod(mode)
            program = self.fetch("/bytes/1")
            self.assertNotEqual(program.status, 0, program.describe())
            self.assertIn(str(self.bus.runtime), program.stderr)
            self.assertIn(self.language.distrust, program.stderr)
        self.assertEqual(self.origin.total, 0)

    def test_wrong_arguments_are_told(self):
        for program in (self.start("fetch"), self.start("gallery", "page/1"), self.start("watch")):
            self.assertEqual(program.wait(), USAGE, program.describe())
            self.assertIn("usage: ", program.stderr)

    def test_a_page_that_is_closed_is_not_fetched_further(self):
        """16 URLs: two occupy two of the origin's three slots, eight are answered, six never are. Another client subscribes."""
        client = self.bus.client()
        client.fetch("other", "first", self.origin.url + "/bytes/9")
        client.terminal()  # The first requests of a new broker wait for its cache, and later ones may overtake them.
        client.send("SUBSCRIBE page/")
        client.query("ping")
        targets = ["/hang?held=1", "/hang?held=2", *(f"/bytes/{n}" for n in range(1, 9)),
                   *(f"/hang?late={n}" for n in range(6))]
        program = self.start("gallery", "page/1", *(self.origin.url + target for target in targets))
        self.assertEqual(program.wait(), 0, program.describe())
        *lines, last = program.stdout.decode().splitlines()
        self.assertEqual(last, "dropped 8", program.describe())
        self.assertEqual(len(lines), 8, program.describe())
        for line in lines:
            self.assertRegex(line, rf"^page/1 \S+ 200 {self.origin.url}/bytes/\d$")

        codes = [message.operands[2] for message in client.terminals(16)]
        self.assertEqual(sorted(codes), ["200"] * 8 + ["removed"] * 8)
        self.await_requests(client, pending=0, answered=9, removed=8)
        self.origin.await_running(0)
        self.assertGreaterEqual(len(self.origin.await_aborts("/hang", 2)), 2, "what ran is cut off")
        eventually(lambda: not any(self.bus.status()["flights-now"].values()), "nothing is left to fetch")
        self.assertLessEqual(self.origin.total, 12, "what waited was never asked for")

    def test_a_gallery_whose_output_takes_nothing_is_a_failure(self):
        gallery = self.start("gallery", "page/1", self.origin.url + "/bytes/1", output="/dev/full")
        self.assertNotEqual(gallery.wait(), 0, gallery.describe())
        self.assertIn("earshot: ", gallery.stderr)


class ShortCases(Cases):
    """Tests of one short program without a library."""

    def test_requests_of_another_program_are_cancelled(self):
        client = self.bus.client()
        for number in range(2):
            client.fetch("page/1", number, f"{self.origin.url}/hang?{number}")
        client.fetch("page/2", "kept", self.origin.url + "/bytes/10")
        client.terminal()
        program = self.start("cancel", "page/1")
        self.assertEqual((program.wait(), program.stdout), (0, b"removed 2\n"), program.describe())
        self.assertEqual([message.operands[2] for message in client.terminals(2)], ["removed"] * 2)
        self.origin.await_running(0)
        program = self.start("cancel", "page/1")
        self.assertEqual((program.wait(), program.stdout), (0, b"removed 0\n"), program.describe())

    def test_an_error_of_the_broker_is_told(self):
        for command in ("watch", "cancel"):
            program = self.start(command, "page//1")
            self.assertEqual(program.wait(), 1, program.describe())
            self.assertTrue(program.stderr.startswith("earshot: bad-message: "), program.describe())

    def test_wrong_arguments_are_told(self):
        for program in (self.start("fetch"), self.start("cancel", "page/1", "2"), self.start("watch", "page/1", "x")):
            self.assertEqual(program.wait(), 1, program.describe())
            self.assertIn("earshot: usage: ", program.stderr)

    def test_without_variables_it_says_which_one_to_set(self):
        variables = {name: value for name, value in self.bus.environment.items()
                     if name not in ("EARSHOT_RUNTIME", "XDG_RUNTIME_DIR")}
        program = self.language.start("fetch", "http://a.example/", environment=variables)
        self.assertEqual((program.wait(), program.stderr),
                         (1, "earshot: set EARSHOT_RUNTIME to the directory of the bus\n"), program.describe())

    def test_it_has_at_most_150_lines_of_code(self):
        [program] = [path for path in (EXAMPLES / self.language.name).iterdir() if path.suffix in (".java", ".pl", ".rb")]
        lines = [line.strip() for line in program.read_text().splitlines()]
        code = [line for line in lines if line and not line.startswith(("#", "//", "/*", "*"))]
        self.assertLessEqual(len(code), 150)


class WorkerCases:
    """Tests of the worker with a broker, run for each language that has one."""

    language = None

    def setUp(self):
        self.language.built  # noqa: B018 (reports a missing package before a process starts)
        self.bus = self.enterContext(Bus(workers=1))
        self.client = self.bus.client()

    def start(self, *arguments):
        worker = self.language.start("worker", *arguments, environment=self.bus.environment)
        if not self.language.has_dialog:
            # It outlives the broker; the second signal ends it with its programs.
            self.addCleanup(self.end, worker)
        worker.await_line("earshot: serving upper:")
        return worker

    def end(self, worker):
        if worker.running:
            worker.signal(signal.SIGTERM)
            worker.signal(signal.SIGINT)
        worker.wait()

    def registered(self):
        """Returns the workers of `upper` that are registered."""
        workers = self.client.query("workers")["workers"]
        return [worker for worker in workers if worker["schemes"] == ["upper"]]

    def await_running(self, count):
        eventually(lambda: [worker["running"] for worker in self.registered()] == [count], f"{count} jobs run")

    def fetch(self, request, url, client=None):
        client = client or self.client
        client.fetch("page/1", request, url)
        return client.terminal()

    def test_it_registers_and_leaves(self):
        worker = self.start()
        [row] = eventually(self.registered, "the broker knows it")
        self.assertEqual((row["phase"], row["slots"]), ("ready", 4))
        worker.signal(signal.SIGTERM)
        self.assertEqual(worker.wait(), 0, worker.describe())
        eventually(lambda: not self.registered(), "the broker knows that it left")

    def test_it_answers(self):
        """Also more concurrent jobs than slots."""
        self.start()
        answer = self.fetch("one", "upper:hello")
        self.assertResult(answer, b"HELLO")
        self.assertIn(("content-type", "text/plain"), [(name, value.strip()) for name, value in answer.headers])
        self.assertResult(self.fetch("two", "upper:a%20b:c"), b"A%20B:C")
        text = "x" * 5000
        self.assertResult(self.fetch("long", f"upper:{text}"), text.upper().encode())
        for number in range(50):
            self.client.fetch("page/2", number, f"upper:number-{number}")
        for message in self.client.terminals(50):
            self.assertResult(message, f"NUMBER-{message.operands[1]}".encode())

    def test_a_failure_is_told_in_its_words(self):
        worker = self.start()
        answer = self.fetch("none", "upper:")
        self.assertFailed(answer, "worker-failed")
        self.assertEqual(answer.fields["detail"], "no text follows upper:")
        self.assertResult(self.fetch("some", "upper:text"), b"TEXT")
        self.assertEqual(worker.stderr, "earshot: serving upper:\n")

    def test_what_two_want_is_one_job_and_it_is_finished_before_it_leaves(self):
        """A job of many seconds, requested twice while it runs."""
        # `earshot work` drains for at most ten seconds.
        worker = self.start("12000" if self.language.has_dialog else "6000")
        other = self.bus.client()
        self.client.fetch("page/1", "one", "upper:both")
        other.fetch("page/2", "two", "upper:both")
        for client in (self.client, other):
            client.query("ping")
        self.client.fetch("page/1", "three", "upper:nobody")
        self.await_running(2)
        self.client.cancel("page/1", "three")
        # The worker reads in order: after this confirmation it has begun the shared job. A job that crosses its BYE would go
        # to another worker.
        eventually(lambda: self.registered()[0]["cancelling"] == 0, "the worker has confirmed the cancellation")
        self.await_running(1)
        worker.signal(signal.SIGTERM)
        answers = [self.client.terminal(), other.terminal()]
        for answer in answers:
            self.assertResult(answer, b"BOTH")
        self.assertEqual(worker.wait(), 0, worker.describe())

    def test_what_nobody_wants_any_more_frees_its_slot(self):
        """Its jobs take 15 minutes, so only a CANCEL ends one in this test."""
        self.start("900000")
        for number in range(4):
            self.client.fetch("page/1", number, f"upper:{number}", priority="high")  # One slot is reserved for this priority.
        self.await_running(4)
        self.client.cancel("page/1", 2)
        self.await_running(3)
        eventually(lambda: self.registered()[0]["cancelling"] == 0, "the slot is free")
        self.client.fetch("page/2", "next", "upper:next", priority="high")
        self.await_running(4)

    def test_it_says_that_the_broker_went(self):
        """Idle or busy, unless it waits for the next broker. Without a broker it says how to start one."""
        workers = [self.start(), self.start("900000")]
        # A broker outlives its supervisor for a moment, and still accepts connections.
        self.bus.kill_service()
        for worker in workers:
            if not self.language.has_dialog:
                worker.signal(signal.SIGTERM)
                self.assertEqual(worker.wait(), 0, worker.describe())
                continue
            self.assertEqual(worker.wait(40), NO_BROKER, worker.describe())
            self.assertIn("earshot: the broker is gone", worker.stderr)
        late = self.language.start("worker", environment=self.bus.environment)
        self.assertEqual(late.wait(), NO_BROKER, late.describe())
        self.assertIn("`earshot serve`", late.stderr)

    def test_a_folder_that_others_may_write_is_not_trusted(self):
        self.addCleanup(self.bus.runtime.chmod, 0o700)
        self.bus.runtime.chmod(0o775)
        worker = self.language.start("worker", environment=self.bus.environment)
        self.assertNotEqual(worker.wait(), 0, worker.describe())
        self.assertIn(self.language.distrust, worker.stderr)
        self.assertEqual(self.registered(), [])

    def test_wrong_arguments_are_told(self):
        for arguments in (["soon"], ["-1"], ["1", "2"]):
            worker = self.language.start("worker", *arguments, environment=self.bus.environment)
            self.assertEqual(worker.wait(), USAGE, worker.describe())
            self.assertIn("usage: ", worker.stderr)


class WorkerDialogCases:
    """Messages of the worker of each language, with the test as its broker."""

    language = None

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="ear-")))
        environment = Commands(self.folder / "run", self.folder).environment
        (self.folder / "run").mkdir(mode=0o700)
        context = self.enterContext(zmq.Context())
        self.socket = self.enterContext(context.socket(zmq.ROUTER))
        self.socket.linger = 0
        self.socket.bind(f"ipc://{self.folder}/run/work")
        self.environment = environment

    def start(self, *arguments):
        """Starts a worker and completes its registration."""
        worker = self.language.start("worker", *arguments, environment=self.environment)
        self.addCleanup(lambda: worker.running and worker.kill())
        self.worker = worker
        head, *body = self.receive()
        lines = head.splitlines()
        self.assertEqual((lines[0], body), ("READY EARW/1", []))
        self.assertEqual(set(lines[1:]) - {f"pid: {worker.pid}"}, {"slots: 4", "schemes: upper", "drain: yes"})
        self.send("LIMITS\nbroker: b\nspool: /nowhere\ninline-bytes: 65536\n")
        worker.await_line("earshot: serving upper:")

    def receive(self):
        """Returns the next message: its head, and its body if present."""
        self.assertTrue(self.socket.poll(30_000), self.worker.describe())
        self.peer, *frames = self.socket.recv_multipart()
        return [frame.decode() for frame in frames]

    def send(self, head):
        self.socket.send_multipart([self.peer, head.encode()])

    def assertLeaves(self):
        self.assertEqual(self.receive(), ["BYE\n"])
        self.assertEqual(self.worker.wait(), 0, self.worker.describe())

    def test_jobs_are_answered(self):
        self.start()
        self.send("JOB b.1.1 upper:hello\npriority: high\ntimeout: 60\n\naccept: */*\n")
        self.assertEqual(self.receive(), ["DONE b.1.1 200\nlength: 5\n\ncontent-type: text/plain\n", "HELLO"])
        self.send("JOB b.2.1 upper:\n")
        self.assertEqual(self.receive(), ["FAILED b.2.1 worker-failed\ndetail: no text follows upper:\n"])

    def test_signs_of_life_are_given_while_jobs_run(self):
        self.start("900000")
        self.send("PING\n")
        self.assertEqual(self.receive(), ["PONG\n"])
        self.send("JOB b.1.1 upper:hello\n")
        self.send("RAISE b.1.1\nmax-bytes: 9\n")
        self.send("PING\n")
        self.assertEqual(self.receive(), ["PONG\n"])

    def test_a_cancelled_job_is_answered_once_and_one_that_ended_is_not(self):
        self.start("900000")
        for number in range(4):
            self.send(f"JOB b.{number}.1 upper:hello\n")
        self.send("CANCEL b.1.1\n")
        head, = self.receive()
        self.assertEqual(head.splitlines()[0], "FAILED b.1.1 cancelled")
        self.send("CANCEL b.1.1\n")
        self.send("CANCEL b.7.1\n")
        self.send("PING\n")
        self.assertEqual(self.receive(), ["PONG\n"])

    def test_a_job_beyond_its_slots_is_for_another_worker(self):
        self.start("900000")
        for number in range(5):
            self.send(f"JOB b.{number}.1 upper:hello\n")
        head, = self.receive()
        self.assertEqual(head.splitlines()[0], "FAILED b.4.1 worker-lost")

    def test_a_drained_worker_leaves(self):
        self.start()
        self.send("DRAIN\n")
        self.assertLeaves()

    def test_a_drained_worker_finishes_what_runs_and_takes_no_more(self):
        self.start("900000")
        self.send("JOB b.1.1 upper:hello\n")
        self.send("DRAIN\n")
        self.send("JOB b.2.1 upper:hello\n")
        head, = self.receive()
        self.assertEqual(head.splitlines()[0], "FAILED b.2.1 worker-lost")
        self.send("CANCEL b.1.1\n")
        head, = self.receive()
        self.assertEqual(head.splitlines()[0], "FAILED b.1.1 cancelled")
        self.assertLeaves()

    def test_a_worker_that_is_terminated_leaves(self):
        self.start()
        self.worker.signal(signal.SIGTERM)
        self.assertLeaves()

    def test_an_error_ends_it(self):
        self.start()
        self.send("ERROR bad-message\ndetail: no such thing\n")
        self.assertEqual(self.worker.wait(), 1, self.worker.describe())
        self.assertIn("earshot: bad-message: no such thing", self.worker.stderr)


def load_tests(loader, _tests, _pattern):
    """Creates a test class for each language, such as CTests, and adds the tests with all languages at once."""
    suite = unittest.TestSuite()
    for cases, languages, what in ((LibraryCases, LANGUAGES, ""), (ShortCases, SHORT, ""), (WorkerCases, WORKERS, "Worker"),
                                   (WorkerDialogCases, [language for language in WORKERS if language.has_dialog],
                                    "WorkerDialog")):
        for language in languages:
            name = f"{language.name.capitalize()}{what}Tests"
            suite.addTests(loader.loadTestsFromTestCase(
                type(name, (cases, TestCase), {"language": language, "__module__": __name__})))
    suite.addTests(loader.loadTestsFromTestCase(BrokerTests))
    return suite


class BrokerTests(TestCase):
    """Missing and dead brokers, for all languages at once, because most detect the death after some seconds of silence."""

    def assertReports(self, program, *words, code=NO_BROKER):
        self.assertEqual(program.wait(40), code, program.describe())
        message = program.stderr.casefold()
        for word in ("earshot: ", *words):
            self.assertIn(word, message)

    def test_without_a_broker_they_say_how_to_start_one(self):
        with Origin() as origin:
            folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="ear-")))
            environment = Commands(folder / "run", folder).environment
            url = origin.url + "/bytes/1"
            programs = [language.start(*arguments, environment=environment) for language in LANGUAGES
                        for arguments in (("fetch", url), ("gallery", "page/1", url), ("watch", "page/"))]
            short = [language.start(*arguments, environment=environment) for language in SHORT
                     for arguments in (("fetch", url), ("cancel", "page/1"), ("watch", "page/"))]
            for program in programs:
                self.assertReports(program, "no broker", "`earshot serve`")
            for program in short:
                self.assertReports(program, "no broker", "`earshot serve`", code=1)
            self.assertEqual(origin.total, 0)

    def test_they_say_that_the_broker_went(self):
        for language in LANGUAGES + SHORT:
            language.built  # noqa: B018 (a build may take longer than a request)
        with Origin() as origin, Bus() as bus:
            programs = []
            for language in LANGUAGES + SHORT:
                watcher = language.start("watch", "page/", environment=bus.environment)
                watcher.await_line("earshot: listening")
                fetching = language.start("fetch", origin.url + "/hang", environment=bus.environment)
                programs += [(program, 1 if language in SHORT else NO_BROKER) for program in (watcher, fetching)]
            self.await_requests(bus.client(), pending=len(LANGUAGES + SHORT))
            bus.program.kill()
            for program, code in programs:
                self.assertReports(program, code=code)


if __name__ == "__main__":
    unittest.main()
