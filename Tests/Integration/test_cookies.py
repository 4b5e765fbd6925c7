"""Cookies, for requests that enable them: a jar for each root of handlers."""

import http.cookiejar
import json
import os
import signal
import time
import urllib.parse

from support.harness import Bus, TestCase
from support.origin import Origin


class CookieTests(TestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin(ports=2))
        self.bus = self.enterContext(Bus())
        self.client = self.bus.client()
        self.number = 0

    def cookie(self, handler, path="/headers", headers=(), client=None, **fields):
        """Returns the Cookie field as received by the origin."""
        self.number += 1
        (client or self.client).fetch(handler, self.number, f"{self.origin.url}{path}", headers, **fields)
        answer = (client or self.client).terminal()
        self.assertEqual(answer.verb, "RESULT", answer)
        return json.loads(answer.content())["headers"].get("cookie")

    def test_a_cookie_comes_back_within_the_root_that_asked_and_nowhere_else(self):
        self.assertIsNone(self.cookie("shop/login", "/set-cookie/a=1", cookies="yes"))
        self.assertEqual(self.cookie("shop/cart", cookies="yes"), "a=1")
        self.assertIsNone(self.cookie("shop/cart", "/headers?plain"))
        self.assertIsNone(self.cookie("other/cart", cookies="yes"))
        self.assertEqual(self.cookie("shop/cart", "/headers?own", [("cookie", "b=2")], cookies="yes"), "b=2")

    def test_one_command_logs_in_and_the_next_fetches(self):
        def seen(path, *options):
            got = self.bus.run("get", "--cookies", *options, f"{self.origin.url}{path}")
            self.assertEqual(got.status, 0, got.describe())
            return json.loads(got.stdout)["headers"].get("cookie")

        self.assertIsNone(seen("/set-cookie/a=1"))
        self.assertEqual(seen("/headers"), "a=1")
        self.assertIsNone(seen("/set-cookie/b=2", "--handler", "shop/login"))
        self.assertEqual(seen("/headers", "--handler", "shop/cart"), "b=2")
        self.assertEqual(seen("/headers"), "a=1")

    def test_two_roots_never_share_an_answer_that_sets_cookies(self):
        other = self.bus.client()
        for root, client in (("one", self.client), ("two", other)):
            client.fetch(root, 1, f"{self.origin.url}/gate/login", cookies="yes")
        self.origin.await_count("/gate/login", 2)
        self.origin.open_gate("login")
        self.assertEqual([self.client.terminal().verb, other.terminal().verb], ["RESULT", "RESULT"])


