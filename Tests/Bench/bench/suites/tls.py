"""Small and middle files over TLS: new connections with full and with resumed handshakes, and kept connections, over
HTTP/1.1 and HTTP/2, on loopback and over a network with delay.

The origin has a port for each kind: without HTTP/2, with HTTP/2 alone, and two that close each connection after one
response, of which one resumes sessions by tickets. All certificates are of P-256, and all programs verify them.

Configuration for speed:

- `earshot get`: as many transfers to one origin as curl may have, and HTTP/2 where this version of the program has it.
  The bus is new in each round, so that it has no connections; `warm` keeps those of the round before.
- `curl -Z`: as in the suite `batch`. It shares its sessions among its transfers (curl.1, --no-sessionid), and delays a
  connection until it knows whether HTTP/2 needs another (curl.1, --parallel-immediate).
- async-http-client and aiohttp: as in the suite `service`, with as many requests at once; the start of their processes
  does not count. aiohttp has no HTTP/2.

The C program `delay` implements the network with delay, since many kernels lack netem. Its packets have 1,500 bytes,
and none is lost.
"""

import contextlib
import dataclasses
import functools
import subprocess

from bench import load, cpu, network, folders, swift
from bench.data import Files, empty_folder
from bench.frame import Contender, Failed, Sample, Target
from bench.programs import environment, run
from bench.servers import Bus, Nginx, free_port, private_folder
from bench.suites.batch import Lines, Written, command

NAME = "tls"
TITLE = "Files over TLS"

PARALLEL = 50
ROUND_TRIP_MS = 50


def rows(context, quick):
    connections = 100 if quick else 2_000
    with _setting("127.0.0.1") as setting:
        for kind, title in (("full", "full handshakes"), ("resumed", "resumed handshakes")):
            work = Work(setting, connections, 1_024)
            yield context.measure(f"{connections:,} connections of one request each, {title}", "connections/s",
                                  work.contenders(kind, "HTTP/1.1"), work.targets("HTTP/1.1"))
        yield from _kept(context, setting, [(300, 1_024)] if quick else [(10_000, 1_024), (2_000, 65_536)], "")
    against = network.reason_against()
    if against:
        context.report(f"no network with delay: {against}")
        return
    with network.delayed(ROUND_TRIP_MS), _setting(network.THERE) as setting:
        yield from _kept(context, setting, [(100, 1_024)] if quick else [(2_000, 1_024), (500, 65_536)],
                         f", round trip of {ROUND_TRIP_MS} ms")


def _kept(context, setting, sizes, where):
    for count, size in sizes:
        work = Work(setting, count, size)
        contenders = [*work.contenders("http1", "HTTP/1.1"), *work.contenders("http2", "HTTP/2"), *work.warm()]
        yield context.measure(f"{count:,} files of {size // 1_024} KiB{where}", "files/s", contenders,
                              work.targets("HTTP/1.1", "HTTP/2"))


@dataclasses.dataclass
class Setting:
    """An origin, and a running bus that trusts it."""

    origin: Nginx
    bus: Bus

    def new_bus(self):
        """A new bus that trusts the origin and has no connections yet."""
        return _bus(self.origin)


@contextlib.contextmanager
def _setting(host):
    with Origin(host) as origin, _bus(origin) as bus:
        yield Setting(origin, bus)


def _bus(origin):
    options = ["--ca-file", origin.authority, *(["--http2", "auto"] if knows_http2() else [])]
    # The last place of an origin is reserved for class `high`; these requests are of class `normal`.
    bus = Bus(origin_limit=PARALLEL + 1, arguments=options)
    bus.command = bus.command.replace(str(origin.authority), "FILE")
    return bus


@functools.cache
def knows_http2():
    """Whether this version of the program has HTTP/2."""
    return b"--http2" in run([folders.earshot(), "serve", "--help"]).stdout


class Origin(Nginx):
    """nginx with its ports by kind, and the authority that signed its certificate. `resumptions` returns the numbers of
    resumed handshakes and of all handshakes so far."""

    KINDS = {
        "http1": ("ssl", ""),
        # This port refuses programs without HTTP/2, so no row has another version than it states.
        "http2": ("ssl http2", 'if ($server_protocol != "HTTP/2.0") { return 505; }'),
        "full": ("ssl", "ssl_session_tickets off; ssl_session_cache none; keepalive_timeout 0;"),
        "resumed": ("ssl", "keepalive_timeout 0;"),
    }
    """Returns the words of `listen` and further configuration, by kind."""

    def __init__(self, host):
        self._host = host
        self._ports = {kind: free_port() for kind in self.KINDS}
        self._certificates = private_folder("certificates")
        self.authority = self._certificates / "authority.pem"
        self._make_certificates()
        super().__init__(more="\n".join([
            'log_format resumption "$ssl_session_reused";',
            f"ssl_certificate {self._certificates}/server.pem; ssl_certificate_key {self._certificates}/server.key;",
            "ssl_protocols TLSv1.2 TLSv1.3; ssl_session_cache shared:sessions:16m;",
            *(self._server(kind) for kind in self.KINDS)]))

    def _server(self, kind):
        words, more = self.KINDS[kind]
        log = f"access_log {self._log(kind)} resumption;" if kind in ("full", "resumed") else ""
        return f"server {{ listen {self._ports[kind]} {words} backlog=4096; root {folders.DATA}; {log} {more} }}"

    def _log(self, kind):
        return self._certificates / f"{kind}.log"

    def url_of(self, kind):
        return f"https://{self._host}:{self._ports[kind]}"

    def resumptions(self, kind):
        log = self._log(kind)
        lines = log.read_bytes().split() if log.exists() else []
        return lines.count(b"r"), len(lines)

    def _make_certificates(self):
        names = f"subjectAltName=IP:127.0.0.1,IP:{network.THERE}"
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        ways = [
            ["req", "-x509", *key, "-keyout", "authority.key", "-out", "authority.pem", "-days", "2", "-subj", "/CN=bench"],
            ["req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=origin", "-addext", names],
            ["x509", "-req", "-in", "server.csr", "-CA", "authority.pem", "-CAkey", "authority.key", "-CAcreateserial",
             "-copy_extensions", "copy", "-days", "2", "-out", "server.pem"]]
        for words in ways:
            done = subprocess.run(["openssl", *words], cwd=self._certificates, capture_output=True, text=True)
            if done.returncode != 0:
                raise Failed(f"openssl {words[0]}: {done.stderr[-300:]}")


