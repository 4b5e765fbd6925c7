"""Cookies, for requests that enable them: a jar for each root of handlers."""

import json
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

    def test_what_is_not_asked_for_is_not_kept(self):
        self.cookie("shop", "/set-cookie/a=1")
        self.assertIsNone(self.cookie("shop", cookies="yes"))

    def test_a_jar_outlives_its_root_s_last_handler_by_a_setting(self):
        for seconds, kept in (("100", "a=1"), ("0", None)):
            self.client.set(f"cookie-time {seconds}")
            self.cookie("shop/login", "/set-cookie/a=1", cookies="yes")
            self.client.say("UNSUBSCRIBE shop/login")
            self.client.query("ping")
            self.assertEqual(self.cookie("shop/login", cookies="yes"), kept)

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

    def test_a_redirect_sets_and_gets_the_cookies_of_each_hop(self):
        target = urllib.parse.quote("/headers?after", safe="")
        self.assertEqual(self.cookie("shop", f"/set-cookie/a=1?location={target}", cookies="yes"), "a=1")

    def test_two_roots_never_share_an_answer_that_sets_cookies(self):
        other = self.bus.client()
        for root, client in (("one", self.client), ("two", other)):
            client.fetch(root, 1, f"{self.origin.url}/gate/login", cookies="yes")
        self.origin.await_count("/gate/login", 2)
        self.origin.open_gate("login")
        self.assertEqual([self.client.terminal().verb, other.terminal().verb], ["RESULT", "RESULT"])
