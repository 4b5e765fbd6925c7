// Declarations missing from Swift's Glibc module: epoll, eventfd, signalfd, process descriptors. Variadic calls and
// function-like macros, each as a static inline function. Constants that need _GNU_SOURCE.
#ifndef EARSHOT_CLINUX_H
#define EARSHOT_CLINUX_H

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <stdbool.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/single_threaded.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Open file description locks, fcntl(2): <fcntl.h> hides them without _GNU_SOURCE. */
static const int linux_f_ofd_getlk = 36;
static const int linux_f_ofd_setlk = 37;

/* O_PATH, open(2): <fcntl.h> hides it without _GNU_SOURCE. This header does not include <fcntl.h>, because `struct stat` would
   then belong to this module, and files that import only Glibc would not compile in a clean build. */
static const int linux_o_path = 010000000;
/* O_TMPFILE, open(2). Its value contains O_DIRECTORY, a bit that differs between architectures. */
#if defined(__aarch64__) || defined(__arm__) || defined(__powerpc__)
static const int linux_o_tmpfile = 020000000 | 040000;
#else
static const int linux_o_tmpfile = 020000000 | 0200000;
#endif

/* AT_EMPTY_PATH, linkat(2): <fcntl.h> hides it without _GNU_SOURCE. */
static const int linux_at_empty_path = 0x1000;

/* AT_EXECFN, getauxval(3): the path with which this program was executed. */
static inline const char *linux_program_path(void) { return (const char *)getauxval(AT_EXECFN); }

extern char **environ;

/* `environ` is a mutable global, which Swift 6 does not permit. */
static inline char **linux_environment(void) { return environ; }

/* pidfd_open(2), since Linux 5.3. The descriptor is close-on-exec. */
static inline int linux_pidfd_open(pid_t pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }

/* SO_PEERPIDFD, unix(7), since Linux 6.5: a descriptor of the peer process at the time of connecting; -1 with ENOPROTOOPT on an
   older kernel. The descriptor is close-on-exec. */
static inline int linux_peer_pidfd(int socket_descriptor) {
    int pidfd = -1;
    socklen_t length = sizeof pidfd;
    return getsockopt(socket_descriptor, SOL_SOCKET, 77, &pidfd, &length) == 0 ? pidfd : -1;
}

/* pidfd_send_signal(2), since Linux 5.1. */
static inline int linux_pidfd_send_signal(int pidfd, int signal_number) {
    return (int)syscall(SYS_pidfd_send_signal, pidfd, signal_number, (void *)0, 0);
}

/* PR_SET_PDEATHSIG, prctl(2): the signal sent to this process when the thread that created it dies. */
static inline int linux_set_parent_death_signal(int signal_number) {
    return prctl(PR_SET_PDEATHSIG, (unsigned long)signal_number, 0UL, 0UL, 0UL);
}

/* PR_SET_NO_NEW_PRIVS, prctl(2): prevents later execs from gaining privileges. */
static inline int linux_set_no_new_privileges(void) { return prctl(PR_SET_NO_NEW_PRIVS, 1UL, 0UL, 0UL, 0UL); }

/* PR_SET_NAME, prctl(2): the name of the calling thread. */
static inline int linux_set_name(const unsigned char *name) { return prctl(PR_SET_NAME, (unsigned long)name, 0UL, 0UL, 0UL); }

/* Fills in the address of a Unix socket; -1 with ENAMETOOLONG for a path of more than 107 bytes. */
static inline int linux_unix_address(struct sockaddr_un *address, const char *path, long length) {
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    if (length < 0 || (unsigned long)length >= sizeof address->sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(address->sun_path, path, (unsigned long)length);
    return 0;
}

/* Sends a datagram to a Unix socket without blocking. `name` is a path, or an abstract name after a zero byte: unix(7). */
static inline long linux_send_to_unix(int descriptor, const char *name, long length, const void *bytes, long count) {
    struct sockaddr_un address;
    if (linux_unix_address(&address, name, length) != 0) return -1;
    return sendto(
        descriptor, bytes, (unsigned long)count, MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)&address,
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (unsigned long)length));
}

/* bind(2) and connect(2) of a Unix socket by path. */
static inline int linux_bind_unix(int descriptor, const char *path, long length) {
    struct sockaddr_un address;
    if (linux_unix_address(&address, path, length) != 0) return -1;
    return bind(descriptor, (const struct sockaddr *)&address, sizeof address);
}
static inline int linux_connect_unix(int descriptor, const char *path, long length) {
    struct sockaddr_un address;
    if (linux_unix_address(&address, path, length) != 0) return -1;
    return connect(descriptor, (const struct sockaddr *)&address, sizeof address);
}