class Work:
    """This many files of one size, and the programs that fetch them."""

    def __init__(self, setting, count, size):
        self._setting = setting
        self._origin = setting.origin
        self._files = Files(count, size)
        self._files_by_kind = {}

    def targets(self, *versions):
        return [Target(f"get, {version}", f"curl -Z, {version}", at_least=1.0) for version in self._ours(*versions)]

    def contenders(self, kind, version):
        """Returns the programs with this version of HTTP."""
        url = self._origin.url_of(kind)
        found = [self._get(f"get, {version}", kind, self._setting.new_bus) for version in self._ours(version)]
        found += [self._curl(kind, version, url),
                  self._load_client("async-http-client", swift.program("http", "load-http"), kind, version, url)]
        if version == "HTTP/1.1":
            found += [self._load_client("aiohttp", load.scripted("load_aiohttp.py"), kind, version, url)]
        return found

    def warm(self):
        """Earshot with a bus that has the connections of the round before."""
        def running():
            return contextlib.nullcontext(self._setting.bus)
        kinds = {"HTTP/1.1": "http1", "HTTP/2": "http2"}
        return [self._get(f"get, {version}, warm", kinds[version], running) for version in self._ours(*kinds)]

    def _ours(self, *versions):
        """Returns the versions that the program has."""
        return [version for version in versions if version == "HTTP/1.1" or knows_http2()]

    def _get(self, name, kind, bus_of_round):
        url = self._origin.url_of(kind)
        words = [folders.earshot(), "get", "-i", self._list(kind, url), "--json"]
        return self._contender(name, words, kind, Lines(self._files, OriginAddress(url)), bus_of_round)

    def _curl(self, kind, version, url):
        words = ["curl", "-q", "-s", "-Z", "--parallel-max", PARALLEL, "--cacert", self._origin.authority,
                 "--http2" if version == "HTTP/2" else "--http1.1",
                 "-w", "%{http_code} %{size_download} %{url}\\n", "--config", self._curl_list(kind, url)]
        return self._contender(f"curl -Z, {version}", words, kind, Written(self._files, OriginAddress(url)))

    def _contender(self, name, words, kind, check, bus_of_round=None):
        words = [str(word) for word in words]

        def go(number):
            with bus_of_round() if bus_of_round else contextlib.nullcontext() as bus:
                with cpu.Meter(bus.pids if bus else []) as meter:
                    finished = run(words, env=bus.env if bus else environment(), cwd=empty_folder("tls"), timeout=300)
            check(None, finished, whole=number == 0)
            used = finished.cpu_seconds + meter.seconds
            return Sample(self._files.count / finished.seconds, {"cpu_us": used / self._files.count * 1e6})
        beside = self._setting.bus if bus_of_round else None
        return Contender(name, command(words, beside, {}), self._counted(kind, go), is_ours=bool(bus_of_round))

    def _load_client(self, name, program, kind, version, url):
        """A client that sends the requests in its own process."""
        files = self._files_by_kind.setdefault(kind, load.Files(url, self._files.count, self._files.size))
        is_older = version == "HTTP/1.1" and name == "async-http-client"
        client = load.Client(f"{name}, {version}", program, f"{name}, {PARALLEL} at once", extra="http1" if is_older else "",
                             env={"SSL_CERT_FILE": str(self._origin.authority)})
        plan = load.Plan(files, PARALLEL, self._files.count)

        def go(number):
            sample = client.run_round(plan, number)
            return Sample(sample.value, {"cpu_us": sample.extra["cpu_us"]})
        return Contender(client.name, client.describe, self._counted(kind, go))

    def _counted(self, kind, go):
        """Adds the share of resumed handshakes, where the origin counts them."""
        def counted(number):
            resumed, handshakes = self._origin.resumptions(kind)
            sample = go(number)
            resumed_then, handshakes_then = self._origin.resumptions(kind)
            if handshakes_then > handshakes:
                share = (resumed_then - resumed) / (handshakes_then - handshakes)
                sample.extra["resumed_percent"] = 100 * share
            return sample
        return counted

    def _list(self, kind, url):
        return self._write(f"tls-{kind}", (f"{url}/{path}\n" for path in self._files.paths()))

    def _curl_list(self, kind, url):
        return self._write(f"tls-curl-{kind}", (f'url = "{url}/{path}"\noutput = "/dev/null"\n'
                                                for path in self._files.paths()))

    def _write(self, name, lines):
        path = folders.outputs() / f"{name}-{self._files.count}-{self._files.size}"
        path.write_text("".join(lines))
        return path


class OriginAddress:
    """The origin for the checks of responses."""

    def __init__(self, url):
        self.url = url
