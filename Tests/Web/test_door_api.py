"""The API of the HTTP door: sessions, results, the bus's operations, and the pages that may use them."""

import hashlib
import http.client
import json
import os
import select
import signal
import socket
import unittest

import checkout
from door import HOST, Door, more
from support.harness import TestCase
from support.origin import Origin, body
from support.processes import eventually


class APITests(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.door = cls.enterClassContext(Door(arguments=["--http-api", "0", "--http-origins", "https://console.example"]))

    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.url = self.origin.url

    def session(self, **members):
        status, _, answer = self.door.call("sessions", members)
        self.assertEqual(status, 201, answer)
        return answer["session"]

    def submit(self, session, *requests):
        requests = [request if isinstance(request, dict) else {"url": self.url + request} for request in requests]
        status, _, answer = self.door.call("requests", {"session": session, "requests": requests})
        self.assertEqual(status, 200, answer)
        return answer

    def results(self, session, **members):
        status, _, answer = self.door.call("results", {"session": session, **members})
        self.assertEqual(status, 200, answer)
        return answer["results"]

    def test_fetch_answers_with_the_body_while_it_grows_and_its_hang_up_removes_the_request(self):
        status, fields, content = self.door.call("fetch", {"url": self.url + "/bytes/3000000", "fields": {"X-Mine": "\U0001f600"}})
        self.assertEqual((status, fields["Earshot-Status"], fields["Content-Type"]), (200, "200", "application/octet-stream"))
        self.assertTrue(content == body(3_000_000))
        status, _, problem = self.door.call("fetch", {"url": self.url + "/status/404"})
        self.assertEqual((status, problem["code"]), (502, "http-status"))
        status, fields, _ = self.door.call("fetch", {"url": self.url + "/status/404", "errors": "deliver"})
        self.assertEqual((status, fields["Earshot-Status"]), (200, "404"))
        self.door.call("fetch", {"url": self.url + "/headers", "method": "PUT", "body-base64": "AAE="})
        self.assertEqual(self.origin.journal.log("/headers")[-1].body, b"\0\1")
        text = json.dumps({"url": self.url + "/hang"})
        peer = socket.create_connection((HOST, self.door.api_port), 60)
        peer.sendall(f"POST /v1/fetch HTTP/1.1\r\nHost: localhost\r\nEarshot-API: 1\r\nContent-Type: application/json\r\n"
                     f"Content-Length: {len(text)}\r\n\r\n{text}".encode())
        self.origin.journal.await_count("/hang", 1)
        peer.close()
        self.origin.journal.await_aborts("/hang")

    def test_results_stay_until_they_are_acknowledged(self):
        session = self.session()
        answer = self.submit(session, "/bytes/100", {"id": "large", "url": self.url + "/bytes/200000"})
        self.assertEqual([request["accepted"] for request in answer["requests"]], [True, True])
        results = self.results(session, wait=60, count=2)
        self.assertEqual(results, self.results(session))
        for result in results:
            status, fields, content = self.door.call(f"body?session={session}&sequence={result['sequence']}")
            self.assertEqual((status, fields["X-Content-Type-Options"], len(content)), (200, "nosniff", result["length"]))
            self.assertEqual(hashlib.sha256(content).hexdigest(), result["sha-256"])
        eventually(lambda: not self.door.open_bodies(), "the file closes with its response")
        self.assertEqual(self.results(session, acknowledge=1), results[1:])
        self.assertEqual(self.results(session, acknowledge=2), [])
        self.assertEqual(self.door.call(f"body?session={session}&sequence=2")[0], 404)
        self.assertEqual(self.door.call("results", {"session": session, "acknowledge": 3})[0], 400)
        # A failure has its page, or is a problem.
        self.submit(session, "/status/404", {"url": "unknown:x"})
        for result in self.results(session, wait=60, count=2):
            status, fields, content = self.door.call(f"body?session={session}&sequence={result['sequence']}")
            if result["code"] == "http-status":
                self.assertEqual((status, fields["Earshot-Status"], len(content)), (200, "404", result["length"]))
            else:
                self.assertEqual((status, content["code"]), (502, result["code"]))
        self.results(session, acknowledge=4)
        # A window of results waits for acknowledgements, and more do not come.
        self.submit(session, *[f"/bytes/1?window-{number}" for number in range(40)])
        results = self.results(session, wait=60, count=32)
        self.assertEqual(len(results), 32)
        self.assertEqual(len(self.results(session, acknowledge=results[-1]["sequence"], wait=60, count=8)), 8)

    def test_a_stream_of_events_resumes_and_the_end_of_its_session_removes_the_requests(self):
        session = self.session()
        self.submit(session, "/bytes/1?a")
        first = self.events(session, 1)
        self.submit(session, "/bytes/1?b")
        self.assertEqual([event["sequence"] for event in self.events(session, 2)], [1, 2])
        self.assertEqual([event["sequence"] for event in self.events(session, 1, last=first[0]["sequence"])], [2])
        self.submit(session, "/hang")
        self.origin.journal.await_count("/hang", 1)
        self.assertEqual(self.door.call("sessions/close", {"session": session})[0], 204)
        self.origin.journal.await_aborts("/hang")
        status, _, problem = self.door.call("results", {"session": session})
        self.assertEqual((status, problem["code"]), (404, "unknown-session"))

    def events(self, session, count, last=None):
        resume = "" if last is None else f"Last-Event-ID: {last}\r\n"
        with socket.create_connection((HOST, self.door.api_port), 60) as peer:
            peer.sendall(f"GET /v1/events?session={session} HTTP/1.1\r\nHost: localhost\r\n{resume}\r\n".encode())
            text = b""
            while text.count(b"\n\n") < count:
                text += more(peer)
        return [json.loads(line[6:]) for line in text.decode().splitlines() if line.startswith("data: ")]

    def test_a_durable_request_outlives_its_sender_and_the_broker(self):
        request = {"handler": "night/a", "id": "1", "url": self.url + "/bytes/1000", "durable": True}
        with Door(arguments=["--http-api", "0"], crashes=True) as self.door:
            lost = self.session()
            status, _, answer = self.door.call("requests", {"requests": [request]})
            self.assertEqual((status, answer["requests"]), (200, [{"handler": "night/a", "id": "1", "accepted": True}]))
            os.kill(self.door.broker, signal.SIGKILL)
            eventually(lambda: self.door.call("results", {"session": lost})[0] == 404, "the session ends with the broker")
            eventually(lambda: self.door.call("status")[0] == 200, "the next broker answers")
            result, = self.results(self.session(subscribe=["night/"]), wait=60)
            self.assertEqual((result["handler"], result["id"], result["durable"], result["status"]), ("night/a", "1", True, 200))
            self.assertEqual(self.door.call("requests", {"requests": [{"url": self.url}]})[0], 400)

    def test_operations_of_the_bus(self):
        session = self.session()
        self.submit(session, {"handler": "ops/a", "id": "x", "url": self.url + "/hang"})
        self.origin.journal.await_count("/hang", 1)
        listed = self.door.call("requests?handler=ops/")[2]["requests"]
        self.assertEqual([(entry["handler"], entry["request"]) for entry in listed], [("ops/a", "x")])
        self.assertEqual(self.door.call("why?handler=ops/a&id=x")[2]["state"], "running")
        change = {"handler": "ops/a", "id": "x", "priority": "high"}
        self.assertEqual(self.door.call("requests/priority", change)[0], 204)
        self.assertEqual(self.door.call("requests/priority", {**change, "id": "y"})[0], 404)
        self.assertEqual(self.door.call("status")[2]["phase"], "serving")
        same = self.submit(session, {"handler": "ops/a", "id": "x", "url": self.url})["requests"][0]
        self.assertEqual((same["accepted"], same["code"]), (False, "id-in-use"))
        self.assertEqual(self.door.call("requests/remove", {"handler": "ops/", "session": session})[2], {"removed": 1})
        self.origin.journal.await_aborts("/hang")
        self.assertEqual(self.results(session), [])

    def test_a_form_or_a_page_of_another_site_changes_and_reads_nothing(self):
        good = {"url": self.url + "/bytes/1?page"}
        for fields, status in [({"Content_Type": "text/plain"}, 415), ({"Earshot_API": "2"}, 400), ({"Host": "evil.example"}, 421),
                               ({"Origin": "http://evil.example"}, 403), ({"Origin": "null"}, 403), ({"Sec_Fetch_Site": "cross-site"}, 403)]:
            answer = self.door.call("fetch", good, **fields)
            self.assertEqual((answer[0], answer[2]["status"]), (status, status), fields)
            self.assertNotIn("Access-Control-Allow-Origin", answer[1])
            if "Host" in fields or "Origin" in fields:
                self.assertEqual(self.door.call("status", **fields)[0], status)
        # The proxy does not lead to it, nor a page below the prefix.
        address = f"http://{HOST}:{self.door.api_port}/v1/status"
        self.assertEqual(self.door.get(address)[0], 508)
        self.assertEqual(self.door.get("/" + address)[0], 508)
        self.assertEqual(self.door.get("/v1/status")[0], 404)
        self.assertEqual(self.origin.journal.count("/bytes/1?page"), 0)
        named = {"Origin": "https://console.example", "Sec_Fetch_Site": "cross-site"}
        for answer in (self.door.call("fetch", method="OPTIONS", **named), self.door.call("fetch", good, **named)):
            self.assertLess(answer[0], 300)
            self.assertEqual(answer[1]["Access-Control-Allow-Origin"], "https://console.example")

    def test_wrong_input_is_a_problem_that_names_the_member(self):
        for path, message, word in [("fetch", {"url": 1}, "url"), ("fetch", {"url": self.url, "retries": 21}, "retries"),
                                    ("sessions", {"subscribe": "a"}, "subscribe"), ("requests", {"requests": []}, "requests"),
                                    ("requests/remove", {"handler": "a/", "id": "1"}, "handler"), ("fetch", [], "JSON")]:
            status, fields, problem = self.door.call(path, message)
            self.assertEqual((status, fields["Content-Type"]), (400, "application/problem+json"))
            self.assertIn(word, problem["detail"])
        self.assertEqual(self.door.call("none")[0], 404)
        status, fields, _ = self.door.call("fetch")
        self.assertEqual((status, fields["Allow"]), (405, "POST"))

    def test_sessions_and_submissions_have_a_bound(self):
        many = [{"url": self.url}] * 101
        self.assertEqual(self.door.call("requests", {"session": self.session(), "requests": many})[0], 400)
        self.assertEqual(self.door.call("sessions", {"subscribe": ["a"] * 101})[0], 400)
        with Door(arguments=["--http-api", "0"]) as self.door:
            sessions = [self.session() for _ in range(256)]
            status, fields, _ = self.door.call("sessions", {})
            self.assertEqual((status, fields["Retry-After"]), (429, "1"))
            self.door.call("sessions/close", {"session": sessions[0]})
            self.session()

    def test_inline_bodies_of_a_session_have_a_bound(self):
        with Door(arguments=["--http-api", "0", "--inline-bytes", "1000000"]) as self.door, self.door.client() as client:
            session = self.session(subscribe=["inline"])
            for number in range(3):
                client.fetch("inline", number, f"{self.url}/bytes/1000000?inline-{number}", deliver="inline")
            results = self.results(session, wait=60, count=3)
            answers = [self.door.call(f"body?session={session}&sequence={result['sequence']}") for result in results]
            self.assertEqual([answer[0] for answer in answers], [200, 200, 410])
            self.assertEqual(answers[2][2]["code"], "unknown-body")
            self.assertTrue(answers[1][2] == body(1_000_000))

    def test_bodies_that_wait_in_a_session_have_a_bound(self):
        session = self.session()
        text = json.dumps({"session": session, "requests": [{"url": self.url, "method": "PUT", "body": "x" * 3_000_000}]})
        request = (f"POST /v1/requests HTTP/1.1\r\nHost: localhost\r\nEarshot-API: 1\r\nContent-Type: application/json\r\n"
                   f"Content-Length: {len(text)}\r\n\r\n{text}").encode()
        os.kill(self.door.broker, signal.SIGSTOP)
        try:
            peers = [socket.create_connection((HOST, self.door.api_port), 60) for _ in range(3)]
            for peer in peers:
                peer.sendall(request)
            # 8 MiB; the first two wait for the broker.
            refused, = select.select(peers, [], [], 60)[0]
            self.assertEqual(refused.recv(12), b"HTTP/1.1 429")
        finally:
            os.kill(self.door.broker, signal.SIGCONT)
        for peer in peers:
            if peer is not refused:
                self.assertEqual(peer.recv(12), b"HTTP/1.1 200")
            peer.close()

    def test_bodies_of_requests_leave_room_for_others_when_they_are_answered(self):
        connection = http.client.HTTPConnection(HOST, self.door.api_port, timeout=60)
        self.addCleanup(connection.close)
        # More than the bound on all bodies at once, 64 MiB.
        for _ in range(20):
            connection.request("POST", "/v1/sessions", b"{" + b" " * 4_000_000, {"Earshot-API": "1", "Content-Type": "application/json"})
            response = connection.getresponse()
            self.assertEqual((response.status, b"JSON" in response.read()), (400, True))

    def test_the_served_document_is_that_of_protocols(self):
        document = json.loads((checkout.ROOT / "protocols" / "openapi.json").read_text())
        self.assertEqual(self.door.call("openapi.json")[2], document)


if __name__ == "__main__":
    unittest.main()
