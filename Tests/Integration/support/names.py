"""Name server on 127.0.0.1, so that tests of host names need no other one."""

import socket
import threading


class NameServer:
    """`with NameServer(names) as server:` responds to questions for `names`, and with NXDOMAIN to all others.

    `names` maps each name to a list of results: one for each successive question, the last one for all later ones; None means
    no response. A string can contain several addresses of both kinds, separated by spaces, and end in ` after SECONDS`, which
    delays the response. Responses may be cached for `ttl` seconds. `server.address` is HOST:PORT.
    """

    def __init__(self, names=None, ttl=0):
        self._names = {name: list(addresses) for name, addresses in (names or {}).items()}
        self._ttl = ttl
        self._changed = threading.Condition()
        self._questions = {}
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        # A burst of lookups exceeds the default, and a lost question is repeated after seconds.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self._socket.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._delay = 0
        self._thread = threading.Thread(target=self._serve, name="names", daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._socket.sendto(b"", self._socket.getsockname())
        self._thread.join(10)
        self._socket.close()

    def questions(self, name):
        """Returns the number of questions for the IPv4 address of `name`."""
        with self._changed:
            return self._questions.get(name, 0)

    def await_questions(self, name, wanted, timeout=60):
        """Waits until there were this many questions."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._questions.get(name, 0) >= wanted, timeout):
                raise AssertionError(f"{name} was asked for {self._questions.get(name, 0)} times, not {wanted}")

    def _serve(self):
        while True:
            question, client = self._socket.recvfrom(4096)
            if not question:
                return
            answer = self._answer(question) if len(question) >= 12 else None
            if answer and not self._delay:
                self._socket.sendto(answer, client)
            elif answer:
                late = threading.Timer(self._delay, self._send_late, (answer, client))
                late.daemon = True
                late.start()

    def _send_late(self, answer, client):
        try:
            self._socket.sendto(answer, client)
        except OSError:
            pass  # The test is over.

    def _answer(self, question):
        """Returns the response according to RFC 1035, 4.1: ID and flags of the question, the question, and the records, if
        any."""
        self._delay = 0
        labels, end = [], 12
        while end < len(question) and question[end]:
            labels.append(question[end + 1:end + 1 + question[end]].decode("latin-1").lower())
            end += question[end] + 1
        name, is_ipv4 = ".".join(labels), question[end + 1:end + 3] == b"\x00\x01"
        question_bytes = question[12:end + 5]
        if is_ipv4:
            with self._changed:
                self._questions[name] = self._questions.get(name, 0) + 1
                self._changed.notify_all()
        if name not in self._names:
            return question[:2] + b"\x81\x83\x00\x01" + bytes(6) + question_bytes
        addresses = self._names[name]
        entry = addresses[0]
        if entry is None:
            return None
        if is_ipv4 and len(addresses) > 1:
            addresses.pop(0)
        entry, _, delay = entry.partition(" after ")
        self._delay = float(delay or 0)
        kind, family = (b"\x00\x01", socket.AF_INET) if is_ipv4 else (b"\x00\x1c", socket.AF_INET6)
        records = [socket.inet_pton(family, address) for address in entry.split() if (":" in address) != is_ipv4]
        head = b"\xc0\x0c" + kind + b"\x00\x01" + self._ttl.to_bytes(4, "big")
        return (question[:2] + b"\x81\x80\x00\x01" + len(records).to_bytes(2, "big") + bytes(4) + question_bytes
                + b"".join(head + len(packed).to_bytes(2, "big") + packed for packed in records))
