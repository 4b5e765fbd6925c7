"""Two machines: network namespaces of this process and of `far`, joined by a line with delay, loss, and pauses.

The line is a process that carries packets between two TUN devices, because kernels without `sch_netem` cannot delay them.
`python3 support link FAR DELAY LOSS`: FAR is a process of the other namespace. A number on standard input takes the line down for
that many seconds.
"""

import collections
import ctypes
import fcntl
import os
import random
import select
import struct
import subprocess
import sys
import time

from .processes import Program, eventually

NEAR_ADDRESS, FAR_ADDRESS = "10.77.0.1", "10.77.0.2"
CLONE_NEWNET = 0x4000_0000
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x4004_54CA, 1, 0x1000
#: Packets that may wait in each direction: 60 MB, more than any window of the tests.
_WAITING = 40_000
_PACKETS_PER_TURN = 256
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def obstacle():
    """Returns the reason why this machine permits no namespaces and TUN devices; None if it does."""
    tried = subprocess.run(["unshare", "--net", "ip", "tuntap", "add", "dev", "t", "mode", "tun"], capture_output=True, text=True)
    return tried.stderr.strip() or "no permission" if tried.returncode else None


class Machines:
    """`with Machines(delay, loss) as machines:` moves this thread and its later processes into a namespace of its own.

    `delay`: one way, in seconds; `loss`: share of lost packets in each direction.
    """

    def __init__(self, delay=0.02, loss=0.01):
        self._delay, self._loss = delay, loss
        self._pauses = 0

    def __enter__(self):
        self._home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        _check(_libc.unshare(CLONE_NEWNET))
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        self._far = Program(["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec sleep infinity"])
        self._far.await_line("up", "stdout")
        self._line = Program([sys.executable, "-B", os.path.dirname(__file__), "link", self._far.pid, self._delay, self._loss])
        self._line.await_line("ready", "stdout")
        return self

    def __exit__(self, *_):
        self._line.kill()
        self._far.kill()
        _check(_libc.setns(self._home, CLONE_NEWNET))
        os.close(self._home)

    @property
    def far(self):
        """Command that starts another one on the far machine, in the same process."""
        return ["nsenter", f"--net=/proc/{self._far.pid}/ns/net"]

    def pause(self, seconds):
        """Takes the line down for some seconds, in which all packets are lost. Returns when it is up again."""
        self._line._process.stdin.write(f"{seconds}\n".encode())
        self._line._process.stdin.flush()
        self._pauses += 1
        eventually(lambda: self._line.stdout.decode().count("up") > self._pauses, "the line is up again", seconds + 30)


def _device(address, peer):
    """Creates a TUN device in the namespace of this thread. Returns its descriptor."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", b"line", _IFF_TUN | _IFF_NO_PI))
    subprocess.run(["ip", "address", "add", address, "peer", peer, "dev", "line"], check=True)
    subprocess.run(["ip", "link", "set", "line", "up", "txqueuelen", "10000"], check=True)
    return device


class _Direction:
    """Packets from one device to the other."""

    def __init__(self, source, target, delay, loss, seed):
        self.source, self.target = source, target
        self._delay, self._loss = delay, loss
        self._random = random.Random(seed)
        self.waiting = collections.deque()

    def take(self, now, is_up):
        """Takes packets. Returns whether there may be more."""
        for _ in range(_PACKETS_PER_TURN):
            try:
                packet = os.read(self.source, 65_536)
            except BlockingIOError:
                return False
            if is_up and len(self.waiting) < _WAITING and self._random.random() >= self._loss:
                self.waiting.append((now + self._delay, packet))
        return True

    def deliver(self, now):
        """Gives the packets whose time has come."""
        waiting = self.waiting
        while waiting and waiting[0][0] <= now:
            try:
                os.write(self.target, waiting.popleft()[1])
            except OSError:
                pass  # The device is full: the packet is lost.


def _carry(far, delay, loss):
    near_device = _device(NEAR_ADDRESS, FAR_ADDRESS)
    with open(f"/proc/{far}/ns/net", "rb") as namespace:
        _check(_libc.setns(namespace.fileno(), CLONE_NEWNET))
    far_device = _device(FAR_ADDRESS, NEAR_ADDRESS)
    directions = [_Direction(near_device, far_device, delay, loss, 1), _Direction(far_device, near_device, delay, loss, 2)]
    up_at = None
    """Moment at which the line comes up again; None while it is up."""
    poll = select.poll()
    for descriptor in (near_device, far_device, sys.stdin.fileno()):
        poll.register(descriptor, select.POLLIN)
    print("ready up", flush=True)
    while True:
        moments = [direction.waiting[0][0] for direction in directions if direction.waiting]
        moments += [] if up_at is None else [up_at]
        rest = None if not moments else max(0, (min(moments) - time.monotonic()) * 1000)
        # poll(2) rounds up to whole milliseconds, which is the precision of the delay.
        for descriptor, _ in poll.poll(rest):
            if descriptor == sys.stdin.fileno():
                word = sys.stdin.readline().strip()
                if not word:
                    return
                up_at = time.monotonic() + float(word)
        now = time.monotonic()
        if up_at is not None and up_at <= now:
            up_at = None
            print("up", flush=True)
        for direction in directions:
            direction.take(now, up_at is None)
            direction.deliver(now)


if __name__ == "__main__":
    _carry(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
