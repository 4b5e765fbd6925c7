#include "shim.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
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
    SYS_sched_setaffinity, SYS_sched_setattr, SYS_sched_setparam, SYS_migrate_pages, SYS_move_pages,
    SYS_shmget, SYS_shmat, SYS_semget, SYS_msgget, SYS_mq_open,
#ifdef SYS_fork
    SYS_fork, SYS_vfork,
#endif
    // Changes by path that Landlock does not cover, or not in its first versions.
    SYS_truncate, SYS_fchmodat, 452 /* fchmodat2 */, SYS_fchownat, SYS_utimensat, SYS_setxattr, SYS_lsetxattr, SYS_removexattr,
    SYS_lremovexattr, 463 /* setxattrat */, 466 /* removexattrat */, SYS_mknodat, SYS_inotify_add_watch, SYS_fanotify_init,
#ifdef SYS_chmod
    SYS_chmod, SYS_chown, SYS_lchown, SYS_utime, SYS_utimes, SYS_futimesat, SYS_mknod,
#endif
    // Files without a path.
    SYS_name_to_handle_at, SYS_open_by_handle_at,
    // Namespaces and mounts.
    SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_move_mount, SYS_open_tree, 467 /* open_tree_attr */, SYS_fsopen,
    SYS_fsconfig, SYS_fsmount, SYS_fspick, SYS_mount_setattr, SYS_unshare, SYS_setns,
    // Users and privileges.
    SYS_setuid, SYS_setgid, SYS_setreuid, SYS_setregid, SYS_setresuid, SYS_setresgid, SYS_setfsuid, SYS_setfsgid, SYS_setgroups,
    SYS_capset, SYS_keyctl, SYS_add_key, SYS_request_key,
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
#define SKIP_UNLESS(value, count) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, (count))
#define SKIP_IF(value, count) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), (count), 0)
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, (value))
#define FAIL(number) RETURN(SECCOMP_RET_ERRNO | (number))
#define ALLOW RETURN(SECCOMP_RET_ALLOW)

// SOCK_CLOEXEC and SOCK_NONBLOCK are higher bits of the type.
enum { SOCKET_TYPE = 0xf };

int sandbox_filter_calls(void) {
    if (!ARCHITECTURE) {
        errno = ENOSYS;
        return -1;
    }
    const unsigned own = (unsigned)getpid();
    struct sock_filter filter[64 + 2 * DENIED_CALLS];
    unsigned short count = 0;
#define ADD(...)                                                          \
    do {                                                                  \
        const struct sock_filter parts[] = {__VA_ARGS__};                 \
        for (unsigned part = 0; part < sizeof parts / sizeof *parts; part++) filter[count++] = parts[part]; \
    } while (0)
    ADD(FIELD(arch), SKIP_IF(ARCHITECTURE, 1), RETURN(SECCOMP_RET_KILL_PROCESS), FIELD(nr));
#ifdef __x86_64__
    // The x32 interface has other numbers.
    ADD(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1), RETURN(SECCOMP_RET_KILL_PROCESS));
#endif
    for (unsigned index = 0; index < DENIED_CALLS; index++) ADD(SKIP_UNLESS(denied_calls[index], 1), FAIL(EPERM));
    // The flags of clone3 are in memory, which a filter cannot read. glibc uses clone instead.
    ADD(SKIP_UNLESS(SYS_clone3, 1), FAIL(ENOSYS));
    // Threads only.
    ADD(SKIP_UNLESS(SYS_clone, 4), ARGUMENT(0), BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1), ALLOW, FAIL(EPERM));
    // abort(3) signals its own thread.
    ADD(SKIP_UNLESS(SYS_kill, 4), ARGUMENT(0), SKIP_UNLESS(own, 1), ALLOW, FAIL(EPERM));
    ADD(SKIP_UNLESS(SYS_tgkill, 4), ARGUMENT(0), SKIP_UNLESS(own, 1), ALLOW, FAIL(EPERM));
    ADD(SKIP_UNLESS(SYS_prlimit64, 5), ARGUMENT(0), SKIP_IF(0, 2), SKIP_IF(own, 1), FAIL(EPERM), ALLOW);
    // libzmq sets the usual policy for each of its threads, and ends the process if that fails.
    ADD(SKIP_UNLESS(SYS_sched_setscheduler, 4), ARGUMENT(1), SKIP_UNLESS(SCHED_OTHER, 1), ALLOW, FAIL(EPERM));
    // Input that the shell behind a terminal would execute.
    ADD(SKIP_UNLESS(SYS_ioctl, 5), ARGUMENT(1), SKIP_IF(TIOCSTI, 2), SKIP_IF(TIOCLINUX, 1), ALLOW, FAIL(EPERM));
    ADD(SKIP_UNLESS(SYS_socket, 10), ARGUMENT(0), SKIP_IF(AF_UNIX, 3), SKIP_IF(AF_INET, 2), SKIP_IF(AF_INET6, 1),
        FAIL(EAFNOSUPPORT), ARGUMENT(1), BPF_STMT(BPF_ALU | BPF_AND | BPF_K, SOCKET_TYPE),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, SOCK_DGRAM, 0, 1), FAIL(EPERM), ALLOW);
    ADD(ALLOW);
    const struct sock_fprog program = {count, filter};
    // Without this flag, kernels before 5.16 also disable speculation of the processor, which costs time.
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program) == 0) return 0;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
}
