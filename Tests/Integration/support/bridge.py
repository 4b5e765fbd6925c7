"""Machines on a bridge: network namespaces that are joined by pairs of virtual network devices.

The namespaces have no names. They belong to processes of the test, so nothing of them outlives it, and two tests never meet.
"""

import ctypes
import os
import subprocess

from .processes import Program

CLONE_NEWNET = 0x4000_0000
NETWORK = "10.88.0"
#: Address of the test's own namespace, where the bridge, the origins and the clients are.
HOME = f"{NETWORK}.254"
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _ip(*words, inside=()):
    done = subprocess.run([*inside, "ip", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"ip {' '.join(map(str, words))}: {done.stderr.strip()}")


def obstacle():
    """Returns the reason why this machine permits no namespaces with a bridge; None if it does."""
    script = "ip link add dev near type bridge && ip link add dev far type veth peer name lan"
    tried = subprocess.run(["unshare", "--net", "sh", "-c", script], capture_output=True, text=True, check=False)
    return tried.stderr.strip() or "no permission" if tried.returncode else None


class Machine:
    """Network namespace with an address on the bridge. `prefix`: command that starts another one there, in the same process."""

    def __init__(self, number):
        self.number = number
        self.address = f"{NETWORK}.{number}"
        self._holder = Program(["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec sleep infinity"])
        self._holder.await_line("up", "stdout")
        self.prefix = ["nsenter", f"--net=/proc/{self._holder.pid}/ns/net"]
        self._near = f"near{number}"
        _ip("link", "add", "dev", self._near, "type", "veth", "peer", "name", "lan", "netns", self._holder.pid)
        _ip("link", "set", self._near, "master", "bridge", "up")
        _ip("address", "add", f"{self.address}/24", "dev", "lan", inside=self.prefix)
        _ip("link", "set", "lan", "up", inside=self.prefix)

    def cut(self):
        """Takes its link down."""
        _ip("link", "set", self._near, "down")

    def mend(self):
        """Brings its link up again."""
        _ip("link", "set", self._near, "up")

    def isolate(self, others):
        """Drops its packets to other machines. It still reaches `HOME`."""
        for other in others:
            _ip("route", "add", "blackhole", other.address, inside=self.prefix)

    def rejoin(self, others):
        for other in others:
            _ip("route", "del", "blackhole", other.address, inside=self.prefix)

    def close(self):
        self._holder.kill()


class Bridge:
    """`with Bridge() as bridge:` moves this thread, and its later threads and processes, into a namespace with a bridge."""

    def __init__(self):
        self._machines = []

    def __enter__(self):
        self._home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        _check(_libc.unshare(CLONE_NEWNET))
        _ip("link", "set", "lo", "up")
        _ip("link", "add", "dev", "bridge", "type", "bridge", "stp_state", "0", "forward_delay", "0")
        _ip("address", "add", f"{HOME}/24", "dev", "bridge")
        _ip("link", "set", "bridge", "up")
        return self

    def __exit__(self, *_):
        for machine in self._machines:
            machine.close()
        _check(_libc.setns(self._home, CLONE_NEWNET))
        os.close(self._home)

    def machine(self):
        """Adds a machine."""
        self._machines.append(Machine(len(self._machines) + 1))
        return self._machines[-1]
