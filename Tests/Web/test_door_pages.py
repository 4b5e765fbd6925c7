"""Pages that attack the HTTP door through the browser: those of other sites, below the prefix, and under a name that is rebound."""

import unittest

import checkout  # noqa: F401
from browser import Browser
from door import HOST, Door, Site
from web import Web
from support.harness import TestCase
from support.origin import Origin
from support.processes import eventually

REBOUND = "rebound.example"
"""A name that the browser resolves to loopback, as an attacker's name server would."""

TRIES = """<script>
    const element = (name, attributes, parent = document.body) => new Promise(done => {
        const it = document.createElement(name)
        it.onload = () => done("loaded"), it.onerror = () => done("error")
        parent.append(Object.assign(it, attributes))
    })
    const form = (target, enctype, name, value) => new Promise(done => {
        const frame = document.createElement("iframe")
        document.body.append(Object.assign(frame, {name: "f" + Math.random()}))
        const it = Object.assign(document.createElement("form"), {action: target, method: "post", target: frame.name, enctype})
        it.append(Object.assign(document.createElement("input"), {name, value}))
        document.body.append(it)
        frame.onload = () => done("loaded")
        it.submit()
    })
    // A frame without an origin, whose requests have the Origin null.
    const opaque = script => new Promise(done => {
        onmessage = event => done(event.data)
        element("iframe", {sandbox: "allow-scripts", srcdoc: `<script>(async () => { ${script} })().then(
            text => parent.postMessage("read " + text, "*"), error => parent.postMessage(String(error), "*"))<` + "/script>"})
    })
    const stream = (it, text) => new Promise(done => {
        it.onmessage = event => done("read " + event.data), it.onopen = () => done("open"), it.onerror = () => done("error")
    })
    const BODY = JSON.stringify({url: "TRIGGERED", requests: [{url: "TRIGGERED", durable: true}]})
    const read = (target, options) => fetch(target, options).then(answer => answer.text()).then(text => "read " + text)
    const types = [undefined, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a"]
    const tries = target => [
        read(target), read(target, {credentials: "include", cache: "no-store"}), read(target, {method: "HEAD"}),
        read(target, {mode: "same-origin"}), read(target, {mode: "no-cors"}), read(target, {redirect: "manual"}),
        ...["cors", "no-cors"].flatMap(mode => types.map(type =>
            read(target, {mode, method: "POST", body: BODY, headers: type ? {"Content-Type": type} : {}}))),
        read(target, {method: "POST", body: BODY, headers: {"Content-Type": "application/json", "Earshot-API": "1"}}),
        read(target, {method: "DELETE"}), read(target, {headers: {Authorization: "Bearer a", "Earshot-API": "1"}}),
        Promise.resolve(navigator.sendBeacon(target, new Blob([BODY], {type: "text/plain"}))),
        element("img", {src: target}), element("img", {src: target, crossOrigin: "anonymous"}), element("script", {src: target}),
        element("link", {rel: "stylesheet", href: target}, document.head), element("video", {src: target}),
        element("script", {type: "module", src: target}), element("iframe", {src: target}), element("object", {data: target}),
        import(target), stream(new EventSource(target)), stream(new WebSocket(target.replace("http", "ws"))),
        form(target, "text/plain", BODY.slice(0, -1) + ',"x":"', '"}'), form(target, "multipart/form-data", "url", "TRIGGERED"),
        form(target, "application/x-www-form-urlencoded", "url", "TRIGGERED"),
    ]
    const run = async targets => {
        let all = [read("/own")].concat(targets.flatMap(tries))
        all = await Promise.allSettled(all)
        for (const target of targets) {
            all.push(await opaque(`return (await fetch("${target}")).text()`))
            all.push(await opaque(`return (await fetch("${target}", {method: "POST", mode: "no-cors", body: '${BODY}'})).text()`))
        }
        return all.map(one => String(one.value ?? one.reason ?? one))
    }
    onload = () => window.result = run(TARGETS)
</script><body>"""


