#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// Equal on all architectures.
#define LANDLOCK_CREATE_RULESET 444
#define LANDLOCK_ADD_RULE 445
#define LANDLOCK_RESTRICT_SELF 446

struct ruleset {
    uint64_t files;
    uint64_t ports;
    uint64_t scopes;
};

// LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET and LANDLOCK_SCOPE_SIGNAL.
enum { SCOPES = 1 << 0 | 1 << 1 };

int sandbox_landlock_version(void) { return (int)syscall(LANDLOCK_CREATE_RULESET, NULL, 0UL, 1U); }

uint64_t sandbox_known_rights(int version) {
    // The highest right of versions 1, 2 (REFER), 3 (TRUNCATE) and 5 (IOCTL_DEV).
    int highest = version >= 5 ? 15 : version >= 3 ? 14 : version == 2 ? 13 : 12;
    return (UINT64_C(1) << (highest + 1)) - 1;
}

int sandbox_make_rules(int version, uint64_t ports) {
    // An older kernel accepts a longer structure if the rest is zero.
    struct ruleset rules = {
        sandbox_known_rights(version), version >= 4 ? ports : 0, version >= 6 ? SCOPES : 0,
    };
    return (int)syscall(LANDLOCK_CREATE_RULESET, &rules, sizeof rules, 0U);
}

int sandbox_grant(int rules, int descriptor, uint64_t rights) {
    struct {
        uint64_t rights;
        int32_t descriptor;
    } __attribute__((packed)) rule = {rights, descriptor};
    return (int)syscall(LANDLOCK_ADD_RULE, rules, 1 /* LANDLOCK_RULE_PATH_BENEATH */, &rule, 0U);
}

int sandbox_apply_rules(int rules) { return (int)syscall(LANDLOCK_RESTRICT_SELF, rules, 0U); }

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#define ARCHITECTURE 0
#endif

// System calls without a use in a worker or the gateway. Numbers beyond the headers are equal on all architectures.
static const unsigned denied_calls[] = {
    // Other programs and processes.
    SYS_execve, SYS_execveat, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_kcmp, SYS_process_madvise,
    SYS_pidfd_getfd, SYS_pidfd_send_signal, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, SYS_tkill, SYS_setpriority, SYS_ioprio_set,
    SYS_sched_setaffinity, SYS_sched_setattr, SYS_sched_setparam, SYS_migrate_pages, SYS_move_pages, 448 /* process_mrelease */,
    SYS_setsid, SYS_setpgid,
    // An ID or a name is enough for objects of other processes of this user.
    SYS_shmget, SYS_shmat, SYS_shmctl, SYS_semget, SYS_semop, SYS_semtimedop, SYS_semctl, SYS_msgget, SYS_msgsnd, SYS_msgrcv,
    SYS_msgctl, SYS_mq_open, SYS_mq_unlink,
#ifdef SYS_fork
    SYS_fork, SYS_vfork,
#endif
    // Changes by path that Landlock does not cover, or not in its first versions.
    SYS_truncate, SYS_fchmodat, 452 /* fchmodat2 */, SYS_fchownat, SYS_utimensat, SYS_setxattr, SYS_lsetxattr, SYS_removexattr,
    SYS_lremovexattr, 463 /* setxattrat */, 466 /* removexattrat */, SYS_mknodat, SYS_inotify_add_watch, SYS_fanotify_init,
    SYS_fchown, SYS_fsetxattr, SYS_fremovexattr,
    // Other names. The broker alone renames files, so a file that it has named has no second name here.
    SYS_linkat, SYS_symlinkat, SYS_mkdirat, SYS_renameat2,
#ifdef SYS_renameat
    SYS_renameat,
#endif
#ifdef SYS_chmod
    SYS_chmod, SYS_chown, SYS_lchown, SYS_utime, SYS_utimes, SYS_futimesat, SYS_mknod, SYS_link, SYS_symlink, SYS_mkdir, SYS_rmdir,
    SYS_rename,
#endif
    // Files without a path.
    SYS_name_to_handle_at, SYS_open_by_handle_at,
    // Namespaces and mounts.
    SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_move_mount, SYS_open_tree, 467 /* open_tree_attr */, SYS_fsopen,
    SYS_fsconfig, SYS_fsmount, SYS_fspick, SYS_mount_setattr, SYS_unshare, SYS_setns,
    // Users and privileges.
    SYS_setuid, SYS_setgid, SYS_setreuid, SYS_setregid, SYS_setresuid, SYS_setresgid, SYS_setfsuid, SYS_setfsgid, SYS_setgroups,
    SYS_capset, SYS_keyctl, SYS_add_key, SYS_request_key,
    // Limits that the process or its parent has set.
    SYS_setrlimit,
    // Parts of the kernel with many past faults. A ring of io_uring bypasses this filter.
    SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
    SYS_personality,
#ifdef SYS_modify_ldt
    SYS_modify_ldt, SYS_iopl, SYS_ioperm,
#endif
    // The machine.
    SYS_kexec_load, SYS_kexec_file_load, SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_reboot, SYS_swapon, SYS_swapoff,
    SYS_acct, SYS_syslog, SYS_quotactl, SYS_quotactl_fd, SYS_settimeofday, SYS_clock_settime, SYS_clock_adjtime, SYS_adjtimex,
    SYS_sethostname, SYS_setdomainname, SYS_vhangup,
};

