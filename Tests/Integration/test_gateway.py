"""Clients on other machines: requests and keys. `earshot serve --listen`, with tcp and CURVE by libzmq."""

import collections
import datetime
import json
import os
import signal

import zmq

from support import zmtp
from support.network import LeasedRemote, NetworkTestCase, Recorder, StubbornRemote
from support.origin import body
from support.processes import eventually, watch_all
from support.puller import pull

IS_LONG = bool(os.environ.get("EARSHOT_LONG"))
REFUSED = zmq.EVENT_HANDSHAKE_FAILED_AUTH
FAILED = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL


class GatewayTests(NetworkTestCase):
    # Requests.

    def test_a_body_is_read_by_read_and_data(self):
        client = self.bus.remote()
        client.hold()
        client.fetch("h", 1, f"{self.origin.url}/bytes/3000000")
        terminal = client.terminal()
        self.assertNotIn("file", terminal.fields)
        self.assertEqual(pull(client, terminal), body(3_000_000))
        client.release()
        local = self.bus.client()
        eventually(lambda: local.query("ledger")["deliveries"]["outstanding"] == 0, "the body is acknowledged")

    def test_many_requests_in_one_burst_are_all_answered(self):
        client = self.bus.remote()
        for number in range(1000):
            client.fetch("h", number, f"{self.origin.url}/bytes/100?{number % 50}")
        ids = [message.id for message in client.terminals(1000, timeout=60)]
        self.assertEqual(len(set(ids)), 1000)
        self.balance(self.bus.client())

    def test_a_client_that_closes_at_once_leaves_its_last_messages(self):
        client = self.bus.remote()
        client.send("SUBSCRIBE h")
        client.query("ping")
        client.close()
        local = self.bus.client()
        eventually(lambda: local.query("status")["clients"] == 1, "BYE ended the remote session")

    # Keys.

    def assertRefused(self, **options):
        client = self.bus.remote(hello=False, **options)
        self.assertEqual(client.await_event(REFUSED), 400)

    def test_an_unknown_key_is_refused(self):
        self.assertRefused(key=zmq.curve_keypair())

    def test_an_expired_key_is_cut_and_its_requests_end_in_spite_of_a_lease(self):
        # On a slow machine a key may expire before its client has a request.
        for count, seconds in enumerate((3, 6, 12, 24), 2):
            moment = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
            key = self.bus.new_key(f"brief{seconds}", "--expires", moment.strftime("%Y-%m-%dT%H:%M:%SZ"))
            self.bus.reload(count)
            client = self.bus.remote(key=key, lease=600, hello=False)
            if client.event()[0] == zmq.EVENT_HANDSHAKE_SUCCEEDED and client.greet() == "WELCOME":
                client.fetch("h", 1, f"{self.origin.url}/gate/never")
                client.send("QUERY ledger")
                if (answer := client.receive()) and json.loads(answer.body)["requests"]["pending"] == 1:
                    break
        else:
            self.fail("each key expired too early")
        client.await_event(zmq.EVENT_DISCONNECTED)
        self.assertEqual(client.await_event(REFUSED), 400)
        self.await_requests(self.bus.client(), pending=0)

    def test_a_revoked_key_is_cut_and_refused_and_others_stay(self):
        key = self.bus.new_key("other")
        self.bus.reload(2)
        other, client = self.bus.remote(), self.bus.remote(key=key)
        self.assertAnswers(client)
        self.bus.revoke("other")
        self.bus.reload(1)
        client.await_event(zmq.EVENT_DISCONNECTED)
        self.assertEqual(client.await_event(REFUSED), 400)
        self.assertAnswers(other, request=2)

    def test_the_requests_of_a_revoked_key_end_in_spite_of_a_lease(self):
        key = self.bus.new_key("other")
        self.bus.reload(2)
        client = self.bus.remote(key=key, lease=600)
        client.fetch("h", 1, f"{self.origin.url}/gate/never")
        local = self.bus.client()
        self.await_requests(local, pending=1)
        client.cut()
        self.bus.revoke("other")
        self.bus.reload(1)
        self.await_requests(local, pending=0)

    def test_a_wrong_server_key_ends_the_handshake(self):
        client = self.bus.remote(hello=False, server_key=zmq.curve_keypair()[0])
        client.await_event(FAILED)
        self.assertIn("address=127.0.0.1", self.bus.program.await_line("another server key"))
        self.assertAnswers(self.bus.remote())

    def test_a_plaintext_client_gets_nothing(self):
        for mechanism in (b"NULL", b"PLAIN"):
            with self.bus.connect() as connection:
                connection.sendall(zmtp.GREETING.replace(b"NULL".ljust(5, b"\0"), mechanism.ljust(5, b"\0")))
                connection.sendall(zmtp.ready(b"DEALER") + zmtp.frame(b"HELLO EAR/1\nwindow: 8\n"))
                received = b""
                try:
                    while part := connection.recv(4096):
                        received += part
                except ConnectionError:
                    pass
                self.assertNotIn(b"READY", received)
                self.assertNotIn(b"WELCOME", received)

    def test_a_replayed_handshake_opens_no_session(self):
        recorder = Recorder(self.bus)
        with recorder:
            client = self.bus.remote(kind=recorder.client)
            self.assertAnswers(client)
            client.cut()
        self.assertGreater(len(recorder.sent), 300)
        local = self.bus.client()
        eventually(lambda: local.query("status")["clients"] == 1, "the recorded session has ended")
        with self.bus.connect() as connection:
            connection.sendall(recorder.sent)
            received = b""
            try:
                while part := connection.recv(4096):
                    received += part
            except ConnectionError:
                pass
            # The server's new short-term key makes INITIATE of the recording invalid.
            self.assertNotIn(b"\x05READY", received)
        self.assertEqual(local.query("status")["clients"], 1)

    def test_the_url_and_the_body_are_not_on_the_wire(self):
        recorder = Recorder(self.bus)
        with recorder:
            client = self.bus.remote(kind=recorder.client)
            self.assertAnswers(client, handler="secret-handler", size=500)
        self.assertNotIn(b"secret-handler", recorder.sent + recorder.received)
        self.assertNotIn(b"/bytes/", recorder.sent)
        self.assertNotIn(body(500)[:16], recorder.received)

    def test_the_connections_of_a_key_are_bounded(self):
        key = self.bus.new_key("few", "--connections", "2")
        self.bus.reload(2)
        first, second = self.bus.remote(key=key), self.bus.remote(key=key)
        third = self.bus.remote(key=key, hello=False)
        third.await_event(FAILED)
        first.close()
        self.assertEqual(third.greet(), "WELCOME")
        self.assertAnswers(second)

    # Deaths.

    def test_clients_get_their_results_after_the_broker_was_killed(self):
        client = self.bus.remote(kind=StubbornRemote)
        for number in range(40):
            client.fetch("h", number, f"{self.origin.url}/slow/0.2?bytes=100&n={number}")
        os.kill(self.bus.broker, signal.SIGKILL)
        answers = client.collect()
        self.assertEqual(len(answers), 40)
        self.assertEqual({message.verb for messages in answers.values() for message in messages}, {"RESULT"})

    def test_no_request_is_lost_or_answered_twice_while_the_gateway_is_killed(self):
        kills, count = (20, 10_000) if IS_LONG else (3, 600)
        client = self.bus.remote(kind=LeasedRemote, lease=60)
        submitted = killed = 0
        answers = collections.Counter()
        while len(answers) < count:
            while submitted < count and submitted - len(answers) < 200:
                client.submit(submitted, f"{self.origin.url}/bytes/100?{submitted % 500}")
                submitted += 1
            for message in client.answers():
                self.assertEqual(message.verb, "RESULT", message)
                answers[message.operands[1]] += 1
            if killed < kills and len(answers) * (kills + 1) >= count * (killed + 1):
                killed += 1
                gateway = self.bus.gateway
                [process] = watch_all([gateway])
                os.kill(gateway, signal.SIGKILL)
                process.await_death()
                process.close()
        self.assertEqual(killed, kills)
        self.assertEqual(set(answers.values()), {1})
        local = self.bus.client()
        ledger = self.balance(local)
        self.assertEqual(ledger["requests"]["submitted"], count)
