"""Tests of the gallery as a user runs it, scrolled by a page without a browser."""

import pathlib
import signal
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
GALLERY = HERE.parent
sys.path[:0] = [str(HERE), str(GALLERY), str(GALLERY.parent / "python/tests")]

from fixture import environment  # noqa: E402 (the paths come first)
from page import Page  # noqa: E402
from support.faults import kept_seed  # noqa: E402
from support.harness import PYTHON, Bus, check_ledgers  # noqa: E402
from support.origin import Origin, body  # noqa: E402
from support.processes import Program, eventually, kill  # noqa: E402

ITEMS = 2000
CELLS = 12
LARGE = 400_000
"""Size of a picture that takes 20 s, in steps of 50 ms, in bytes."""

SMALL = 20_000


class GalleryTests(unittest.TestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.bus = self.enterContext(Bus(workers=1, origin_limit=CELLS))

    def open(self, targets, cells=CELLS):
        """Opens a page of a gallery of these pictures."""
        pictures = self.bus.folder / "pictures.txt"
        pictures.write_text("".join(f"{self.origin.url}{target}\n" for target in targets))
        self.program = Program([PYTHON, "-B", GALLERY / "gallery.py", pictures],
                               environment(EARSHOT_RUNTIME=self.bus.runtime))
        self.addCleanup(self.end, self.program)
        url = self.program.await_line("gallery: ", "stdout").split()[1]
        return self.enterContext(Page(url, cells))

    def end(self, program):
        program.signal(signal.SIGTERM)
        self.assertEqual((program.wait(), program.stderr), (0, ""), "it ends as asked, and had nothing to complain of")

    def ledger(self):
        return self.bus.client().query("ledger")

    def test_what_left_the_screen_is_not_fetched(self):
        last = range(ITEMS - CELLS, ITEMS)
        targets = [f"/drip?bytes={LARGE}&seconds=20&seed={item}" for item in range(ITEMS)]
        for item in last:
            targets[item] = f"/drip?bytes={SMALL}&seconds=0.2&seed={item}"
        page = self.open(targets)
        self.assertEqual(page.items, ITEMS)

        for first in range(0, ITEMS - CELLS + 1, 4):
            page.scroll(first)
            if first == ITEMS // 2:
                self.origin.await_running(CELLS)
                for item in page.on_screen():
                    self.origin.await_count(targets[item], 1)
        shown = page.await_shown()
        for item in last:
            self.assertEqual(shown[item]["picture"], f"/picture/{page.name}/{item}")
            status, data = page.picture(item)
            self.assertEqual(status, 200)
            self.assertTrue(data == body(SMALL, str(item)), f"item {item} has the picture of another")
        self.assertLessEqual({event["item"] for event in page.events}, set(last), "nothing was told of what had left")

        self.origin.await_running(0)
        seen = self.origin.log()
        self.assertEqual(len(seen), len({request.target for request in seen}), "each was asked for once at most")
        cut = {request.target for request in seen if request.aborted}
        self.assertEqual({request.target for request in seen} - cut, {targets[item] for item in last})
        self.assertLessEqual({targets[item] for item in range(ITEMS // 2, ITEMS // 2 + CELLS)}, cut)

        eventually(lambda: self.ledger()["requests"]["pending"] == 0, "nothing is wanted any more")
        ledger = self.ledger()
        check_ledgers(ledger)
        self.assertEqual(ledger["requests"]["answered"], CELLS)
        unwanted = ledger["flights"]["bytes-unwanted"]
        page.until(lambda: page.counters["working"] == 0 and page.counters["unwanted"] >= unwanted, "the last counters")
        requests = ledger["requests"]
        wanted = {"requested": requests["submitted"], "fetched": ledger["flights"]["assigned"], "cached": 0,
                  "dropped": requests["removed"] + requests["orphaned"]}
        page.until(lambda: wanted.items() <= page.counters.items(), f"{wanted}, and not {page.counters}")
        self.assertEqual(page.counters["requested"], CELLS + page.counters["dropped"], "each was shown or dropped")
        self.assertLess(page.counters["unwanted"], LARGE, "less than one picture was fetched in vain")

    def test_rows_that_come_back_come_from_the_cache(self):
        targets = [f"/kept/{item}?cc=max-age=600&bytes={SMALL}" for item in range(3 * CELLS)]
        page = self.open(targets)
        for first in (0, CELLS, 0):
            page.events.clear()
            page.scroll(first)
            page.await_shown()
        for item in page.on_screen():
            self.assertTrue(page.picture(item) == (200, body(SMALL, kept_seed(str(item)))), item)
            self.assertEqual(self.origin.count(targets[item]), 1)
        page.until(lambda: page.counters.get("cached") == CELLS, "the cache's answers are counted")
        self.assertEqual(page.picture(CELLS), (204, b""), "what is not on the screen is not kept")

    def test_a_page_that_is_closed_wants_nothing(self):
        page = self.open([f"/stall/{SMALL + item}" for item in range(100)])
        page.scroll(40)
        self.origin.await_running(CELLS)
        page.until(lambda: page.counters.get("working") == CELLS, "the counter of what is at work")
        other = self.enterContext(Page(f"http://{page.address}/", 1))
        other.scroll(51)
        page.close()
        for item in range(40, 51):
            self.origin.await_aborts(f"/stall/{SMALL + item}")
        self.origin.await_running(1)
        eventually(lambda: self.ledger()["requests"]["pending"] == 1, "the other page's item is wanted")

    def test_the_end_of_the_list_and_failures_are_shown(self):
        page = self.open([f"/bytes/{item + 1}" for item in range(8)] + ["/status/404", "/two words", "/bytes/10"],
                         cells=4)
        page.scroll(8)
        page.until(lambda: len(page.events) == 3, "three items")
        received = {event["item"]: event for event in page.events}
        self.assertEqual((received[8]["failed"], received[9]["failed"]), ("http-status", "malformed-url"))
        self.assertEqual(page.picture(10), (200, body(10)))
        page.scroll(0)
        page.await_shown()
        page.scroll(0)
        self.assertEqual(self.origin.total, 6, "an item that stays is not asked for again")

    def test_a_picture_is_no_page_of_ours(self):
        page = self.open(["/headers"], cells=1)
        page.scroll(0)
        page.await_shown()
        self.assertEqual(page.picture(0)[0], 200)
        self.assertEqual(page.last_fields["content-type"], "application/octet-stream", "the server said text/plain")
        self.assertEqual(page.last_fields["x-content-type-options"], "nosniff")
        self.assertIn("sandbox", page.last_fields["content-security-policy"])

    def test_what_is_on_the_screen_comes_though_the_broker_dies(self):
        page = self.open([f"/gate/items?bytes={SMALL}&seed={item}" for item in range(CELLS)])
        page.scroll(0)
        self.origin.await_running(CELLS)
        kill(self.bus.broker)
        self.origin.open_gate("items")
        page.await_shown()
        for item in range(CELLS):
            self.assertTrue(page.picture(item) == (200, body(SMALL, str(item))), item)

    def test_it_ends_while_no_bus_runs(self):
        page = self.open([f"/stall/{SMALL + item}" for item in range(CELLS)])
        page.scroll(0)
        self.origin.await_running(CELLS)
        self.bus.kill()

    def test_what_no_page_says_is_refused(self):
        page = self.open(["/bytes/1"], cells=1)
        screen = f"/screen/{page.name}"
        for status, method, path, content, fields in [
            (403, "GET", "/", None, {"Host": "gallery.example"}),
            (403, "POST", screen, '{"first": 0}', {"Origin": "http://evil.example"}),
            (404, "POST", "/screen/0123456789abcdef", '{"first": 0}', {}),
            (204, "GET", f"/picture/{page.name}/0", None, {}),
            (204, "GET", "/picture/0123456789abcdef/0", None, {}),
            (404, "GET", "/../gallery.py", None, {}),
            (404, "PUT", "/", None, {}),
            (400, "POST", screen, '{"first": 1}', {}),
            (400, "POST", screen, '{"first": -1}', {}),
            (400, "POST", screen, '{"first": true}', {}),
            (400, "POST", screen, "[" * 4000, {}),
            (400, "POST", screen, b"\xff", {}),
            (400, "GET", "/events?cells=0", None, {}),
            (400, "GET", "/events?cells=257", None, {}),
            (400, "GET", "/?" + "&".join("a=1" for _ in range(9)), None, {}),
            (400, "GET", "/", None, {"Content-Length": "x"}),
            (413, "POST", screen, "x" * 5000, {}),
            (431, "GET", "/", None, {"X": "x" * 20_000}),
        ]:
            with self.subTest(method=method, path=path[:30], content=(content or "")[:15], fields=str(fields)[:40]):
                self.assertEqual(page.request(method, path, content, fields)[0], status)
        self.assertEqual(self.origin.total, 0)
        page.scroll(0)
        page.await_shown()
        self.assertEqual(page.request("GET", "/")[0], 200)
        self.assertIn(b"EventSource", page.request("GET", "/page.js")[1])
        self.assertIn(b"<svg", page.request("GET", "/icon.svg")[1])
