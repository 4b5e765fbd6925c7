"""System calls in the name of another process, as code that took it over would make them: ptrace(2). Only for x86-64."""

import ctypes
import errno
import os
import platform
import struct

#: Numbers of system calls, by name.
SYSCALLS = {
    "open": 2, "close": 3, "mmap": 9, "ioctl": 16, "shmget": 29, "shmat": 30, "shmctl": 31, "socket": 41, "connect": 42, "accept": 43,
    "sendto": 44, "recvfrom": 45, "bind": 49, "listen": 50, "socketpair": 53, "clone": 56, "fork": 57, "vfork": 58, "execve": 59, "kill": 62,
    "semget": 64, "semop": 65, "semctl": 66, "msgget": 68, "msgsnd": 69, "msgrcv": 70, "msgctl": 71, "fcntl": 72, "truncate": 76,
    "rename": 82, "mkdir": 83, "rmdir": 84, "creat": 85, "link": 86, "unlink": 87, "symlink": 88, "chmod": 90, "fchmod": 91,
    "chown": 92, "fchown": 93, "ptrace": 101, "syslog": 103, "setuid": 105, "setgid": 106, "setpgid": 109, "setsid": 112,
    "setreuid": 113, "setgroups": 116, "setresuid": 117, "setfsuid": 122, "capset": 126, "rt_sigqueueinfo": 129, "mknod": 133,
    "personality": 135, "setpriority": 141, "sched_setscheduler": 144, "vhangup": 153, "modify_ldt": 154, "pivot_root": 155,
    "prctl": 157, "adjtimex": 159, "setrlimit": 160, "chroot": 161, "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166,
    "swapon": 167, "reboot": 169, "sethostname": 170, "iopl": 172, "ioperm": 173, "init_module": 175, "delete_module": 176,
    "quotactl": 179, "setxattr": 188, "fsetxattr": 190, "removexattr": 197, "fremovexattr": 199, "tkill": 200,
    "sched_setaffinity": 203, "clock_settime": 227, "tgkill": 234, "mq_open": 240, "mq_unlink": 241, "kexec_load": 246,
    "unlinkat": 263, "sendmsg": 46, "sendmmsg": 307, "add_key": 248, "request_key": 249, "keyctl": 250, "ioprio_set": 251, "inotify_add_watch": 254, "migrate_pages": 256,
    "openat": 257, "mkdirat": 258, "renameat": 264, "linkat": 265, "symlinkat": 266, "unshare": 272, "move_pages": 279,
    "utimensat": 280, "accept4": 288, "rt_tgsigqueueinfo": 297, "perf_event_open": 298, "fanotify_init": 300, "prlimit64": 302,
    "name_to_handle_at": 303, "open_by_handle_at": 304, "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312,
    "finit_module": 313, "sched_setattr": 314, "renameat2": 316, "memfd_create": 319, "bpf": 321, "execveat": 322,
    "userfaultfd": 323, "pidfd_send_signal": 424, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsmount": 432, "pidfd_open": 434, "clone3": 435, "openat2": 437,
    "pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442, "process_mrelease": 448,
}
#: Version of the kernel's Landlock; 0 without it. The call is landlock_create_ruleset with LANDLOCK_CREATE_RULESET_VERSION.
LANDLOCK = max(0, ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1))
IS_SUPPORTED = platform.machine() == "x86_64"

_ATTACH, _DETACH, _SINGLE_STEP, _GET_REGISTERS, _SET_REGISTERS = 16, 17, 9, 12, 13
_NAMES = ("r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss fs_base gs_base ds es fs gs").split()
_WALL = 0x40000000
_ROOM = 1 << 16

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


class Injected:
    """Process whose main thread waits in a system call: `with Injected(pid) as process: process.call("kill", other, 9)`."""

    def __init__(self, pid):
        self.pid = pid

    def __enter__(self):
        # A timer may let it leave the call in which it waits.
        for _ in range(100):
            self._ptrace(_ATTACH)
            self._await_stop()
            self._saved = self._registers()
            with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as memory:
                memory.seek(self._saved["rip"] - 2)
                if memory.read(2) == b"\x0f\x05":
                    break
            self._ptrace(_DETACH)
        else:
            raise AssertionError(f"{self.pid} does not wait in a system call")
        self._room = None
        self._room = self.call("mmap", 0, _ROOM, 3, 0x22, -1, 0)
        self._used = 0
        return self

    def __exit__(self, *_):
        self._set(self._saved)
        self._ptrace(_DETACH)

    def call(self, name, *arguments):
        """Makes a system call; text and bytes are passed by address. Returns its result, or raises OSError."""
        self._used = 0
        values = [self._in_memory(value) for value in arguments] + [0] * (6 - len(arguments))
        registers = dict(self._saved)
        registers.update(zip(("rdi", "rsi", "rdx", "r10", "r8", "r9"), (value % (1 << 64) for value in values)))
        registers.update(rax=SYSCALLS[name], orig_rax=(1 << 64) - 1, rip=self._saved["rip"] - 2)
        self._set(registers)
        self._ptrace(_SINGLE_STEP)
        self._await_stop()
        result = self._registers()["rax"]
        result -= (1 << 64) if result >= 1 << 63 else 0
        if -4096 < result < 0:
            raise OSError(-result, os.strerror(-result))
        return result

    def outcome(self, name, *arguments):
        """Returns the name of the error of a system call; None if it succeeded. A new descriptor is closed."""
        try:
            result = self.call(name, *arguments)
        except OSError as error:
            return errno.errorcode[error.errno]
        if name in ("open", "socket", "pidfd_open", "open_by_handle_at", "bpf", "userfaultfd", "io_uring_setup", "openat", "memfd_create"):
            self.call("close", result)
        return None

    def crash(self):
        """Makes the process execute at address 0 after the end of this context."""
        self._saved = {**self._saved, "rip": 0, "orig_rax": (1 << 64) - 1}

    def _in_memory(self, value):
        if isinstance(value, int):
            return value
        content = value if isinstance(value, bytes) else os.fsencode(value) + b"\0"
        address = self._room + self._used
        self._used += (len(content) + 15) & ~15
        with open(f"/proc/{self.pid}/mem", "wb", buffering=0) as memory:
            memory.seek(address)
            memory.write(content)
        return address

    def _await_stop(self):
        _, status = os.waitpid(self.pid, _WALL)
        if not os.WIFSTOPPED(status):
            raise AssertionError(f"{self.pid} ended with wait status {status}")

    def _registers(self):
        buffer = ctypes.create_string_buffer(8 * len(_NAMES))
        self._ptrace(_GET_REGISTERS, data=buffer)
        return dict(zip(_NAMES, struct.unpack(f"<{len(_NAMES)}Q", buffer.raw)))

    def _set(self, registers):
        content = struct.pack(f"<{len(_NAMES)}Q", *(registers[name] for name in _NAMES))
        self._ptrace(_SET_REGISTERS, data=ctypes.create_string_buffer(content, len(content)))

    def _ptrace(self, request, data=None):
        if _libc.ptrace(request, self.pid, None, data) < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"ptrace request {request} for {self.pid}: {os.strerror(number)}")
