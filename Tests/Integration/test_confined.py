"""Tries of code that took over a worker or the gateway, one system call each, beside the table of docs/operations.md."""

import os
import shutil
import signal
import socket
import struct
import unittest

from support.figures import report
from support.harness import TestCase, temporary_folder
from support.injection import IS_SUPPORTED, LANDLOCK, Injected
from support.network import NetworkBus
from support.origin import Origin
from support.processes import children, eventually

READ, WRITE, CREATE = os.O_RDONLY, os.O_WRONLY, os.O_WRONLY | os.O_CREAT | os.O_EXCL
LARGE = 200_000
HERE = -100
#: Outcomes of a refused try: of Landlock, and of the filter of system calls.
CLOSED = {"EACCES", "EPERM", "EAFNOSUPPORT", "EPROTONOSUPPORT", "ENOSYS"}
#: The call has an effect. The table of docs/operations.md names each such row.
OPEN = {None}


def address(port, host="127.0.0.1"):
    return struct.pack("<H", socket.AF_INET) + struct.pack(">H", port) + socket.inet_aton(host) + bytes(8)


def unix_address(path):
    return struct.pack("<H", socket.AF_UNIX) + os.fsencode(path) + b"\0"


def file_tries(outside, own):
    """Files that are no business of the process. `own`: its folder in the spool; None for the gateway."""
    for path in outside:
        yield "open for no access", "open", (path, 3, 0), CLOSED
        yield "flags in memory", "openat2", (HERE, path, bytes(24), 24), CLOSED
        if not LANDLOCK:
            continue
        yield "read", "open", (path, READ, 0), CLOSED
        yield "write", "openat", (HERE, path, WRITE, 0), CLOSED
        yield "unlink", "unlink", (path,), CLOSED
        yield "rename", "rename", (path, f"{path}.moved"), CLOSED
        yield "second name", "link", (path, f"{own or '/tmp'}/second"), CLOSED
    path = outside[0]
    yield "truncate", "openat", (HERE, path, READ | os.O_TRUNC, 0), CLOSED
    yield "truncate", "open", (path, READ | os.O_TRUNC, 0), CLOSED
    for name, *arguments in (("truncate", path, 0), ("chmod", path, 0o777), ("chown", path, 0, 0), ("utimensat", HERE, path, 0, 0),
                             ("setxattr", path, "user.a", b"x", 1, 0), ("removexattr", path, "user.a"), ("creat", f"{path}.new", 0o600),
                             ("mkdir", f"{path}.folder", 0o700), ("mkdirat", HERE, f"{path}.folder", 0o700),
                             ("symlink", path, f"{path}.link"), ("symlinkat", path, HERE, f"{path}.link"),
                             ("linkat", HERE, path, HERE, f"{path}.second", 0), ("renameat", HERE, path, HERE, f"{path}.moved"),
                             ("renameat2", HERE, path, HERE, f"{path}.moved", 0), ("rmdir", os.path.dirname(path)),
                             ("unlinkat", HERE, os.path.dirname(path), 0x200),
                             ("mknod", f"{path}.pipe", 0o010600, 0), ("open_by_handle_at", HERE, 0, 0),
                             ("name_to_handle_at", HERE, path, 0, 0, 0), ("inotify_add_watch", 0, path, 1), ("fanotify_init", 0, 0)):
        yield "change by path", name, arguments, CLOSED
    for folder in ("/tmp", "/dev/shm", "/etc", "/") if LANDLOCK else ():
        yield "new file", "open", (f"{folder}/earshot-new", CREATE, 0o600), CLOSED
        yield "list", "open", (folder, READ | os.O_DIRECTORY, 0), CLOSED
    if own:
        yield "new file in its folder", "open", (f"{own}/new", CREATE, 0o600), OPEN
        yield "second name in its folder", "link", (f"{own}/new", f"{own}/second"), CLOSED
        yield "another name in its folder", "rename", (f"{own}/new", f"{own}/other"), CLOSED
        yield "file in its folder", "unlink", (f"{own}/new",), OPEN


