"""Internationalized host names, and URLs with bytes above 7F: one form on the wire, in the queue and in the cache."""

import urllib.parse

from support.harness import Bus, TestCase
from support.names import NameServer
from support.origin import Origin, body

HOST = "xn--bcher-kva.example"


def octets(text):
    """Returns the text whose Latin-1 bytes are the UTF-8 of `text`, which the test client sends."""
    return text.encode().decode("latin-1")


class HostNameTests(TestCase):
    def setUp(self):
        self.origin = self.enterContext(Origin())
        self.port = urllib.parse.urlsplit(self.origin.url).port
        names = self.enterContext(NameServer({HOST: ["127.0.0.1"]}, ttl=600))
        self.bus = self.enterContext(Bus(workers=1, arguments=("--dns-server", names.address)))

    def test_the_command_and_a_client_fetch_from_an_internationalized_host(self):
        got = self.bus.run("get", f"http://bücher.example:{self.port}/bytes/9?command")
        self.assertEqual((got.status, got.stdout), (0, body(9)), got.describe())
        client = self.bus.client()
        for number, host in enumerate(("bücher.example", "BÜCHER.EXAMPLE", "b%C3%BCcher.example")):
            client.fetch("h", number, octets(f"http://{host}:{self.port}/bytes/9?{number}"))
            answer = client.terminal()
            self.assertResult(answer, body(9))
            self.assertEqual(answer.fields["url"], f"http://{HOST}:{self.port}/bytes/9?{number}")
        self.assertEqual({r.headers["host"] for r in self.origin.log()}, {f"{HOST}:{self.port}"})

    def test_bytes_above_7F_in_path_and_query_arrive_as_they_were_sent(self):
        client = self.bus.client()
        client.fetch("h", 1, f"{self.origin.url}/bytes/7?caf\xe9&\xf0\x9f&{octets('ä')}")
        answer = client.terminal()
        self.assertResult(answer, body(7))
        self.assertEqual(self.origin.log()[0].target, "/bytes/7?caf%E9&%F0%9F&%C3%A4")
        self.assertEqual(answer.fields["url"], f"{self.origin.url}/bytes/7?caf%E9&%F0%9F&%C3%A4")