class HostilePageTests(TestCase):
    """Journals of the site and counters of the bus show that a page reads and triggers nothing of the API, the live page and the
    prefix."""

    @classmethod
    def setUpClass(cls):
        cls.door = cls.enterClassContext(Door(arguments=["--http-api", "0"], origin_limit=100))
        cls.web = cls.enterClassContext(Web(cls.door))
        cls.origin = cls.enterClassContext(Origin())
        # Answers of the API and the live page name this request.
        cls.client = cls.enterClassContext(cls.door.client())
        cls.client.fetch("secret", 1, f"{cls.origin.url}/hang")
        cls.origin.journal.await_count("/hang", 1)

    def setUp(self):
        self.site, other = self.enterContext(Site()), self.enterContext(Site())
        self.site.publish("/secret", "text/html", "secret", Access_Control_Allow_Origin="*")
        self.control = other.publish("/control", "text/plain", "permitted", Access_Control_Allow_Origin="*")
        port, redirect = self.door.api_port, f"{self.origin.url}/redirect-to?url="
        api, below = f"http://{HOST}:{port}/v1/", f"{self.door.proxy}{self.site.url}/secret"
        self.targets = [below, redirect + below, self.web.url + "status.json", self.web.url + "events",
                        f"{redirect}{api}fetch&status=307", f"{redirect}{api}requests", f"http://[::ffff:{HOST}]:{port}/v1/requests",
                        *(api + path for path in ("status", "requests", "fetch", "sessions", "events?session=a"))]

    def publish_tries(self):
        text = TRIES.replace("TARGETS", repr([*self.targets, self.control])).replace("TRIGGERED", f"{self.site.url}/triggered")
        return self.site.publish("/evil", "text/html", text)

    def numbers(self):
        """What a request, a session or a removal would change."""
        status = self.client.query("status")
        return [status[name] for name in ("requests", "clients", "clients-away", "handlers", "queue")]

    def assertHarmless(self, browser, url):
        received = self.door.status()["http"]["requests"]
        browser.open(url)
        eventually(lambda: browser.value("!!window.result"), "the page has begun its tries")
        result = browser.value("window.result")
        self.assertEqual((len(result) - 1) % (len(self.targets) + 1), 0, result)
        read = [text for text in result if text.startswith("read ")]
        # Opaque responses are empty.
        self.assertEqual(set(read), {"read ", "read permitted"})
        self.assertGreater(read.count("read permitted"), 3, "a page reads what it may")
        eventually(lambda: self.door.status()["http"]["requests"] - received > 100, "the tries reached the door")
        self.assertTrue({"/secret", "/triggered"}.isdisjoint(self.site.requested), self.site.requested)

    def test_a_page_of_another_site_reads_and_triggers_nothing(self):
        url = self.publish_tries()
        before = self.numbers()
        with Browser(resolver=f"MAP {REBOUND} {HOST}") as browser:
            for host in (HOST, REBOUND):
                self.assertHarmless(browser, url.replace(HOST, host))
        self.assertEqual(self.numbers(), before)

    def test_a_page_that_the_proxy_shows_reads_and_triggers_nothing(self):
        url = self.publish_tries()
        with Browser(self.door.proxy) as browser:
            self.assertHarmless(browser, url)

    def test_a_page_whose_name_is_rebound_reads_and_triggers_nothing(self):
        before = self.numbers()
        with Browser(resolver=f"MAP {REBOUND} {HOST}") as browser:
            for port, path in [(self.door.api_port, "/v1/requests"), (self.door.port, f"/{self.site.url}/secret"),
                               (self.web.port, "/status.json")]:
                # The browser takes the server for one of the page's own origin.
                browser.open(f"http://{REBOUND}:{port}/")
                eventually(lambda: browser.value("document.readyState") == "complete", "the page is complete")
                text = f'''Promise.all([fetch("{path}"), fetch("{path}", {{method: "POST", body: '{{"url": "{self.site.url}/triggered"}}',
                    headers: {{"Content-Type": "application/json", "Earshot-API": "1"}}}})]).then(all => all.map(one => one.status))'''
                self.assertEqual(browser.value(text), [421, 405 if port == self.web.port else 421], port)
        self.assertEqual((self.numbers(), self.site.requested), (before, []))

    def test_a_page_below_the_prefix_runs_no_script_and_triggers_nothing(self):
        tries = "".join(f"""<img src="{target}"><script src="{target}"></script><link rel="stylesheet" href="{target}">
            <iframe src="{target}"></iframe><object data="{target}"></object><video src="{target}"></video>
            <meta http-equiv="refresh" content="0; url={target}">""" for target in self.targets)
        api = f"http://{HOST}:{self.door.api_port}/v1/"
        url = self.site.publish("/evil", "text/html", f"""<title>before</title><script>document.title = "after"</script>{tries}
            <img src="/{self.site.url}/secret"><p>end</p>""", Link=f"<{api}requests>; rel=preload; as=fetch",
            Content_Security_Policy=f"font-src 'none'; report-uri {api}fetch")
        before = self.numbers()[0]["submitted"]
        with Browser() as browser:
            browser.open(f"{self.door.proxy}{url}")
            eventually(lambda: browser.value("document.readyState") == "complete", "the page is complete")
            self.assertEqual(browser.value("[document.title, document.querySelector('p').innerText]"), ["before", "end"])
            # The browser writes an IPv6 address in another form.
            missing = [url for url in self.targets if "[" not in url and url not in browser.requested]
            self.assertEqual(missing, [], "the page tried it")
        self.assertEqual((self.site.requested, self.numbers()[0]["submitted"] - before), (["/evil"], 1))


if __name__ == "__main__":
    unittest.main()