/* connect(2) to an abstract name, which has no zero byte at its end: unix(7). */
static inline int linux_connect_abstract(int descriptor, const char *name, long length) {
    struct sockaddr_un address;
    if (length < 1 || (unsigned long)length >= sizeof address.sun_path - 1) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path + 1, name, (unsigned long)length);
    return connect(
        descriptor, (const struct sockaddr *)&address,
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (unsigned long)length));
}

/* Whether a descriptor is a listening Unix stream socket that was bound to a path. */
static inline int linux_is_listener(int descriptor, const char *path, long length) {
    struct sockaddr_un address, found;
    socklen_t size = sizeof found;
    int kind = 0, listens = 0;
    socklen_t kind_size = sizeof kind, listens_size = sizeof listens;
    memset(&found, 0, sizeof found);
    if (linux_unix_address(&address, path, length) != 0) return 0;
    if (getsockname(descriptor, (struct sockaddr *)&found, &size) != 0 || found.sun_family != AF_UNIX) return 0;
    if (getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &kind, &kind_size) != 0 || kind != SOCK_STREAM) return 0;
    if (getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &listens_size) != 0 || !listens) return 0;
    return strncmp(address.sun_path, found.sun_path, sizeof found.sun_path) == 0;
}

/* accept4(2), which <sys/socket.h> hides without _GNU_SOURCE: non-blocking and close-on-exec. */
static inline int linux_accept(int listener) {
    return (int)syscall(SYS_accept4, listener, (void *)0, (void *)0, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

/* TCP_NODELAY (1) and TCP_NOTSENT_LOWAT (25) of IPPROTO_TCP (6), tcp(7): no delay for small segments, and a bound for bytes that
   wait in the kernel. The header of these names would take types away from Glibc. */
static inline void linux_prepare_tcp(int descriptor, int unsent) {
    int yes = 1;
    setsockopt(descriptor, 6, 1, &yes, sizeof yes);
    setsockopt(descriptor, 6, 25, &unsent, sizeof unsent);
}

/* SO_KEEPALIVE, with TCP_KEEPIDLE (4), TCP_KEEPINTVL (5), TCP_KEEPCNT (6) and TCP_USER_TIMEOUT (18, milliseconds): the end of a
   connection whose peer has vanished, with and without bytes in flight. */
static inline void linux_keep_alive(int descriptor, int idle, int interval, int count) {
    int yes = 1, timeout = (idle + interval * count) * 1000;
    setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    setsockopt(descriptor, 6, 4, &idle, sizeof idle);
    setsockopt(descriptor, 6, 5, &interval, sizeof interval);
    setsockopt(descriptor, 6, 6, &count, sizeof count);
    setsockopt(descriptor, 6, 18, &timeout, sizeof timeout);
}

/* POLLRDHUP (0x2000), poll(2), which <poll.h> hides without _GNU_SOURCE: whether the other end sends nothing more. */
static inline bool linux_has_hung_up(int descriptor) {
    struct pollfd entry = {.fd = descriptor, .events = 0x2000};
    return poll(&entry, 1, 0) > 0;
}

/* SO_SNDBUF, socket(7). The kernel reserves twice as much, for its own data. */
static inline void linux_set_send_buffer(int descriptor, int bytes) {
    setsockopt(descriptor, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

/* SO_PEERCRED, unix(7): its struct ucred is hidden without _GNU_SOURCE. */
static inline int linux_peer_credentials(int descriptor, pid_t *pid, uid_t *uid) {
    struct { pid_t pid; uid_t uid; gid_t gid; } credentials;
    socklen_t length = sizeof credentials;
    if (getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return -1;
    *pid = credentials.pid;
    *uid = credentials.uid;
    return 0;
}

/* RLIMIT_NOFILE: glibc's resource argument is an enum, which Swift's overlay renames between versions. */
static inline int linux_get_descriptor_limit(struct rlimit *limit) { return getrlimit(RLIMIT_NOFILE, limit); }
static inline int linux_set_descriptor_limit(const struct rlimit *limit) { return setrlimit(RLIMIT_NOFILE, limit); }
static inline int linux_set_core_limit(const struct rlimit *limit) { return setrlimit(RLIMIT_CORE, limit); }

/* RLIMIT_AS of another process, prlimit(2), which <sys/resource.h> hides without _GNU_SOURCE. */
static inline int linux_address_space_limit(pid_t pid, const struct rlimit *limit, struct rlimit *old) {
    return (int)syscall(SYS_prlimit64, pid, RLIMIT_AS, limit, old);
}

/* pipe2(2), splice(2) and copy_file_range(2): <unistd.h> and <fcntl.h> hide them without _GNU_SOURCE. */
static inline int linux_pipe(int ends[2], int flags) { return (int)syscall(SYS_pipe2, ends, flags); }
static inline long linux_splice_without_waiting(int from, int to, unsigned long count) {
    return syscall(SYS_splice, from, (void *)0, to, (void *)0, count, 2U /* SPLICE_F_NONBLOCK */);
}
static inline long linux_copy_file_range(int from, int to, unsigned long count) {
    return syscall(SYS_copy_file_range, from, (void *)0, to, (void *)0, count, 0U);
}
static inline long linux_send_file_part(int from, int to, long offset, unsigned long count) {
    off_t start = offset;
    return sendfile(to, from, &start, count);
}
static inline long linux_send_file(int from, int to, unsigned long count) { return sendfile(to, from, (void *)0, count); }

/* renameat2(2) with RENAME_NOREPLACE (1), which <stdio.h> hides without _GNU_SOURCE; -1 with EINVAL if the file system cannot do
   it. Relative paths start in the current folder (AT_FDCWD, -100). */
static inline int linux_rename_without_replacing(const char *from, const char *to) {
    return (int)syscall(SYS_renameat2, -100, from, -100, to, 1U);
}

/* memfd_create(2), which <sys/mman.h> hides without _GNU_SOURCE. The descriptor is close-on-exec. */
static inline int linux_memory_file(const char *name) { return (int)syscall(SYS_memfd_create, name, 1U /* MFD_CLOEXEC */); }
/* fork(2), which Swift's overlay hides. */
static inline pid_t linux_fork(void) { return fork(); }

/* Returns whether no other thread was ever started: __libc_single_threaded, a mutable global. */
static inline int linux_is_single_threaded(void) { return __libc_single_threaded; }

/* close_range(2), since Linux 5.9. */
static inline int linux_close_range(unsigned int first, unsigned int last) {
    return (int)syscall(SYS_close_range, first, last, 0U);
}

/* Whether this process ignores a signal: SIG_IGN is a macro with a cast. */
static inline int linux_is_ignored(int signal_number) {
    struct sigaction action;
    return sigaction(signal_number, (void *)0, &action) == 0 && action.sa_handler == SIG_IGN;
}

/* Macros of wait(2). */
static inline int linux_wait_exited(int status) { return WIFEXITED(status); }
static inline int linux_wait_exit_code(int status) { return WEXITSTATUS(status); }
static inline int linux_wait_signal(int status) { return WTERMSIG(status); }

/* epoll_event is packed on x86-64 and its data is a union, which Swift imports incorrectly. */
static inline int linux_epoll_control(int epoll, int operation, int descriptor, unsigned int events, unsigned long long data) {
    struct epoll_event event;
    event.events = events;
    event.data.u64 = data;
    return epoll_ctl(epoll, operation, descriptor, &event);
}
static inline unsigned int linux_epoll_events(const struct epoll_event *events, int index) { return events[index].events; }
static inline unsigned long long linux_epoll_data(const struct epoll_event *events, int index) { return events[index].data.u64; }

/* mallopt(3): keeps up to `bytes` of free memory at the end of the heap, and allocates blocks up to a quarter of that from the
   heap. Setting one of the two disables the automatic adjustment of the other. */
static inline void linux_keep_free_memory(int bytes) {
    (void)mallopt(M_TRIM_THRESHOLD, bytes);
    (void)mallopt(M_MMAP_THRESHOLD, bytes / 4);
}

/* malloc_trim(3): returns free memory of all arenas to the system. */
static inline void linux_trim_memory(void) { (void)malloc_trim(0); }

/* Functions of the thread sanitizer: null in a program built without it. */
extern void __tsan_acquire(void *address) __attribute__((weak));
extern void __tsan_release(void *address) __attribute__((weak));

static inline void linux_sanitizer_acquired(const void *address)
{
    if (__tsan_acquire) __tsan_acquire((void *)address);
}

static inline void linux_sanitizer_releases(const void *address)
{
    if (__tsan_release) __tsan_release((void *)address);
}

#endif
