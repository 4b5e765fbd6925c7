"""Failures do not reveal possible secrets in a URL, except on request."""

import json

from support.harness import Bus, TestCase
from support.origin import Origin
from support.processes import eventually

SECRET = "s3cret"


class SecretTests(TestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.bus = self.enterContext(Bus(workers=1))

    def address(self):
        return self.origin.url.removeprefix("http://")

    def test_get_leaves_user_information_and_query_out(self):
        for url, shown in (
                (f"http://me:{SECRET}@{self.address()}/status/404?token={SECRET}#{SECRET}",
                 f"http://{self.address()}/status/404?...: HTTP status 404 (http-status)"),
                (f"http://me:p@{SECRET}@{self.address()}/status/404", f"http://{self.address()}/status/404: "),
                (f"{self.origin.url}/status/404#{SECRET}", f"{self.origin.url}/status/404?...: "),
                (f"me:{SECRET}@{self.address()}/x y?{SECRET}", f"{self.address()}/x y?...: malformed URL"),
                (f"{self.origin.url}/status/404", f"{self.origin.url}/status/404: "),
                (f"ftp://me:{SECRET}@127.0.0.1/a@b", "ftp://...@b: "),
                (f"http:/me:{SECRET}@h/", "http:/h/: "),
                (f"http:me:{SECRET}@h/", "h/: "),
                (f"http://me:{SECRET}/{SECRET}@h/", "http://...@h/: "),
                (f"http://me:{SECRET}?{SECRET}@h/", "http://...?...: "),
                (f"http://me:{SECRET}#@h/", "http://...?...: "),
                (f"{self.origin.url}/status/404?mail=a@b", f"{self.origin.url}/status/404?...: "),
                (f"http://me:@\u0301{SECRET}@\u0301h/", "http://\u0301h/: ")):
            with self.subTest(url):
                got = self.bus.run("get", url)
                self.assertNotEqual(got.status, 0)
                self.assertIn(f"earshot: {shown}", got.stderr)
                self.assertNotIn(SECRET, got.stderr)

    def test_get_tells_all_of_it_where_that_is_wanted(self):
        url = f"http://me:{SECRET}@{self.address()}/status/404?token={SECRET}"
        self.assertIn(f"earshot: {url}: ", self.bus.run("get", "--verbose", url).stderr)
        got = self.bus.run("get", "--json", url)
        self.assertEqual(json.loads(got.stdout)["url"], url, "a program gets back what it gave")
        self.assertNotIn(SECRET, got.stderr)

    def test_watch_leaves_them_out_of_failures(self):
        for request, options, shown in ((1, [], "?..."), (2, ["-v"], f"?token={SECRET}")):
            watch = self.bus.start("watch", "secret", "--count", "1", *options)
            watch.await_line("listening")
            self.bus.client().fetch("secret", request, f"{self.origin.url}/status/404?token={SECRET}")
            self.assertEqual(watch.wait(), 22, watch.describe())
            self.assertEqual(watch.stdout.decode(), f"secret {request} http-status {self.origin.url}/status/404{shown}\n")

    def test_watch_and_cache_list_leave_them_out_of_results(self):
        path = f"/kept/secret?cc=max-age%3D1000&bytes=10&token={SECRET}"
        url = f"http://me:{SECRET}@{self.address()}{path}"
        for request, options, shown in ((1, [], f"{self.origin.url}/kept/secret?..."), (2, ["-v"], url)):
            watch = self.bus.start("watch", "secret", "--count", "1", *options)
            watch.await_line("listening")
            self.bus.client().fetch("secret", request, url)
            self.assertEqual(watch.wait(), 0, watch.describe())
            self.assertEqual(watch.stdout.decode(), f"secret {request} 200 {shown}\n")
        self.bus.run("get", self.origin.url + path)
        runtime = ["--runtime", self.bus.runtime]
        # The cache writes its table 50 ms later.
        shown = eventually(lambda: self.bus.run("cache", "list", *runtime).stdout.decode(), "the response is in the cache")
        self.assertIn(f"{self.origin.url}/kept/secret?...\n", shown)
        self.assertNotIn(SECRET, shown)
        self.assertIn(SECRET, self.bus.run("cache", "list", "-v", *runtime).stdout.decode())

    def test_submit_leaves_them_out(self):
        submit = self.bus.run("submit", f"http://me:{SECRET}@h/a b?{SECRET}")
        self.assertIn("http://h/a b?...: malformed URL", submit.stderr)
        self.assertNotIn(SECRET, submit.stderr)
