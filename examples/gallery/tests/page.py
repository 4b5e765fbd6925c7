"""A page without a browser, with the behaviour of page.js, one step at a time."""

import http.client
import json
import threading
import urllib.parse


class Page:
    """Open page with `cells` cells: `with Page(url, 12) as page:`."""

    def __init__(self, url, cells):
        self.address = urllib.parse.urlsplit(url).netloc
        self.cells = cells
        self.name = None
        self.items = None
        self.first = None
        self.counters = {}
        self.events = []
        self.last_fields = None
        self._changed = threading.Condition()
        self._events = None
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self):
        connection = http.client.HTTPConnection(self.address, timeout=20)
        connection.request("GET", f"/events?cells={self.cells}")
        self._socket = connection.sock
        self._events = connection.getresponse()
        assert self._events.status == 200, self._events.status
        self._reader.start()
        self.until(lambda: self.name is not None, "a screen")
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Closes the page."""
        if self._events is not None:
            self._socket.shutdown(2)
            self._reader.join(10)
            self._events.close()
            self._events = None

    def request(self, method, path, body=None, fields=None):
        """Returns the status and the body of a response; sets `last_fields` to its header fields."""
        connection = http.client.HTTPConnection(self.address, timeout=20)
        try:
            connection.request(method, path, body, fields or {})
            answer = connection.getresponse()
            self.last_fields = answer.headers
            return answer.status, answer.read()
        finally:
            connection.close()

    def scroll(self, first):
        """Scrolls to item `first`."""
        status, _ = self.request("POST", f"/screen/{self.name}", json.dumps({"first": first}))
        assert status == 204, status
        self.first = first

    def on_screen(self):
        return range(self.first, self.first + self.cells)

    def await_shown(self):
        """Waits for an event for each item on the screen, and returns the latest of each."""
        def shown():
            received = {event["item"]: event for event in self.events}
            return {item: received[item] for item in self.on_screen() if item in received}
        self.until(lambda: len(shown()) == self.cells, lambda: f"all of {self.on_screen()}, got {sorted(shown())}")
        with self._changed:
            return shown()

    def picture(self, item):
        """Returns the status and the body of the picture of `item`."""
        return self.request("GET", f"/picture/{self.name}/{item}")

    def until(self, condition, what, timeout=15):
        with self._changed:
            if not self._changed.wait_for(condition, timeout):
                raise AssertionError(f"page: not within {timeout} s: {what() if callable(what) else what}")

    def _read(self):
        try:
            for line in self._events:
                if line.startswith(b"data: "):
                    with self._changed:
                        self._receive(json.loads(line[6:]))
                        self._changed.notify_all()
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            pass  # The page or the server has closed.

    def _receive(self, event):
        if "screen" in event:
            self.name, self.items = event["screen"], event["items"]
        elif "counters" in event:
            self.counters = event["counters"]
        else:
            self.events.append(event)