enum { DENIED_CALLS = sizeof denied_calls / sizeof *denied_calls };

#define FIELD(name) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, name))
// The low half of an argument: both architectures are little-endian.
#define ARGUMENT(index) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + 8 * (index))
#define HIGH_HALF(index) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + 8 * (index) + 4)
#define SKIP_UNLESS(value, count) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, (count))
#define SKIP_IF(value, count) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), (count), 0)
#define SKIP_UNLESS_ANY(bits, count) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (bits), 0, (count))
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, (value))
#define FAIL(number) RETURN(SECCOMP_RET_ERRNO | (number))
#define ALLOW RETURN(SECCOMP_RET_ALLOW)

// SOCK_CLOEXEC and SOCK_NONBLOCK are higher bits of the type.
enum { SOCKET_TYPE = 0xf };

// With its capabilities a process that root runs would be bound by no limit and no owner of a file.
static void drop_capabilities(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    const struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};
    syscall(SYS_capset, &header, none);
}

struct program {
    struct sock_filter filter[256 + 2 * DENIED_CALLS];
    unsigned short count;
};

#define ADD(...)                                                          \
    do {                                                                  \
        const struct sock_filter parts[] = {__VA_ARGS__};                 \
        for (unsigned part = 0; part < sizeof parts / sizeof *parts; part++) program->filter[program->count++] = parts[part]; \
    } while (0)

// Calls that other processes could notice, or that depend on their arguments.
static void add_process_rules(struct program *program, unsigned own) {
    // The flags of clone3 are in memory, which a filter cannot read. glibc uses clone instead.
    ADD(SKIP_UNLESS(SYS_clone3, 1), FAIL(ENOSYS));
    // Threads only.
    ADD(SKIP_UNLESS(SYS_clone, 4), ARGUMENT(0), SKIP_UNLESS_ANY(CLONE_THREAD, 1), ALLOW, FAIL(EPERM));
    // abort(3) signals its own thread.
    ADD(SKIP_UNLESS(SYS_kill, 4), ARGUMENT(0), SKIP_UNLESS(own, 1), ALLOW, FAIL(EPERM));
    ADD(SKIP_UNLESS(SYS_tgkill, 4), ARGUMENT(0), SKIP_UNLESS(own, 1), ALLOW, FAIL(EPERM));
    // Reading of its own limits only.
    ADD(SKIP_UNLESS(SYS_prlimit64, 9), ARGUMENT(0), SKIP_IF(0, 1), SKIP_UNLESS(own, 5), ARGUMENT(2), SKIP_UNLESS(0, 3), HIGH_HALF(2),
        SKIP_UNLESS(0, 1), ALLOW, FAIL(EPERM));
    // libzmq sets the usual policy for each of its threads, and ends the process if that fails.
    ADD(SKIP_UNLESS(SYS_sched_setscheduler, 4), ARGUMENT(1), SKIP_UNLESS(SCHED_OTHER, 1), ALLOW, FAIL(EPERM));
    // The process ends with its parent.
    ADD(SKIP_UNLESS(SYS_prctl, 4), ARGUMENT(0), SKIP_UNLESS(PR_SET_PDEATHSIG, 1), FAIL(EPERM), ALLOW);
    // Input that the shell behind a terminal would execute, and signals of a descriptor to other processes.
    ADD(SKIP_UNLESS(SYS_ioctl, 7), ARGUMENT(1), SKIP_IF(TIOCSTI, 4), SKIP_IF(TIOCLINUX, 3), SKIP_IF(FIOSETOWN, 2), SKIP_IF(SIOCSPGRP, 1),
        ALLOW, FAIL(EPERM));
    // A lease of a file delays other processes that open it.
    ADD(SKIP_UNLESS(SYS_fcntl, 8), ARGUMENT(1), SKIP_IF(F_SETOWN, 5), SKIP_IF(F_SETOWN_EX, 4), SKIP_IF(F_SETSIG, 3),
        SKIP_IF(F_SETLEASE, 2), SKIP_IF(F_NOTIFY, 1), ALLOW, FAIL(EPERM));
}