def process_tries(own, others):
    vector = struct.pack("<Q", 0)
    for name, *arguments in (("execve", "/bin/sh", vector, vector), ("execveat", HERE, "/bin/sh", vector, vector, 0), ("fork",),
                             ("vfork",), ("clone", signal.SIGCHLD, 0, 0, 0, 0), ("clone3", 0, 0), ("setsid",), ("setpgid", 0, 0)):
        yield "other program or process", name, arguments, CLOSED
    for other in others:
        for name, *arguments in (("kill", other, 0), ("tkill", other, 0), ("tgkill", other, other, 0), ("rt_sigqueueinfo", other, 0, 0),
                                 ("rt_tgsigqueueinfo", other, other, 0, 0), ("ptrace", 16, other, 0, 0),
                                 ("process_vm_readv", other, 0, 0, 0, 0, 0), ("process_vm_writev", other, 0, 0, 0, 0, 0),
                                 ("kcmp", own, other, 0, 0, 0), ("prlimit64", other, 0, 0, 0), ("setpriority", 0, other, 5),
                                 ("ioprio_set", 1, other, 0), ("sched_setaffinity", other, 8, struct.pack("<Q", 1)),
                                 ("sched_setattr", other, 0, 0), ("migrate_pages", other, 0, 0, 0),
                                 ("move_pages", other, 0, 0, 0, 0, 0)):
            yield "another process", name, arguments, CLOSED
    for name, *arguments in (("kill", -1, 0), ("kill", 0, 0), ("pidfd_getfd", 0, 0, 0), ("pidfd_send_signal", 0, 0, 0, 0),
                             ("process_madvise", 0, 0, 0, 0, 0), ("process_mrelease", 0, 0)):
        yield "another process", name, arguments, CLOSED
    for name, *arguments in (("shmget", 1, 1, 0), ("shmat", 0, 0, 0), ("shmctl", 0, 0, 0), ("semget", 1, 1, 0), ("semop", 0, 0, 0),
                             ("semctl", 0, 0, 0, 0), ("msgget", 1, 0), ("msgsnd", 0, 0, 0, 0), ("msgrcv", 0, 0, 0, 0, 0),
                             ("msgctl", 0, 0, 0), ("mq_open", "/a", 0, 0, 0), ("mq_unlink", "/a")):
        yield "object of another process", name, arguments, CLOSED
    # F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY of fcntl; FIOSETOWN, SIOCSPGRP, TIOCSTI, TIOCLINUX of ioctl.
    for command in (8, 10, 15, 1024, 1026):
        yield "signal or delay by a descriptor", "fcntl", (0, command, others[0]), CLOSED
    for command in (0x8901, 0x8902, 0x5412, 0x541C):
        yield "signal or input by a descriptor", "ioctl", (0, command, struct.pack("<i", others[0])), CLOSED
    limit = struct.pack("<QQ", 1 << 40, 1 << 40)
    for resource in (4, 7, 9):
        yield "limit", "setrlimit", (resource, limit), CLOSED
        yield "limit", "prlimit64", (0, resource, limit, 0), CLOSED
        yield "limit", "prlimit64", (own, resource, limit, 0), CLOSED
        yield "read a limit of its own", "prlimit64", (0, resource, 0, limit), OPEN
    yield "life without its parent", "prctl", (1, 0, 0, 0, 0), CLOSED


def kernel_tries():
    for name, *arguments in (("unshare", 0x10000000), ("unshare", 0x20000), ("setns", 0, 0), ("mount", "a", "/tmp", "tmpfs", 0, 0),
                             ("umount2", "/tmp", 0), ("pivot_root", "/", "/"), ("chroot", "/"), ("move_mount", 0, 0, 0, 0, 0),
                             ("open_tree", HERE, "/", 0), ("fsopen", "tmpfs", 0), ("fsmount", 0, 0, 0),
                             ("mount_setattr", 0, 0, 0, 0, 0)):
        yield "namespace or mount", name, arguments, CLOSED
    for name, *arguments in (("setuid", 0), ("setgid", 0), ("setreuid", 0, 0), ("setresuid", 0, 0, 0), ("setfsuid", 0),
                             ("setgroups", 0, 0), ("capset", 0, 0), ("add_key", "user", "a", b"x", 1, -2),
                             ("request_key", "user", "a", 0, -2), ("keyctl", 0, 0, 0, 0, 0)):
        yield "user or privilege", name, arguments, CLOSED
    for name, *arguments in (("bpf", 0, 0, 0), ("perf_event_open", 0, 0, 0, 0, 0), ("userfaultfd", 0), ("io_uring_setup", 1, 0),
                             ("io_uring_enter", 0, 0, 0, 0, 0, 0), ("io_uring_register", 0, 0, 0, 0), ("personality", 0),
                             ("modify_ldt", 0, 0, 0), ("iopl", 3), ("ioperm", 0, 1, 1)):
        yield "part of the kernel with many faults", name, arguments, CLOSED
    for name, *arguments in (("kexec_load", 0, 0, 0, 0), ("init_module", 0, 0, 0), ("finit_module", 0, 0, 0), ("delete_module", 0, 0),
                             ("swapon", "/", 0), ("reboot", 0, 0, 0, 0), ("acct", 0), ("syslog", 0, 0, 0), ("quotactl", 0, 0, 0, 0),
                             ("settimeofday", 0, 0), ("clock_settime", 0, 0), ("adjtimex", 0), ("sethostname", "a", 1),
                             ("vhangup",)):
        yield "the machine", name, arguments, CLOSED


