"""Users of one bus are isolated: a hostile client of one user, which speaks the wire itself, against requests of another.

Every attempt has the answer that a name has which does not exist, or a refusal. Afterwards all requests of the victim end as if
nothing had happened."""

import json
import unittest

from support.origin import Origin
from test_users import DAEMON, LARGE, NOBODY, Case

#: Names of the victim's handlers, and names that do not exist in their place.
GHOSTS = {"b/": "g/", "kept/": "gone/", "uid:1": "uid:7"}

VICTIM = """
c = client(bodies="pull", lease=600)
c.hold()
for name, path in (("kept/failed", "/status/404"), ("kept/done", "/bytes/1000?seed=kept")):
    c.fetch(name, 1, here + path, durable="yes", subscribe="no")
    c.expect("ACCEPTED")
while {row["state"] for row in c.query("requests")["requests"]} != {"held"}:
    pass
c.send("SUBSCRIBE b/")
c.fetch("b/done", 1, here + "/bytes/%d?seed=secret" % large)
c.terminal()
c.send("COOKIES b/done " + here, [("set-cookie", "sid=secret; path=/")])
c.fetch("b/small", 1, here + "/bytes/100?seed=secret")
c.terminal()
c.fetch("b/cached", 1, other + "/kept/b?cc=max-age=1000&bytes=100")
c.terminal()
c.fetch("b/run", 1, here + "/gate/b?bytes=200")
c.fetch("b/stream", 1, here + "/steps/b?bytes=200000", stream="yes", progress_ms=10)
generation = None
while not generation:
    generation = c.expect("PROGRESS", "b/stream").fields.get("generation")
for number in (1, 2, 3):
    c.fetch("b/wait", number, here + f"/bytes/30{number}", priority="low")
c.query("ping")
report({"token": c.token, "generation": generation})
sys.stdin.readline()
found = {}
for terminal in c.terminals(5):
    content = pull(c, terminal) if "pull" in terminal.fields else terminal.inline
    found["/".join(terminal.id)] = [terminal.verb, len(content)]
report(found)
report(len(pull(c, type("Terminal", (), {"fields": {"seq": "1", "length": str(large)}}))))
report([[row["handler"], row["request"], row["state"], row["class"]] for row in c.query("requests")["requests"]])
report([cookie["value"] for cookie in c.query("cookies b")["cookies"]])
c.send("SUBSCRIBE kept/")
report(sorted([terminal.verb, *terminal.operands[:3]] for terminal in c.terminals(2)))
report([message.verb for message in c.rest() if message.verb != "PROGRESS"])
c.cut()
report(c.come_back().resumed_number is not None)
"""

#: Sends the messages, and says the answers that came before that of a ping, with everything but times.
HOSTILE = """
import json

def answers(c):
    c.send("QUERY ping")
    found = []
    while True:
        message = c.receive(30)
        if message.verb == "ANSWER" and message.operands == ["ping"]:
            return found
        content = json.loads(message.body) if message.verb == "ANSWER" else len(message.inline or b"")
        found.append([message.verb, message.operands, message.fields, content])

def attempt(c, line, headers=(), **fields):
    c.send(line, headers, **fields)
    return answers(c)
"""


def renamed(value, names=GHOSTS):
    """Returns a value of JSON with the victim's names replaced."""
    text = json.dumps(value)
    for name, ghost in names.items():
        text = text.replace(f'"{name}', f'"{ghost}').replace(f" {name}", f" {ghost}")
    return json.loads(text)


def error(code):
    return [["ERROR", [code], {}]]


def refused(*read):
    return [["DATA", list(read), {"error": "unknown-body"}]]


