"""scrape: the cost of Prometheus, which scrapes the metrics of a bus at work.

Wall time varies by several percent between runs, so this suite compares CPU time of broker and workers for each request. The
contenders take turns in many short phases, and the target holds for the median of the ratios of neighbouring phases.
"""

import contextlib
import http.client
import re
import threading

from bench import asking, cpu, places, servers
from bench.frame import Context, Contender, Failed, Sample, Target
from bench.programs import Server, environment
from bench.suites import idle, service

NAME = "scrape"
TITLE = "A scrape of the metrics beside other work"

PHASES = 40
"""Rounds, unless the command names more."""
REQUESTS = 60_000
"""Requests of a phase: about 1.5 s."""
OUTSTANDING = 100
INTERVALS = [1, 0.25]
"""Seconds between two scrapes. The default of Prometheus is 15 s, where a scrape costs a fifteenth of the first."""
MOST_COST = 1.01
NONE = "no scrape"
HELD = 1_000
"""Handlers and origins with a running transfer in the second table."""
SCRAPES = 20
PAUSE = 0.3
"""Seconds after which a state is too old for the next scrape."""


class Web(Server):
    """`earshot-web` beside a bus."""

    def __init__(self, bus):
        super().__init__("web", [places.earshot_web(), "--runtime", bus.runtime, "--listen", "127.0.0.1:0"], bus.folder,
                         environment())
        self._connection = None

    def await_readiness(self):
        def port():
            return re.search(r"listening at http://127.0.0.1:(\d+)/", self.log.read_text(errors="replace"))

        self.await_condition(port)
        self._connection = http.client.HTTPConnection("127.0.0.1", int(port()[1]), timeout=10)
        self.await_condition(lambda: self.get("/readyz")[0] == 200)

    def __exit__(self, *error):
        if self._connection:
            self._connection.close()
        super().__exit__(*error)

    def get(self, path):
        """Returns status and body of a resource, over a connection that stays open, as that of Prometheus does."""
        self._connection.request("GET", path)
        response = self._connection.getresponse()
        return response.status, response.read()

    def scrape(self):
        status, body = self.get("/metrics")
        if status != 200 or b"\nearshot_up 1\n" not in body:
            raise Failed(f"/metrics answers {status}, {len(body)} bytes")


class Scraper:
    """Context manager that scrapes at once, and then at an interval."""

    def __init__(self, web, interval):
        self._web, self._interval = web, interval
        self.count = 0

    def __enter__(self):
        self._over = threading.Event()
        self._failure = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()
        if self._failure:
            raise self._failure

    def _run(self):
        try:
            while True:
                self._web.scrape()
                self.count += 1
                if self._over.wait(self._interval):
                    return
        except Exception as error:  # The thread's user raises it.
            self._failure = error


def rows(context, quick):
    phases = Context(quick, context.rounds if quick else max(context.rounds, PHASES), context.say)
    with contextlib.ExitStack() as running:
        origin = running.enter_context(servers.Nginx())
        bus = running.enter_context(servers.Bus(None, service.ORIGIN_LIMIT, service.SLOTS))
        web = running.enter_context(Web(bus))
        roles = {"server": lambda: [bus.broker], "workers": lambda: bus.workers}
        client = asking.Client("earshot", asking.compiled("ask-earshot"), f"{bus.command}; ask-earshot", bus.runtime, "", roles)
        plan = asking.Plan(asking.Files(origin.url, 10_000, 1_024), OUTSTANDING, REQUESTS // (20 if quick else 1))
        names = {f"a scrape every {interval:g} s": interval for interval in INTERVALS}
        contenders = [Contender(NONE, client.describe, lambda number: _phase(client, plan, number))]
        contenders += [_beside(name, web, interval, client, plan) for name, interval in names.items()]
        yield phases.measure(f"{OUTSTANDING} outstanding", "µs of CPU for each request", contenders,
                             [Target(list(names)[0], NONE, at_most=MOST_COST)], is_rate=False,
                             note="CPU of broker and workers. A connection gets at most 4 states of the broker in a second.")
    with contextlib.ExitStack() as running:
        scrapes = SCRAPES // (5 if quick else 1)
        contenders = [running.enter_context(_scraped(count, scrapes)) for count in (0, HELD // (10 if quick else 1))]
        yield context.measure("A scrape without other work", "µs of CPU of the broker", contenders, is_rate=False)


def _phase(client, plan, number):
    sample = client.ask(plan, number)
    extra = {"answers_per_s": sample.value, **{name: sample.extra[name] for name in ("server_us", "workers_us")}}
    return Sample(extra["server_us"] + extra["workers_us"], extra)


def _beside(name, web, interval, client, plan):
    def go(number):
        with cpu.Meter([web.pid]) as meter, Scraper(web, interval) as scraper:
            sample = _phase(client, plan, number)
        return Sample(sample.value, {**sample.extra, "scrapes": scraper.count,
                                     "web_us_per_scrape": meter.seconds / scraper.count * 1e6})
    return Contender(name, f"{client.describe}  # beside GET /metrics of earshot-web", go, True)


@contextlib.contextmanager
def _scraped(count, scrapes):
    """A bus with running transfers from this many origins under as many handlers, each scrape with a new state."""
    with contextlib.ExitStack() as running:
        silent = running.enter_context(idle.Silent())
        bus = running.enter_context(servers.Bus(origin_limit=10_000, slots=10_000, arguments=["--requests", "100000"]))
        if count:
            holder = running.enter_context(idle.Holder([places.PROGRAMS / "hold", "origins", count, silent.port], bus))
            holder.await_condition(lambda: idle.running(bus) == count, timeout=60)
        web = running.enter_context(Web(bus))

        def go(_):
            with cpu.Meter([bus.broker]) as broker, cpu.Meter([web.pid]) as meter:
                for _ in range(scrapes):
                    web.scrape()
                    threading.Event().wait(PAUSE)  # Until earshot-web asks for a new state.
            return Sample(broker.seconds / scrapes * 1e6, {"web_us_per_scrape": meter.seconds / scrapes * 1e6})

        yield Contender(f"{count:,} handlers and origins" if count else "idle bus", f"{bus.command}; hold origins {count}", go, True)
