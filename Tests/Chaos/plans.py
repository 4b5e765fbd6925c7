"""Plans of the clients of a chaos run, from the seed alone.

A plan is text with one step on each line; `follower.py` or `earshot-lab client` executes it. Its first line is
`window N lease S`, with S in seconds. The others begin with the milliseconds after the client's start:

    MS request NAME HANDLER URL [FIELD=VALUE]…  the fields of FETCH, and `hold=MS`: delay before a file is read
    MS cancel NAME
    MS remove PATTERN
    MS watch PATTERN, MS unwatch PATTERN
"""

import random

import whims

ORIGINS = 6
"""Number of ports of the origin. The last `GRUMPY` ones answer 503 now and then, which delays all requests to
them."""
GRUMPY = 2

MEAN_GAP = 450
"""Mean time between two steps of a client, in milliseconds."""

LEASES = (0, 0, 1, 5)
"""Leases to choose from, in seconds."""

LANGUAGES = ("python", "swift")


class PlannedRequest:
    """One request of a plan."""

    def __init__(self, name, handler, url, options):
        self.name = name
        self.handler = handler
        self.url = url
        self.options = options
        self.whim = whims.Whim(url)

    @property
    def replaces(self):
        return self.options.get("replace") == "yes"

    @classmethod
    def of(cls, line):
        """Returns the request of a step; None for other steps."""
        _, verb, *words = line.split(" ")
        if verb != "request":
            return None
        return cls(words[0], words[1], words[2], dict(word.split("=", 1) for word in words[3:]))


def root(number):
    """Returns the common prefix of a client's handlers."""
    return f"chaos/c{number}"


def language(number):
    """Returns the language of a client."""
    return LANGUAGES[number % len(LANGUAGES)]


