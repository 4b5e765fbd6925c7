"""Network with delay: a network namespace with an interface of the C program `delay`."""

import contextlib
import ctypes
import os
import pathlib
import shutil
import subprocess

from bench import peers
from bench.frame import Failed

HERE = "10.9.0.1"
THERE = "10.9.0.2"
"""Address for programs: a connection to it ends at the same port of HERE, and each packet is delayed."""

CLONE_NEWNET = 0x40000000


def reason_against():
    """Returns the reason why this machine cannot have such a network; None if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root's rights"
    if not shutil.which("ip"):
        return "there is no command ip"
    return None if pathlib.Path("/dev/net/tun").exists() else "this kernel has no /dev/net/tun"


class Delay(peers.Program):
    """Context manager of the network, ready when its interface exists."""

    def __init__(self, microseconds):
        super().__init__("delay", microseconds, is_ready=lambda: "ready" in self.log.read_text())


@contextlib.contextmanager
def delayed(round_trip_ms):
    """Programs that this thread starts meanwhile run in the namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net", "rb") as outside:
        _check(libc.unshare(CLONE_NEWNET), "unshare")
        try:
            with Delay(round_trip_ms * 500):
                for words in ("link set lo up", f"addr add {HERE}/24 dev delay0",
                              "link set delay0 up mtu 1500 txqueuelen 10000"):
                    subprocess.run(["ip", *words.split()], check=True, capture_output=True)
                yield
        finally:
            _check(libc.setns(outside.fileno(), CLONE_NEWNET), "setns")


def _check(result, call):
    if result != 0:
        raise Failed(f"{call}: {os.strerror(ctypes.get_errno())}")