def socket_tries(is_gateway):
    stream, datagram, raw = socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW
    internet = CLOSED if is_gateway else OPEN
    for family in (socket.AF_INET, socket.AF_INET6):
        yield "TCP", "socket", (family, stream, 0), internet
        yield "TCP", "socket", (family, stream, socket.IPPROTO_TCP), internet
        yield "UDP", "socket", (family, datagram, 0), internet
        # ICMP, MPTCP, SCTP, DCCP, UDP-Lite, SMC.
        for kind, protocol in ((datagram, 1), (stream, 262), (stream, 132), (6, 33), (datagram, 136), (stream, 256), (raw, 1), (raw, 255)):
            yield "other protocol", "socket", (family, kind, protocol), CLOSED
    for family in (socket.AF_PACKET, socket.AF_NETLINK, socket.AF_VSOCK, socket.AF_ALG, socket.AF_BLUETOOTH, 30, 43, 44):
        yield "other family", "socket", (family, datagram, 0), CLOSED
    yield "Unix datagrams", "socket", (socket.AF_UNIX, datagram, 0), CLOSED
    yield "Unix packets", "socket", (socket.AF_UNIX, socket.SOCK_SEQPACKET, 0), CLOSED
    yield "Unix datagrams", "socketpair", (socket.AF_UNIX, datagram, 0, bytes(8)), CLOSED
    yield "pair of another family", "socketpair", (30, stream, 0, bytes(8)), CLOSED
    if is_gateway:
        # MSG_FASTOPEN of sendto, sendmsg and sendmmsg.
        for name, *arguments in (("sendto", 0, b"", 0, 1 << 29, 0, 0), ("sendmsg", 0, 0, 1 << 29), ("sendmmsg", 0, 0, 0, 1 << 29)):
            yield "connect by data", name, arguments, {"EPERM"}
    else:
        for name in ("listen", "accept", "accept4"):
            yield "listen", name, (0, 0, 0, 0), CLOSED


