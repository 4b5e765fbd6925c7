"""Interrupted transfers resume, and two versions of a file are never joined."""

import hashlib
import os
import random

from support.figures import report
from support.harness import Bus, TestCase
from support.origin import Origin, body
from support.parts import Version
from support.processes import eventually, kill

MIB = 1 << 20
IS_LONG = bool(os.environ.get("EARSHOT_LONG"))


def kept(bus):
    """Returns the files in the spool with partial bodies of interrupted transfers."""
    return [path for path in bus.spool.iterdir() if path.suffix == ".kept"]


def stored(bus):
    """Returns the bodies in the folder of parts."""
    return list((bus.runtime / "parts").glob("*.body"))


class ResumeTests(TestCase):
    def test_a_body_cut_20_times_with_as_many_retries_comes_whole_and_is_sent_once(self):
        size, cuts = (100 * MIB, 20) if IS_LONG else (20 * MIB, 20)
        with Origin() as origin, Bus(workers=1) as bus:
            published = origin.publish(
                "big", size, plan=lambda n, start: {"cut": size // (cuts + 2) + n} if n < cuts else {},
                fields=[("Content-Type", "image/x-big")])
            client = bus.client()
            client.fetch("big", 1, f"{origin.url}/parts/big", retries=cuts)
            message = client.terminal(60)
            self.assertResult(message, body(size))
            self.assertEqual(message.fields["sha-256"], hashlib.sha256(body(size)).hexdigest())
            self.assertEqual(message.fields["source"], "resumed")
            self.assertEqual((message.operands[2], message.fields["attempts"]), ("200", str(cuts + 1)))
            headers = {name.lower(): value.strip() for name, value in message.headers}
            self.assertEqual((headers["content-length"], headers["content-type"]), (str(size), "image/x-big"))
            self.assertNotIn("content-range", headers)
            # At most 20 pauses of 0.25 s: progress resets the back-off.
            report(f"{size // MIB} MiB cut {cuts} times: {published.sent / size:.3f} of its bytes on the wire, in"
                   f" {int(message.fields['elapsed-ms']) / 1000:.1f} s")
            self.assertLess(published.sent, 1.2 * size)
            self.assertEqual(published.answers, cuts + 1)
            eventually(lambda: not kept(bus), "nothing is left")
            self.balance(client)

    def test_what_a_killed_worker_had_is_gone_on_with(self):
        size = 40 * MIB
        with Origin() as origin, Bus(workers=1) as bus:
            published = origin.publish("file", size, plan=lambda n, start: {"held": 6 * MIB} if n == 0 else {})
            client = bus.client()
            client.fetch("file", 1, f"{origin.url}/parts/file", progress=50)
            while int(client.expect("PROGRESS").operands[2].split("/")[0]) < 5 * MIB:
                pass
            kill(bus.workers[0])
            message = client.terminal()
            self.assertResult(message, body(size))
            self.assertEqual(message.fields["source"], "resumed")
            self.assertRegex(published.ranges[1], r"bytes=\d{7,}-41943039")
            self.assertLess(published.sent, 1.2 * size)

    def test_what_a_cancelled_request_had_waits_for_the_next_one_of_the_same_credentials(self):
        size = 8 * MIB
        with Origin() as origin, Bus(workers=1) as bus:
            published = origin.publish("file", size, plan=lambda n, start: {"held": 2 * MIB} if n == 0 else {})
            client = bus.client()
            url = f"{origin.url}/parts/file"
            client.fetch("file", 1, url, headers=[("authorization", "one")], progress=50)
            while int(client.expect("PROGRESS").operands[2].split("/")[0]) < MIB:
                pass
            client.remove("file")
            eventually(lambda: stored(bus), "what was fetched is kept")
            client.fetch("other", 1, url, headers=[("authorization", "two")])
            self.assertEqual(client.terminal().fields["source"], "network")
            self.assertIsNone(published.ranges[1])
            client.fetch("file", 2, url, headers=[("authorization", "one")])
            message = client.terminal()
            self.assertResult(message, body(size))
            self.assertEqual(message.fields["source"], "resumed")
            self.assertIsNotNone(published.ranges[2])
            self.assertEqual((kept(bus), stored(bus)), ([], []))

    def test_a_server_of_closed_ranges_alone_is_asked_for_one(self):
        with Origin() as origin, Bus(workers=1) as bus:
            origin.publish("file", 2 * MIB, plan=lambda n, start: [{"cut": MIB}, {"lie": "closed"}][n])
            client = bus.client()
            client.fetch("file", 1, f"{origin.url}/parts/file", retries=1)
            message = client.terminal()
            self.assertResult(message, body(2 * MIB))
            self.assertEqual(message.fields["source"], "resumed")

    def test_random_cuts_lies_and_changes_never_make_a_wrong_body(self):
        """The delivered body is one that the origin had, completely. It is 500 bodies, 150 in the ordinary form."""
        count = 500 if IS_LONG else 150
        seed = random.randrange(1 << 30)
        chance = random.Random(seed)
        lies = ["start", "total", "tag", "weak", "long", "length", "coding", "unsatisfied", "ignore", "early", "other", "gzip", None]

        def plan_for(name):
            steps = chance.randrange(1, 6)

            def plan(number, start):
                answer = {}
                if number >= steps:
                    return answer
                if chance.random() < 0.4:
                    answer["lie"] = chance.choice(lies)
                if chance.random() < 0.2 or answer.get("lie") == "other":
                    answer["version"] = Version(chance.randrange(70_000, 600_000), chance.random())
                    truth[name].append(answer["version"])
                answer["cut"] = chance.randrange(0, 400_000)
                return answer
            return plan

        truth = {}
        with self.subTest(seed=seed), Origin() as origin, Bus(workers=2) as bus:
            client = bus.client()
            bus.run("set", "origin-limit", "50")
            for index in range(count):
                name = str(index)
                published = origin.publish(name, chance.randrange(70_000, 600_000), index, plan=plan_for(name))
                truth[name] = [published.version]
                client.fetch("fuzz", index, f"{origin.url}/parts/{name}", retries=20)
            resumed = 0
            for message in client.terminals(count, 240):
                name = message.id[1]
                if message.verb == "FAILED":
                    # An invalid coding is the origin's fault.
                    self.assertIn(message.operands[2], ("encoding-error",), message)
                    continue
                content = message.content()
                versions = [version.content for version in truth[name]]
                surplus = [version + b"surplus" for version in versions]
                self.assertTrue(content in versions or content in surplus, (seed, message))
                self.assertEqual(hashlib.sha256(content).hexdigest(), message.fields["sha-256"])
                resumed += message.fields["source"] == "resumed"
            self.assertGreater(resumed, count / 10)
            self.balance(client)
            eventually(lambda: not kept(bus), "no request is left")
