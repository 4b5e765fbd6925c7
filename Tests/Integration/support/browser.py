"""Headless Chromium, controlled over its DevTools protocol through two pipes."""

import base64
import itertools
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile

PROGRAM = "/usr/bin/chromium"
TIMEOUT = 30
"""Time limit in seconds for each answer of the browser."""


class Browser:
    """Browser with one page: `with Browser() as browser:`. `problems` collects errors and warnings of the page."""

    def __init__(self, width=1280, height=800, dark=False):
        self.problems = []
        self._size = (width, height)
        self._dark = dark
        self._counter = itertools.count(1)
        self._buffer = b""
        self._session = None
        self._is_loaded = False

    def __enter__(self):
        self._home = pathlib.Path(tempfile.mkdtemp(prefix="ear-browser-"))
        commands, self._to = os.pipe()
        self._from, answers = os.pipe()
        # The browser reads from descriptor 3 and writes to descriptor 4.
        redirect = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", redirect, "bash", str(commands), str(answers), PROGRAM, "--headless", "--no-sandbox",
             "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
             "--disable-smooth-scrolling",
             "--remote-debugging-pipe", f"--user-data-dir={self._home}", "about:blank"],
            pass_fds=(commands, answers), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env={**os.environ, "HOME": str(self._home)})
        os.close(commands)
        os.close(answers)
        try:
            target = self._call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log"):
                self._call(f"{domain}.enable")
            self._call("Emulation.setFocusEmulationEnabled", enabled=True)
            self.resize(*self._size)
            scheme = {"name": "prefers-color-scheme", "value": "dark" if self._dark else "light"}
            self._call("Emulation.setEmulatedMedia", features=[scheme])
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        os.close(self._to)
        os.close(self._from)
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._home, ignore_errors=True)

    def open(self, url):
        """Opens a page and waits until it has loaded."""
        self._is_loaded = False
        self._call("Page.navigate", url=url)
        while not self._is_loaded:
            self._note(self._receive())

    def resize(self, width, height):
        """Sets the size of the window in pixels."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def run(self, script):
        """Returns the value of a JavaScript expression."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def until(self, script, what, timeout=60):
        """Waits until a JavaScript expression is true, and checks it again with each frame that the page draws."""
        waiting = (f"new Promise(done => {{ const stop = performance.now() + {timeout * 1000};"
                   f" const look = () => ({script}) ? done(true) : performance.now() > stop ? done(false)"
                   f" : requestAnimationFrame(look); look(); }})")
        if not self.run(waiting):
            raise AssertionError(f"browser: not within {timeout} s: {what}")

    def press(self, key):
        """Presses a key, such as `PageDown`."""
        for kind in ("rawKeyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                       windowsVirtualKeyCode={"PageUp": 33, "PageDown": 34, "End": 35, "Home": 36}[key])

    def picture(self, path):
        """Writes a PNG of the page."""
        data = self._call("Page.captureScreenshot", format="png")["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

    # The protocol: JSON objects that end in a NUL.

    def _call(self, method, **parameters):
        number = next(self._counter)
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                if "error" in answer:
                    raise AssertionError(f"browser: {method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _receive(self):
        while b"\0" not in self._buffer:
            if not select.select([self._from], [], [], TIMEOUT)[0]:
                raise AssertionError(f"browser: no answer within {TIMEOUT} s")
            data = os.read(self._from, 1 << 16)
            if not data:
                raise AssertionError("browser: it has ended")
            self._buffer += data
        head, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(head)

    def _note(self, event):
        given = event.get("params", {})
        if event["method"] == "Page.loadEventFired":
            self._is_loaded = True
        elif event["method"] == "Runtime.exceptionThrown":
            self.problems.append(given["exceptionDetails"]["text"])
        elif event["method"] == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning", "assert"):
            self.problems.append(str(given["args"]))
        elif event["method"] == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
            self.problems.append(f"{given['entry']['text']} {given['entry'].get('url', '')}")