class Planner:
    """Writer of the plan of one life of one client. `begin` is the start of that life in seconds after that of the
    run."""

    def __init__(self, seed, number, life, begin, seconds, clients, bases):
        self.chance = random.Random(f"{seed}/client/{number}/{life}")
        self.number = number
        self.life = life
        self.begin = begin
        self.seconds = seconds
        self.clients = clients
        self.bases = bases
        self.count = 0
        self.recent = []
        self.watched = []

    def text(self):
        window = self.chance.choice([1, 4, 16, 64, 256, 256, 256])
        lines = [f"window {window} lease {self.chance.choice(LEASES)}"]
        at = self.chance.uniform(0, MEAN_GAP)
        while at < self.seconds * 1000:
            lines.append(f"{at:.0f} {self.step(at)}")
            at += self.chance.expovariate(1 / MEAN_GAP)
        return "\n".join(lines) + "\n"

    def step(self, at):
        dice = self.chance.random()
        if dice < 0.04 and self.recent:
            return f"cancel {self.chance.choice(self.recent)}"
        if dice < 0.055:
            return f"remove {self.chance.choice([self.handler(), self.handler(), root(self.number) + '/'])}"
        if dice < 0.058:
            other = self.chance.randrange(self.clients)
            return f"remove {root(other)}/{self.chance.choice('abcde')}"
        if dice < 0.066:
            if self.watched and self.chance.random() < 0.5:
                return f"unwatch {self.watched.pop()}"
            other = (self.number + self.chance.randrange(1, self.clients)) % self.clients if self.clients > 1 else 0
            pattern = f"{root(other)}/"
            if pattern not in self.watched:
                self.watched.append(pattern)
                return f"watch {pattern}"
        return self.submit(at)

    def handler(self):
        return f"{root(self.number)}/{self.chance.choice('abcde')}"

    def submit(self, at):
        self.count += 1
        name = f"{self.number}.{self.life}-{self.count}"
        self.recent = [*self.recent[-4:], name]
        kind = self.chance.choices(KINDS, WEIGHTS)[0]
        resource, base, fields, options = kind(self, name, at)
        if self.chance.random() < 0.3:
            options["priority"] = self.chance.choice(["background", "low", "high"])
        if self.chance.random() < 0.2:
            options["hold"] = self.chance.randrange(50, 3000)
        if self.chance.random() < 0.02:
            options["replace"] = "yes"
        words = [f"{key}={value}" for key, value in options.items()]
        return " ".join(["request", name, self.handler(), whims.url(base, resource, **fields), *words])

    # Kinds of requests: name of the resource, origin, fields of its URL, options of the request.

    def base(self):
        return self.chance.choice(self.bases[:-GRUMPY])

    def slot(self, at):
        """Returns the resource that all clients request at about this time."""
        return f"{int((self.begin + at / 1000) / 2)}.{self.chance.randrange(8)}"

    def shared_base(self, resource):
        """Returns the same origin for all requests of a resource."""
        return self.bases[sum(resource.encode()) % (len(self.bases) - GRUMPY)]

    def small(self, name, _):
        return f"o-{name}", self.base(), {"bytes": self.chance.randrange(100, 5000)}, {}

    def shared(self, _, at):
        resource = f"s-{self.slot(at)}"
        return resource, self.shared_base(resource), {"bytes": 3000}, {}

    def file(self, name, _):
        return f"f-{name}", self.base(), {"bytes": self.chance.randrange(70_000, 300_000)}, {}

    def large(self, _, at):
        resource = f"l-{int((self.begin + at / 1000) / 4)}"
        return resource, self.shared_base(resource), {"bytes": 2_000_000, "rate": 1_000_000}, {}

    def slow(self, name, _):
        return f"d-{name}", self.base(), {"bytes": 20_000, "rate": self.chance.randrange(3000, 9000)}, {}

    def flaky(self, name, _):
        count = self.chance.randrange(1, 4)
        passing = ",".join(self.chance.choice(["cut", "drop", "reset"]) for _ in range(count))
        size = self.chance.choice([1000, 50_000, 400_000])
        return f"k-{name}", self.base(), {"bytes": size, "faults": passing}, {"retries": 4}

    def broken(self, _, at):
        """A file whose transfers break and resume."""
        resource = f"b-{self.slot(at)}"
        fields = {"bytes": 600_000, "rate": 1_500_000, "faults": "cut,drop,cut"}
        return resource, self.shared_base(resource), fields, {"retries": 5}

    def hanging(self, name, _):
        return f"h-{name}", self.base(), {"bytes": 500, "faults": "hang"}, {"retries": 3, "timeout": 1.5}

    def grumpy(self, name, _):
        fields = {"bytes": 500, "faults": self.chance.choice(["503", "429"])}
        return f"g-{name}", self.chance.choice(self.bases[-GRUMPY:]), fields, {"retries": 6}

    def lasting(self, name, _):
        fault = self.chance.choice(sorted(whims.LASTING))
        return f"x-{name}", self.base(), {"bytes": 2000, "then": fault}, {"retries": 1}

    def redirected(self, name, _):
        return f"r-{name}", self.base(), {"bytes": 1500, "hops": self.chance.randrange(1, 4)}, {}

    def zipped(self, name, _):
        return f"z-{name}", self.base(), {"bytes": self.chance.choice([900, 150_000]), "gzip": 1}, {}

    def cached(self, _, __):
        resource = f"c-{self.chance.randrange(12)}"
        options = {"cache": self.chance.choice(["default", "default", "default", "no-cache", "reload"])}
        return resource, self.shared_base(resource), {"bytes": 2500, "change": 5, "cc": "max-age=2"}, options

    def cached_file(self, _, __):
        resource = f"p-{self.chance.randrange(4)}"
        return resource, self.shared_base(resource), {"bytes": 200_000, "change": 7, "cc": "max-age=3"}, {}

    def changing(self, _, at):
        """A file with another generation by the time a broken transfer resumes."""
        resource = f"v-{self.slot(at)}"
        fields = {"bytes": 300_000, "rate": 200_000, "change": 2, "faults": "cut,drop"}
        return resource, self.shared_base(resource), fields, {"retries": 5}

    def late(self, name, _):
        return f"e-{name}", self.base(), {"bytes": 20_000, "rate": 4000}, {"deadline": 1}

    def bulky(self, name, _):
        return f"m-{name}", self.base(), {"bytes": 5000}, {"max-bytes": 1000}


KINDS, WEIGHTS = zip(
    (Planner.small, 30), (Planner.shared, 22), (Planner.file, 8), (Planner.large, 1.5), (Planner.slow, 7),
    (Planner.flaky, 8), (Planner.broken, 2), (Planner.hanging, 0.7), (Planner.grumpy, 0.25), (Planner.lasting, 4),
    (Planner.redirected, 4), (Planner.zipped, 4), (Planner.cached, 6), (Planner.cached_file, 2),
    (Planner.changing, 1.5), (Planner.late, 0.7), (Planner.bulky, 0.7))
