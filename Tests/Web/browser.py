"""Headless Chromium, controlled by its DevTools protocol over a pipe: JSON messages that end in a zero byte."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

from support.tools import tool


class Browser:
    """`with Browser() as browser:` opens one page. `console` collects its errors and warnings. `proxy`: URL of a proxy for all
    addresses, those of loopback included. `resolver`: rule for the addresses of names."""

    def __init__(self, proxy=None, resolver=None):
        self._folder = tempfile.mkdtemp(prefix="ear-chromium-")
        from_us, self._write = os.pipe()
        self._read, to_us = os.pipe()
        # The protocol's descriptors are 3 and 4, so the copies must have other numbers.
        ours = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10) for descriptor in (from_us, to_us)]
        command = [tool("chromium", "chromium"), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                   "--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-component-update",
                   f"--user-data-dir={self._folder}", "--remote-debugging-pipe", "about:blank"]
        if proxy:
            command[1:1] = [f"--proxy-server={proxy.rstrip('/')}", "--proxy-bypass-list=<-loopback>"]

        if resolver:
            command[1:1] = [f"--host-resolver-rules={resolver}"]

        def arrange_descriptors():
            os.dup2(ours[0], 3)
            os.dup2(ours[1], 4)

        self._process = subprocess.Popen(command, preexec_fn=arrange_descriptors, pass_fds=(3, 4), stdout=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL,
                                         env={**os.environ, "HOME": self._folder, "XDG_CONFIG_HOME": self._folder})
        for descriptor in (from_us, to_us, *ours):
            os.close(descriptor)
        self._buffer = b""
        self._number = 0
        self._session = None
        self.console = []
        self.requested = []

    def __enter__(self):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(60)
        os.close(self._write)
        os.close(self._read)
        shutil.rmtree(self._folder, ignore_errors=True)

    def call(self, method, **parameters):
        """Calls a method of the protocol, and returns its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 60
        while True:
            answer = self._next(deadline, method)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]

    def _next(self, deadline, what):
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], max(0, deadline - time.monotonic()))[0]:
                raise AssertionError(f"Chromium does not answer {what}")
            data = os.read(self._read, 1 << 20)
            if not data:
                raise AssertionError(f"Chromium ended before {what}")
            self._buffer += data
        text, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(text)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, method, parameters):
        if method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.console.append(str(parameters["args"]))
        elif method == "Runtime.exceptionThrown":
            self.console.append(str(parameters["exceptionDetails"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.console.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requested.append(parameters["request"]["url"])

    def open(self, url, width=1280, height=900, dark=False):
        """Opens a page with this size and colour scheme."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url=url)

    def value(self, script):
        """Returns the value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def press(self, key, code, text=None):
        """Presses and releases a key."""
        more = {"text": text} if text else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def picture(self, path, full=True):
        """Writes a PNG of the page."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full)["data"]
        path.write_bytes(base64.b64decode(data))