// Changes of files by flags that the first versions of Landlock do not cover.
static void add_file_rules(struct program *program) {
    // Truncating what may only be read, and the access mode 3, for which Landlock asks no right. The flags of openat2 are in memory.
    ADD(SKIP_UNLESS(SYS_openat, 8), ARGUMENT(2), BPF_STMT(BPF_ALU | BPF_AND | BPF_K, O_ACCMODE), SKIP_IF(O_ACCMODE, 3),
        SKIP_UNLESS(O_RDONLY, 3), ARGUMENT(2), SKIP_UNLESS_ANY(O_TRUNC, 1), FAIL(EPERM), ALLOW);
#ifdef SYS_open
    ADD(SKIP_UNLESS(SYS_open, 8), ARGUMENT(1), BPF_STMT(BPF_ALU | BPF_AND | BPF_K, O_ACCMODE), SKIP_IF(O_ACCMODE, 3),
        SKIP_UNLESS(O_RDONLY, 3), ARGUMENT(1), SKIP_UNLESS_ANY(O_TRUNC, 1), FAIL(EPERM), ALLOW);
#endif
    ADD(SKIP_UNLESS(437 /* openat2 */, 1), FAIL(ENOSYS));
    ADD(SKIP_UNLESS(SYS_unlinkat, 4), ARGUMENT(2), SKIP_UNLESS_ANY(AT_REMOVEDIR, 1), FAIL(EPERM), ALLOW);
    // A worker makes a finished body read-only. Other modes would open a file to other users, or to its owner's rights.
    ADD(SKIP_UNLESS(SYS_fchmod, 4), ARGUMENT(1), SKIP_UNLESS(S_IRUSR, 1), ALLOW, FAIL(EPERM));
}

static void add_socket_rules(struct program *program, int uses) {
    // With MSG_FASTOPEN they connect a TCP socket without a test by Landlock.
    if (!(uses & SANDBOX_INTERNET)) {
        ADD(SKIP_UNLESS(SYS_sendto, 4), ARGUMENT(3), SKIP_UNLESS_ANY(MSG_FASTOPEN, 1), FAIL(EPERM), ALLOW);
        ADD(SKIP_UNLESS(SYS_sendmsg, 4), ARGUMENT(2), SKIP_UNLESS_ANY(MSG_FASTOPEN, 1), FAIL(EPERM), ALLOW);
        ADD(SKIP_UNLESS(SYS_sendmmsg, 4), ARGUMENT(3), SKIP_UNLESS_ANY(MSG_FASTOPEN, 1), FAIL(EPERM), ALLOW);
    }
    if (!(uses & SANDBOX_LISTENS))
        ADD(SKIP_IF(SYS_listen, 3), SKIP_IF(SYS_bind, 2), SKIP_IF(SYS_accept4, 1), SKIP_UNLESS(SYS_accept, 1), FAIL(EPERM));
    // Of Unix sockets streams only, because datagrams reach the system's log and service managers.
    ADD(SKIP_UNLESS(SYS_socketpair, 8), ARGUMENT(0), SKIP_IF(AF_UNIX, 1), FAIL(EAFNOSUPPORT), ARGUMENT(1),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, SOCKET_TYPE), SKIP_UNLESS(SOCK_STREAM, 1), ALLOW, FAIL(EPERM));
    ADD(SKIP_UNLESS(SYS_socket, 21), ARGUMENT(0), SKIP_UNLESS(AF_UNIX, 5), ARGUMENT(1),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, SOCKET_TYPE), SKIP_UNLESS(SOCK_STREAM, 1), ALLOW, FAIL(EPERM));
    ADD(SKIP_IF(AF_INET, 2), SKIP_IF(AF_INET6, 1), FAIL(EAFNOSUPPORT));
    // TCP, and UDP for name servers. Not MPTCP, which Landlock does not restrict, and no other protocol.
    ADD(uses & SANDBOX_INTERNET ? (struct sock_filter)ARGUMENT(1) : (struct sock_filter)FAIL(EPERM),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, SOCKET_TYPE), SKIP_IF(SOCK_STREAM, 2), SKIP_IF(SOCK_DGRAM, 1), FAIL(EPERM), ARGUMENT(2),
        SKIP_IF(0, 3), SKIP_IF(IPPROTO_TCP, 2), SKIP_IF(IPPROTO_UDP, 1), FAIL(EPROTONOSUPPORT), ALLOW);
}

int sandbox_filter_calls(int uses) {
    if (!ARCHITECTURE) {
        errno = ENOSYS;
        return -1;
    }
    drop_capabilities();
    struct program room = {.count = 0}, *program = &room;
    ADD(FIELD(arch), SKIP_IF(ARCHITECTURE, 1), RETURN(SECCOMP_RET_KILL_PROCESS), FIELD(nr));
#ifdef __x86_64__
    // The x32 interface has other numbers.
    ADD(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1), RETURN(SECCOMP_RET_KILL_PROCESS));
#endif
    for (unsigned index = 0; index < DENIED_CALLS; index++) ADD(SKIP_UNLESS(denied_calls[index], 1), FAIL(EPERM));
    add_process_rules(program, (unsigned)getpid());
    add_file_rules(program);
    add_socket_rules(program, uses);
    ADD(ALLOW);
    const struct sock_fprog filter = {program->count, program->filter};
    // Without this flag, kernels before 5.16 also disable speculation of the processor, which costs time.
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &filter) == 0) return 0;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter);
}
