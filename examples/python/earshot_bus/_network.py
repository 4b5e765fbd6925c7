"""Buses on a network: their addresses and keys, and the choice between several. No sockets; `_tunnel` connects."""

from __future__ import annotations

import os
import pathlib
import random
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ._results import NoBroker

Addresses: TypeAlias = "str | os.PathLike[str] | Sequence[str] | None"
"""A runtime directory, or the addresses of buses on a network."""

LEASE = 60.0
"""Lease in seconds over a network, where a lost connection does not mean a dead client."""
HOME_SECONDS = 3.0
"""Seconds for which a lost bus is tried before others, because it has the session. A gateway restarts in about one."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
"""Exponential backoff in seconds between rounds through the buses. Half of each pause is random."""
DRAIN_TIME = 1.0
"""Seconds for the end of running transfers at a bus that drains, before the client goes to another one."""
MOST_HANDSHAKES = 3
"""Number of failed handshakes in a row that mean a wrong key. A gateway that restarts can fail one."""
KEY_FILE_BYTES = 16_384

_ADDRESS = re.compile(r"tcp://(\[[0-9A-Za-z:.%]+\]|[0-9A-Za-z._-]{1,253}):([0-9]{1,5})")
_LINE = re.compile(r"""\s*([A-Za-z-]+)\s*=\s*(?:"([^"]*)"|'([^']*)')""")
_Z85 = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")

SENTENCES = {
    "unreachable": "no bus answers at {}: check address and network, and that its `earshot serve` has --listen",
    "handshake-failed": "the bus at {} rejects the handshake: compare the server key with `earshot key show` on its machine",
    "handshake-invalid": "{} is no bus with encryption: check the address and the port",
    "refused": "the bus at {} has not authorized the key of this client: ask its administrator for `earshot key`",
    "lost": "the connection to the bus at {} broke: wait for the bus or the network",
    "silent": "the bus at {} accepts the connection and does not answer: check its log",
}
"""Reasons why a connection ended or did not begin, with a next step."""


@dataclass(frozen=True)
class Bus:
    """Address of a bus, and the keys of both ends, as 40 characters of Z85."""

    host: str
    port: int
    public_key: str
    secret_key: str = field(repr=False)
    server_key: str

    def __str__(self) -> str:
        return f"tcp://{self.host}:{self.port}"


class Buses:
    """Buses in the order of preference, and the one in use."""

    def __init__(self, buses: Sequence[Bus]) -> None:
        self._buses = list(buses)
        self._endings: list[str | None] = [None] * len(buses)
        self._answered = [False] * len(buses)
        """Whether each bus ever answered: then its server key is right."""
        self._handshakes = [0] * len(buses)
        """Number of failed handshakes in a row."""
        self._index = 0
        self._home: int | None = None
        """Bus with the session."""
        self._home_until: float | None = None
        self.failures = 0
        """Number of failed attempts since the last session."""

    @property
    def current(self) -> Bus:
        return self._buses[self._index]

    @property
    def has_others(self) -> bool:
        """Whether a bus other than the current one may accept the client."""
        return any(index != self._index and not self._is_hopeless(index) for index in range(len(self._buses)))

    @property
    def last_failure(self) -> str:
        """Sentence about the last failure of a bus."""
        order = [self._index, *range(len(self._buses))]
        return next((SENTENCES[ending].format(self._buses[index]) for index in order if (ending := self._endings[index])),
                    f"no bus answers at {self.current}")

    def connected(self) -> None:
        """Handles a WELCOME."""
        self._home, self._home_until, self.failures = self._index, None, 0
        self._answered[self._index] = True
        self._handshakes[self._index] = 0
        self._endings = [ending if self._is_hopeless(index) else None for index, ending in enumerate(self._endings)]
        self._endings[self._index] = None

    def drained(self) -> None:
        """Handles that the bus with the session ends, so that it is not tried again before the others."""
        self._home_until = 0.0

    def failed(self, ending: str, now: float) -> float:
        """Handles the end of a connection, and selects the next bus. Returns the pause before it, in seconds.

        Raises `NoBroker` if no bus can accept this client.
        """
        at = self._index
        self.failures += 1
        self._endings[at] = ending
        self._handshakes[at] = self._handshakes[at] + 1 if ending == "handshake-failed" else 0
        if all(map(self._is_hopeless, range(len(self._buses)))):
            raise NoBroker(self.last_failure)
        if self._home == at and self._home_until is None:
            self._home_until = now + HOME_SECONDS
        prefers_home = self._home == at and now < (self._home_until or 0) and not self._is_hopeless(at)
        rounds = self.failures - 1
        if not prefers_home and len(self._buses) > 1:
            while True:
                self._index = (self._index + 1) % len(self._buses)
                if not self._is_hopeless(self._index):
                    break
            rounds = self.failures // len(self._buses)
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(rounds, 10))
        return pause * random.uniform(0.5, 1)

    def _is_hopeless(self, index: int) -> bool:
        """Whether no later attempt can succeed without another key or address."""
        ending, answered = self._endings[index], self._answered[index]
        return (ending == "refused" or ending == "handshake-invalid" and not answered
                or ending == "handshake-failed" and not answered and self._handshakes[index] >= MOST_HANDSHAKES)