@unittest.skipUnless(IS_SUPPORTED, "system calls are injected on x86-64 only")
class ConfinedTests(TestCase):
    def setUp(self):
        self.folder = temporary_folder()
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / "secret").write_text("secret")
        (self.folder / "other-user").write_text("secret")
        if not os.geteuid():
            os.chown(self.folder / "other-user", 65534, 65534)
        self.folder.joinpath("bus").mkdir()
        stores = ["--cache-folder", self.folder / "cache", "--durable-folder", self.folder / "durable"]
        self.bus = self.enterContext(NetworkBus(workers=2, folder=self.folder / "bus", arguments=stores))
        # Without Landlock the tries below would change files.
        needed = "landlock" if LANDLOCK else "seccomp"
        eventually(lambda: all(needed in w["sandbox"] for w in self.bus.status()["workers"]), "the workers are in sandboxes")
        with Origin() as origin:
            self.client = self.bus.client()
            self.client.hold()
            self.client.fetch("h", 1, f"{origin.url}/bytes/{LARGE}")
            self.body = self.client.terminal().fields["file"]

    def outside(self):
        """Files that the user of the bus can open, and others."""
        found = [self.folder / "secret", self.folder / "other-user", self.body, self.folder / "durable/requests.sqlite", self.folder / "cache/index.sqlite",
                 self.bus.runtime / "broker.lock", self.bus.spool / "broker.lock", f"/proc/{self.bus.broker}/mem",
                 f"/proc/{self.bus.broker}/environ", self.bus.folder / "test.key"]
        return [os.fspath(path) for path in found if os.path.exists(path)]

    def lists(self, *folders):
        """Tries to list folders, and to read files of the machine. Those are only read, in case a sandbox fails."""
        tries = [("list", (folder, READ | os.O_DIRECTORY, 0)) for folder in folders]
        tries += [("read", (path, READ, 0)) for path in ("/etc/passwd", "/etc/shadow") if os.path.exists(path)]
        return [(title, "open", arguments, CLOSED) for title, arguments in tries if LANDLOCK]

    def assertConfined(self, name, process, tries):
        wrong, counts = [], {True: 0, False: 0}
        for title, call, arguments, expected in tries:
            outcome = process.outcome(call, *arguments)
            counts[outcome is None] += 1
            if outcome not in expected:
                wrong.append((title, call, arguments, outcome))
        self.assertEqual(wrong, [])
        report(f"{name}: {sum(counts.values())} tries, {counts[False]} refused, {counts[True]} permitted")

    def assertUndisturbed(self):
        with open(self.body, "rb") as file:
            self.assertEqual(len(file.read()), LARGE)
        self.assertEqual((self.folder / "secret").read_text(), "secret")
        self.assertEqual([children(worker) for worker in self.bus.workers], [[], []])
        self.assertTrue(self.client.query("status")["ready"])

    def test_a_worker_reaches_its_folder_in_the_spool_and_the_network(self):
        first, second = self.bus.workers
        other = self.bus.spool / f"worker-{second}"
        self.assertTrue(other.is_dir())
        (other / "unfinished").write_text("body of another user")
        with Injected(first) as worker:
            outside = [*self.outside(), os.fspath(other / "unfinished")]
            self.assertConfined("a worker", worker, [
                *file_tries(outside, self.bus.spool / f"worker-{first}"), *self.lists(other, self.bus.spool),
                *process_tries(first, [self.bus.broker, second, os.getpid()]), *kernel_tries(), *socket_tries(False)])
            self.check_sockets(worker)
            self.check_abstract_sockets(worker)
        self.assertUndisturbed()

    def check_sockets(self, worker):
        """Uses of sockets that can be created."""
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            made = worker.call("socket", socket.AF_INET, kind, 0)
            self.assertEqual(worker.outcome("bind", made, address(0), 16), "EPERM")
            self.assertEqual(worker.outcome("listen", made, 1), "EPERM")
            worker.call("close", made)
        # The address policy is code of the worker: the kernel permits all addresses.
        with socket.create_server(("127.0.0.1", 0)) as server:
            made = worker.call("socket", socket.AF_INET, socket.SOCK_STREAM, 0)
            self.assertIsNone(worker.outcome("connect", made, address(server.getsockname()[1]), 16))
            worker.call("close", made)
        descriptor = worker.call("open", self.bus.spool / f"worker-{worker.pid}" / "made", CREATE, 0o600)
        for mode in (0o4755, 0o644, 0o600):
            self.assertEqual(worker.outcome("fchmod", descriptor, mode), "EPERM")
        self.assertEqual(worker.outcome("fchown", descriptor, 0, 0), "EPERM")
        self.assertEqual(worker.outcome("fsetxattr", descriptor, "user.a", b"x", 1, 0), "EPERM")
        self.assertIsNone(worker.outcome("fchmod", descriptor, 0o400))
        worker.call("close", descriptor)

    def check_abstract_sockets(self, process):
        """Those of other processes are closed to it."""
        if LANDLOCK >= 6:
            with socket.socket(socket.AF_UNIX) as outside:
                name = b"\0earshot-" + os.urandom(8).hex().encode()
                outside.bind(name)
                outside.listen()
                made = process.call("socket", socket.AF_UNIX, socket.SOCK_STREAM, 0)
                there = struct.pack("<H", socket.AF_UNIX) + name
                self.assertEqual(process.outcome("connect", made, there, len(there)), "EPERM")
                process.call("close", made)

    def test_a_worker_is_neither_a_client_nor_a_second_worker(self):
        with Injected(self.bus.workers[0]) as worker:
            for name, line in (("bus", "a worker may not be a client"), ("work", "a worker may connect only once")):
                made = worker.call("socket", socket.AF_UNIX, socket.SOCK_STREAM, 0)
                there = unix_address(self.bus.runtime / name)
                self.assertIsNone(worker.outcome("connect", made, there, len(there)), "the kernel does not forbid it")
                self.bus.program.await_line(line)
                worker.call("close", made)
        self.assertUndisturbed()

    def test_the_gateway_reaches_its_keys_and_the_sockets_of_the_broker(self):
        with Injected(self.bus.gateway) as gateway:
            self.assertConfined("the gateway", gateway, [
                *file_tries(self.outside(), None), *self.lists(self.bus.spool),
                *process_tries(gateway.pid, [self.bus.broker, self.bus.workers[0], os.getpid()]), *kernel_tries(),
                *socket_tries(True)])
            self.check_abstract_sockets(gateway)
        self.assertUndisturbed()


if __name__ == "__main__":
    unittest.main()