class CookieFileTests(TestCase):
    """Cookie files of `earshot get` in the Netscape format."""

    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.bus = self.enterContext(Bus())
        self.jar = self.bus.folder / "jar.txt"

    def get(self, *arguments, status=0):
        program = self.bus.run("get", "--no-spawn", *arguments)
        self.assertEqual(program.status, status, program.describe())
        return program

    def seen(self, path, *options):
        """Returns the Cookie field as received by the origin."""
        return json.loads(self.get(*options, f"{self.origin.url}{path}").stdout)["headers"].get("cookie")

    def line(self, name, value, host="127.0.0.1", path="/", secure="FALSE", expires=0, before=""):
        return f"{before}{host}\tFALSE\t{path}\t{secure}\t{expires}\t{name}\t{value}\n"

    def lines(self):
        return [line for line in self.jar.read_text().splitlines() if line and not line.startswith("# ")]

    def test_the_cookies_of_a_file_are_sent_where_they_belong(self):
        later = int(time.time()) + 1000
        self.jar.write_text(
            "# Netscape HTTP Cookie File\r\n\n" + self.line("session", "1") + self.line("later", "2", expires=later)
            + self.line("expired", "3", expires=later - 2000) + self.line("secure", "4", secure="TRUE")
            + self.line("other", "5", host="localhost") + self.line("elsewhere", "6", path="/x")
            + self.line("hidden", "7", before="#HttpOnly_"))
        self.assertEqual(self.seen("/headers", "-b", self.jar), "session=1; later=2; hidden=7")
        self.assertIsNone(self.seen("/headers?without"))
        self.assertIsNone(self.seen("/headers?flag", "--cookies"), "the cookies of a file are in no other jar")

    def test_a_jar_outlives_the_command_and_the_bus(self):
        self.assertIsNone(self.seen("/set-cookie/sid=1;HttpOnly", "-b", self.jar, "-c", self.jar))
        self.assertEqual(self.jar.stat().st_mode & 0o777, 0o600)
        self.assertEqual(self.lines(), ["#HttpOnly_127.0.0.1\tFALSE\t/\tFALSE\t0\tsid\t1"])
        loaded = http.cookiejar.MozillaCookieJar()
        loaded.load(str(self.jar), ignore_discard=True, ignore_expires=True)
        self.assertEqual([cookie.value for cookie in loaded], ["1"])
        with Bus() as other:
            program = other.run("get", "-b", self.jar, f"{self.origin.url}/headers")
            self.assertEqual(json.loads(program.stdout)["headers"].get("cookie"), "sid=1", program.describe())
        target = urllib.parse.quote("/headers", safe="")
        self.assertEqual(self.seen(f"/set-cookie/b=2;Max-Age=90?location={target}", "-b", self.jar, "-c", self.jar),
                         "sid=1; b=2")
        self.assertEqual(len(self.lines()), 2)
        self.assertAlmostEqual(int(self.lines()[1].split("\t")[4]), time.time() + 90, delta=30)
        self.seen("/set-cookie/sid=;Max-Age=0", "-b", self.jar, "-c", self.jar)
        self.assertEqual([line.split("\t")[5] for line in self.lines()], ["b"])

    def test_a_jar_that_cannot_be_written_is_an_error_and_keeps_the_old_file(self):
        folder = self.bus.folder / "folder"
        folder.mkdir()
        program = self.get("-c", folder, f"{self.origin.url}/headers", status=23)
        self.assertIn("it is not a regular file", program.stderr)
        self.jar.write_text(self.line("a", "1"))
        self.get("-c", "/dev/null", f"{self.origin.url}/headers?null", status=23)
        self.assertTrue(os.path.exists("/dev/null"))
        self.get("-b", self.jar, "-c", self.jar, f"{self.origin.url}/status/404", status=22)
        self.assertEqual(len(self.lines()), 1, "a failed request does not lose the cookies")

    def test_values_of_cookies_are_in_no_output_of_the_bus(self):
        self.jar.write_text(self.line("sid", "sesame"))
        get = self.bus.start("get", "--no-spawn", "-v", "-b", self.jar, "-c", self.jar, f"{self.origin.url}/gate/a",
                             "-o", self.bus.folder / "out")
        self.origin.await_count("/gate/a", 1)
        outputs = [self.bus.run(*command) for command in (
            ("list", "--json"), ("list",), ("status", "--json"), ("status",))]
        self.origin.open_gate("a")
        self.assertEqual(get.wait(), 0, get.describe())
        text = self.bus.program.stderr + "".join(program.stdout.decode() + program.stderr for program in outputs)
        self.assertNotIn("sesame", text + get.stderr)
        self.assertIn("sesame", self.jar.read_text())

    def test_an_interrupt_writes_the_jar(self):
        self.bus.client().set("cookie-time 0")
        self.jar.write_text("".join(self.line(f"n{number}", "v" * 1000, path="/x") for number in range(45)))
        get = self.bus.start("get", "--no-spawn", "-b", self.jar, "-c", self.jar, f"{self.origin.url}/set-cookie/b=2",
                             f"{self.origin.url}/gate/a", "-d", self.bus.folder / "out", "--json")
        self.origin.await_count("/gate/a", 1)
        get.await_line('"index":1', "stdout")
        get.signal(signal.SIGINT)
        self.assertEqual(get.wait(), 130, get.describe())
        self.assertEqual([line.split("\t")[5] for line in self.lines()], [*(f"n{number}" for number in range(45)), "b"])