def find(addresses: Addresses, key: str | os.PathLike[str] | None, server_key: str | Sequence[str] | None) -> Buses | None:
    """Returns the buses of these addresses, else those of `EARSHOT_BUS`. None for a bus of this machine.

    Raises `ValueError` for an invalid address or key, and `NoBroker` for an unusable key file.
    """
    if addresses is None:
        addresses = os.environ.get("EARSHOT_BUS") or None
    if addresses is None or isinstance(addresses, os.PathLike):
        return None
    if isinstance(addresses, str):
        if not addresses.startswith("tcp://"):
            return None
        addresses = re.split(r"[,\s]+", addresses)
    if not addresses:
        raise ValueError("the list of buses is empty: give at least one address")
    key = key or os.environ.get("EARSHOT_BUS_KEY")
    if not key:
        raise ValueError("a bus on a network needs the key of this client: create one with `earshot key new NAME`")
    server_key = server_key or os.environ.get("EARSHOT_SERVER_KEY") or ()
    keys = re.split(r"[,\s]+", server_key) if isinstance(server_key, str) else [os.fspath(each) for each in server_key]
    if len(keys) not in (1, len(addresses)):
        raise ValueError(f"{len(addresses)} buses have {len(keys)} server keys: give one for all, or one for each; "
                         "`earshot key show` prints it")
    values = _values(_text(key, is_secret=True))
    public, secret = values.get("public-key", ""), values.get("secret-key", "")
    if not (_is_key(public) and _is_key(secret)):
        raise NoBroker(f"the key file {key} is invalid: it needs public-key and secret-key with 40 characters each; "
                       "create one with `earshot key new`")
    servers = [_server_key(text) for text in keys] * (len(addresses) if len(keys) == 1 else 1)
    return Buses([_bus(address, public, secret, server) for address, server in zip(addresses, servers)])


def _bus(address: str, public: str, secret: str, server: str) -> Bus:
    parts = _ADDRESS.fullmatch(address)
    if parts is None or not 0 < int(parts[2]) < 65_536:
        raise ValueError("the address of the bus is invalid: use tcp://HOST:PORT, such as tcp://example.org:5765")
    return Bus(parts[1], int(parts[2]), public, secret, server)


def _is_key(text: str) -> bool:
    return _Z85.fullmatch(text) is not None


def _server_key(text: str) -> str:
    """Returns a key, or that of the file with this name. Keys may contain slashes, so an existing file decides."""
    if not os.path.exists(text):
        if _is_key(text):
            return text
        raise ValueError("the server key is neither a key of 40 characters nor a file; `earshot key show` prints it")
    content = _text(text, is_secret=False)
    # The output of `earshot key show`, or a key file.
    found = content.strip() if _is_key(content.strip()) else _values(content).get("public-key", "")
    if not _is_key(found):
        raise NoBroker(f"the file {text} has no public-key of 40 characters; give the server's public key")
    return found


def _text(path: str | os.PathLike[str], is_secret: bool) -> str:
    """Returns the content of a key file."""
    try:
        with open(pathlib.Path(path), "rb") as file:
            if is_secret and stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise NoBroker(f"the key file {path} is accessible to other users; run `chmod 600` on it, or create a new key")
            return file.read(KEY_FILE_BYTES).decode(errors="replace")
    except OSError as error:
        raise NoBroker(f"cannot read the key file {path}: {error.strerror}") from None


def _values(text: str) -> dict[str, str]:
    """Returns the texts of TOML: lines `name = "text"` without escapes."""
    found = (_LINE.match(line) for line in text.splitlines())
    return {line[1]: line[2] if line[2] is not None else line[3] for line in found if line}