class Bed(Case):
    """A bus with a victim, whose requests are in all states."""

    def setUp(self):
        super().setUp()
        self.origin = self.enterContext(Origin(ports=2))
        self.other = self.origin.urls[1]

    def shared(self, *arguments, **options):
        return self.bus("--users", "nobody,daemon", "--cache-folder", self.folder / "cache", "--durable-folder",
                        self.folder / "durable", *arguments, **{"origin_limit": 2, **options})

    def code(self, text, **values):
        values = {"here": self.origin.url, "other": self.other, "large": LARGE, **values}
        return "".join(f"{name} = {value!r}\n" for name, value in values.items()) + text

    def victim(self, bus):
        """Starts the victim. Returns it and the secrets of its session."""
        victim = self.visit(DAEMON, bus, self.code(VICTIM))
        secrets = json.loads(victim.await_line("token", "stdout"))
        return victim, secrets

    def assertUndisturbed(self, victim):
        """Lets the victim end, and checks that all its requests ended as if it were alone."""
        self.origin.open_gate("b")
        victim.write(b"\n")
        _, ends, length, requests, cookies, kept, rest, resumed = victim.reported(60)
        self.assertEqual(ends, {"b/run/1": ["RESULT", 200], "b/stream/1": ["RESULT", 200_000],
                                **{f"b/wait/{n}": ["RESULT", 300 + n] for n in (1, 2, 3)}})
        self.assertEqual(length, LARGE)
        classes = {(handler, request): kind for handler, request, state, kind in requests}
        self.assertEqual({classes["b/wait", str(n)] for n in (1, 2, 3)}, {"low"})
        self.assertEqual(cookies, ["secret"])
        self.assertEqual(kept, [["FAILED", "kept/failed", "1", "http-status"], ["RESULT", "kept/done", "1", "200"]])
        self.assertEqual(rest, [])
        self.assertTrue(resumed)
        self.assertEqual(self.origin.count("/gate/b"), 1)
        self.assertEqual(self.origin.count("/steps/b"), 1)


