"""The live page in headless Chromium: its values move, without errors and requests to other servers.

`EARSHOT_PICTURES` names a folder for screenshots."""

import os
import pathlib
import unittest

import checkout  # noqa: F401
from browser import Browser
from web import Web
from support.harness import Bus, TestCase
from support.origin import Origin
from support.processes import eventually


def text(browser, element):
    return browser.value(f"document.getElementById('{element}')?.textContent ?? ''")


class PageTests(TestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.bus = self.enterContext(Bus())
        self.web = self.enterContext(Web(self.bus))
        self.client = self.bus.client()
        self.browser = self.enterContext(Browser())

    def tearDown(self):
        self.assertEqual(self.browser.console, [])
        own = ("about:", self.web.url)
        self.assertEqual([url for url in self.browser.requested if not url.startswith(own)], [])

    def fetch(self, count, name):
        for number in range(count):
            self.client.fetch("page", f"{name}-{number}", f"{self.origin.url}/bytes/2000?seed={name}{number}")
        for _ in range(count):
            self.client.terminal()

    def picture(self, name):
        if folder := os.environ.get("EARSHOT_PICTURES"):
            self.browser.picture(pathlib.Path(folder) / f"{name}.png")

    def test_the_values_move(self):
        self.browser.open(self.web.url)
        eventually(lambda: text(self.browser, "state") == "ready", "the page is connected", 30)
        self.assertEqual(text(self.browser, "tile-answered"), "0")
        self.fetch(20, "a")
        eventually(lambda: text(self.browser, "tile-answered") == "20", "20 answers", 30)
        self.client.fetch("page", "missing", f"{self.origin.url}/status/404")
        self.client.terminal()
        eventually(lambda: "http-status" in text(self.browser, "failures"), "the cause of a failure", 30)
        self.assertIn("1 request failed: http-status", text(self.browser, "events"))
        for round in range(3):
            self.fetch(10, f"b{round}")
            eventually(lambda: text(self.browser, "tile-answered") == str(30 + 10 * round), "more answers", 30)
        points = self.browser.value("[...document.querySelectorAll('polyline')].map(line => line.getAttribute('points')"
                                    ".split(' ').length)")
        self.assertGreater(max(points), 3)
        on_top = self.browser.value("document.querySelector('.plot svg').lastChild.getAttribute('class')")
        self.assertEqual(on_top, "s0", "submitted requests cover the answers")
        self.picture("light")
        for value, state in [("closed", "not ready: the setting admission is closed"), ("open", "ready")]:
            self.bus.run("set", "admission", value)
            eventually(lambda: text(self.browser, "state") == state, f"admission is {value}", 30)
            self.assertIn(f"admission is {value}", text(self.browser, "events"))
        worker = self.bus.workers[0]
        os.kill(worker, 9)
        eventually(lambda: f"worker {worker} disconnected" in text(self.browser, "events"), "the death of a worker", 30)
        self.client.fetch("page", "held", f"{self.origin.url}/hang")
        eventually(lambda: self.origin.url in text(self.browser, "origins"), "the origin of a transfer", 30)
        self.browser.value("document.getElementById('handler').focus()")
        self.browser.type("page")
        self.browser.press("Tab", 9)
        self.browser.type("held")
        self.browser.press("Enter", 13, "\r")
        eventually(lambda: "running" in text(self.browser, "reason"), "the state of a request", 30)
        self.client.remove("page")

    def test_it_fits_narrow_and_dark_screens(self):
        self.fetch(5, "a")
        for width, dark in [(360, False), (360, True), (1280, True)]:
            self.browser.open(self.web.url, width=width, dark=dark)
            eventually(lambda: text(self.browser, "tile-answered") == "5", "the page has values", 30)
            self.assertLessEqual(self.browser.value("document.documentElement.scrollWidth"), width)
            # Rates are unknown with the first sample.
            for word in ("NaN", "undefined", "Infinity"):
                self.assertNotIn(word, self.browser.value("document.body.textContent"))
            ground = self.browser.value("getComputedStyle(document.body).backgroundColor")
            brightness = sum(int(part) for part in ground.strip("rgb()").split(",")[:3])
            self.assertEqual(brightness < 384, dark, ground)
            self.picture(f"{width}-{'dark' if dark else 'light'}")


if __name__ == "__main__":
    unittest.main()
