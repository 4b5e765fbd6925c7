"""Tests of the page in headless Chromium."""

import signal
import unittest

import test_gallery  # noqa: F401 (the paths come first)
from fixture import environment
from pictures import Pictures
from support.browser import Browser
from support.harness import PYTHON, Bus
from support.processes import Program

COUNT = 2000
SHOWN = "[...document.querySelectorAll('.cell:not([hidden])')]"
IN_VIEW = f"""{SHOWN}.filter(cell => {{
    const place = cell.getBoundingClientRect(), list = document.getElementById('list').getBoundingClientRect();
    return place.bottom > list.top + 1 && place.top < list.bottom - 1;
}})"""
LOADED = f"({IN_VIEW}).length && ({IN_VIEW}).every(cell => cell.querySelector('img')?.naturalWidth === 64)"


def counter(name):
    return f"+document.getElementById('{name}').textContent.replace(/[^0-9]/g, '')"


class BrowserTests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        pictures = cls.enterClassContext(Pictures())
        bus = cls.enterClassContext(Bus(workers=1, origin_limit=64))
        listed = bus.folder / "pictures.txt"
        # Each picture occurs twice, so that requests share transfers.
        urls = [f"{pictures.url}/picture/{number // 2}" for number in range(COUNT)]
        urls[1] = f"{pictures.url}/missing"
        listed.write_text("".join(f"{url}\n" for url in urls))
        program = Program([PYTHON, "-B", test_gallery.GALLERY / "gallery.py", listed],
                          environment(EARSHOT_RUNTIME=bus.runtime))
        cls.addClassCleanup(program.wait)
        cls.addClassCleanup(program.signal, signal.SIGTERM)
        cls.url = program.await_line("gallery: ", "stdout").split()[1]
        cls.browser = cls.enterClassContext(Browser(1280, 800))
        cls.browser.open(cls.url)
        cls.browser.until(f"{SHOWN}.length", "a screen")

    def tearDown(self):
        self.assertEqual(self.browser.problems, [])

    def scroll(self, where):
        self.browser.run(f"document.getElementById('list').scrollTop = {where}")

    def test_the_grid_fills_the_page_at_any_width(self):
        for width, height, columns in [(1280, 800, 7), (360, 640, 2), (3840, 2160, 17)]:
            with self.subTest(width=width):
                self.browser.resize(width, height)
                positions = f"({IN_VIEW}).map(cell => cell.getBoundingClientRect())"
                line = f"Math.min(...{positions}.map(rect => rect.top))"
                self.browser.until(f"({positions}).filter(rect => rect.top === {line}).length === {columns}",
                                   f"{columns} columns")
                self.scroll(5000)
                self.browser.until(LOADED, "all pictures in view")
                edges = self.browser.run(f"""(() => {{
                    const positions = {positions}, list = document.getElementById('list');
                    return [Math.min(...positions.map(rect => rect.left)), Math.max(...positions.map(rect => rect.right)),
                            list.clientWidth, Math.max(...positions.map(rect => rect.bottom)), innerHeight,
                            document.documentElement.scrollWidth, {SHOWN}.length];
                }})()""")
                left, right, inner, bottom, end, page, cells = edges
                self.assertEqual(left, 0)
                self.assertAlmostEqual(right, inner, delta=1)
                self.assertGreaterEqual(bottom, end - 1)
                self.assertLessEqual(page, width, "nothing is beyond the edge")
                self.assertLessEqual(cells, 256)

    def test_counters_move_while_the_list_scrolls(self):
        self.browser.resize(1280, 800)
        self.scroll(0)
        self.browser.until("document.querySelector('.cell i')?.textContent === 'http-status'", "the missing picture")
        self.browser.until(f"{counter('requested')} > 0", "a counter")
        before = self.browser.run(counter("requested"))
        for where in range(0, 20_000, 400):
            self.scroll(where)
        self.browser.until(LOADED, "all pictures in view")
        self.browser.until(f"{counter('requested')} > {before} && {counter('fetched')} > 0 && {counter('working')} === 0",
                           "the counters of the bus")
        self.assertLess(self.browser.run(counter("fetched")), self.browser.run(counter("requested")), "pairs share a fetch")

    def test_keys_scroll_without_a_click(self):
        self.scroll(0)
        self.browser.press("End")
        self.browser.until(f"{SHOWN}.some(cell => cell.textContent === '{COUNT}')", "the last picture")
        self.browser.press("Home")
        self.browser.until(f"{SHOWN}.some(cell => cell.textContent === '1')", "the first picture")