class AttemptTests(Bed):
    def test_every_message_about_requests_of_another_user_is_answered_as_if_they_did_not_exist(self):
        bus = self.shared()
        victim, secrets = self.victim(bus)
        requests = ("b/run", "b/stream", "b/wait", "b/done", "b/small", "b/cached", "kept/failed", "kept/done")
        attempts = {}
        for name in requests:
            attempts[f"REMOVE {name} 1"] = [["REMOVED", [name, "1", "0"], {}]]
            attempts[f"PRIORITY {name} 1 high"] = error("unknown-request")
            attempts[f"RETRY {name} 1"] = error("unknown-request")
            attempts[f"REMOVE {name}"] = [["REMOVED", [name, "0"], {}]]
            attempts[f"QUERY why {name} 1"] = [["ANSWER", ["why", name, "1"], {}]]
        attempts |= {"REMOVE b/": [["REMOVED", ["b/", "0"], {}]], "REMOVE kept/": [["REMOVED", ["kept/", "0"], {}]],
                     "ACK 1": error("bad-message"), "ACK 3": error("bad-message"), "ACK 0": [],
                     "READ 1 0 1000": refused("1", "0"),
                     "READ 2 0 1000": refused("2", "0"),
                     "READ b/stream 1 0 1000": refused("b/stream", "1", "0"),
                     "READ b/run 1 0 1000": refused("b/run", "1", "0"),
                     "QUERY cookies b": [["ANSWER", ["cookies", "b"], {}]],
                     "QUERY cookies b/done": [["ANSWER", ["cookies", "b/done"], {}]],
                     "QUERY origins": error("not-authorized"),
                     "QUERY workers": error("not-authorized"),
                     "QUERY settings": error("not-authorized"),
                     "SET origin-limit 1": error("not-authorized"),
                     "SET admission closed": error("not-authorized"),
                     "SET requests-per-user 0": error("not-authorized"),
                     "SET users nobody": error("not-authorized"),
                     "UNSUBSCRIBE b/": [], "UNSUBSCRIBE b/run": [], "SUBSCRIBE b/": [], "SUBSCRIBE kept/": []}
        # The last ones: their subscriptions stay.
        attempts |= {f"SUBSCRIBE {name}": [] for name in requests}
        self.assertGreater(len(attempts), 40)
        lines = list(attempts)
        hostile = self.visit(NOBODY, bus, self.code(HOSTILE + """
c = client(bodies="pull")
tables = []
for fields in ({}, {"handler": "b/"}, {"handler": "b/run"}, {"state": "running"}, {"state": "held"}, {"after": "1"}):
    tables.append([kind[3] for kind in attempt(c, "QUERY requests", **fields)])
for fields in ({}, {"handler": "b/"}, {"handler": "b/done"}, {"handler": "kept/"}, {"after": "a"}):
    tables.append([kind[3] for kind in attempt(c, "QUERY handlers", **fields)])
report(tables)
for line in lines:
    report(attempt(c, line))
    report(attempt(c, ghosts[line]))
report(attempt(c, "READ b/stream 1 0 1000", generation=generation))
for subject in ("status", "ledger"):
    report(attempt(c, "QUERY " + subject)[0][3])
report("waits")
sys.stdin.readline()
report(answers(c))
""", lines=lines, ghosts={line: renamed(f" {line}")[1:] for line in lines}, generation=secrets["generation"]))
        hostile.await_line('"waits"', "stdout")
        self.assertUndisturbed(victim)
        hostile.write(b"\n")
        reported = hostile.reported(60)
        for table in reported.pop(0):
            self.assertEqual([{key: value for key, value in one.items() if key != "broker"} for one in table],
                             [{"requests": []}] if "requests" in table[0] else [{"handlers": []}])
        for index, line in enumerate(lines):
            own, ghost = reported[2 * index], reported[2 * index + 1]
            with self.subTest(line=line):
                self.assertEqual(renamed(own), ghost, "the answer is that of a name that does not exist")
                for answer in own:
                    answer[2].pop("detail", None)
                self.assertEqual([answer[:3] for answer in own], attempts[line])
                if line.startswith("QUERY why"):
                    self.assertEqual(own[0][3]["state"], "unknown")
                if line.startswith("QUERY cookies"):
                    self.assertEqual(own[0][3]["cookies"], [])
        reads, status, ledger, waits, received = reported[2 * len(lines):]
        self.assertEqual([read[:2] for read in reads], [["DATA", ["b/stream", "1", "0"]]])
        # The handlers are those of the subscriptions, and of the requests there is none.
        self.assertEqual((status["clients"], status["handlers"]), (1, 2 * len(requests)))
        none = {"submitted": 0, "answered": 0, "failed": {}, "removed": 0, "orphaned": 0, "pending": 0}
        self.assertEqual((status["requests"], ledger["requests"]), (none, none))
        self.assertLessEqual(set(status), {"broker", "requests", "phase", "admission", "ready", "clients", "clients-away",
                                           "handlers"})
        self.assertEqual(set(ledger), {"broker", "requests"})
        self.assertEqual((waits, received), ("waits", []), "a subscriber to its names hears nothing of the victim")

    def test_another_user_reaches_no_file_process_or_socket_of_the_bus(self):
        bus = self.shared()
        victim, _ = self.victim(bus)
        folders = [bus.spool, self.folder / "cache", self.folder / "durable"]
        files = [str(path) for folder in folders for path in folder.rglob("*") if path.is_file()]
        self.assertGreater(len(files), 3)
        processes = [f"/proc/{pid}/{name}" for pid in bus.family() for name in ("mem", "maps", "environ", "fd", "cwd")]
        reported = self.visit(NOBODY, bus, self.code("""
import errno, socket
for path in paths:
    for act in (lambda: os.open(path, os.O_RDONLY), lambda: os.open(path, os.O_RDWR), lambda: os.unlink(path)):
        try:
            act()
            report(["opened", path])
        except OSError as error:
            report([errno.errorcode[error.errno], path])
try:
    # To register a worker, for schemes of the victim or any other.
    socket.socket(socket.AF_UNIX).connect(os.fspath(runtime / "work"))
    report(["connected", "work"])
except OSError as error:
    report([errno.errorcode[error.errno], "work"])
for pid in family:
    try:
        os.kill(pid, 0)
        report(["killed", pid])
    except OSError as error:
        report([errno.errorcode[error.errno], pid])
""", paths=files + [str(folder) for folder in folders] + processes, family=bus.family())).reported(60)
        wrong = [one for one in reported if one[0] not in ("EACCES", "EPERM", "EISDIR")]
        self.assertEqual(wrong, [])
        self.assertLessEqual({path for code, path in reported if code == "EISDIR"},
                             {str(folder) for folder in folders} | {path for path in processes if path.endswith(("fd", "cwd"))})
        self.assertUndisturbed(victim)


if __name__ == "__main__":
    unittest.main()
