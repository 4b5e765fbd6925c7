// Library for LD_PRELOAD that places libzmq between programs and a broker: interposer.py.
//
// In a program of Earshot: after a connection to a broker's socket `bus` or `work` the program gets one end of a socket pair in
// its place. The other end and the connection go to the process of interposer.py, which speaks to both through libzmq. So the
// broker still sees the program's process, by SO_PEERCRED.
//
// In the process of interposer.py: a connection of libzmq to `/descriptor/N` is the descriptor N, because libzmq cannot take over
// one that is connected already.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static const char descriptor_prefix[] = "/descriptor/";

// Credentials of the broker, by descriptor and the inode of the socket that is there now.
enum { KNOWN = 4096 };
static struct {
    ino_t inode;
    struct ucred listener;
} known[KNOWN];

// Address of the interposer; no path in other programs.
static struct sockaddr_un interposer = {.sun_family = AF_UNIX};
static bool is_interposer;
static int (*real_connect)(int, const struct sockaddr *, socklen_t);
static int (*real_getsockopt)(int, int, int, void *, socklen_t *);

__attribute__((constructor)) static void start(void) {
    real_connect = (int (*)(int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "connect");
    real_getsockopt = (int (*)(int, int, int, void *, socklen_t *))dlsym(RTLD_NEXT, "getsockopt");
    is_interposer = getenv("INTERPOSER_IS_THIS") != NULL;
    const char *path = getenv("INTERPOSER");
    char program[4096] = "";
    // Other programs of the tests have this variable as well.
    if (path == NULL || readlink("/proc/self/exe", program, sizeof program - 1) < 0) return;
    const char *name = strrchr(program, '/');
    if (name != NULL && strncmp(name + 1, "earshot", 7) == 0) strncpy(interposer.sun_path, path, sizeof interposer.sun_path - 1);
}

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), wanted = strlen(end);
    return length >= wanted && strcmp(text + length - wanted, end) == 0;
}

// Puts the socket `from` in the place of `to`, with the flags of `to`, and closes `from`.
static int replace(int to, int from) {
    int status = fcntl(to, F_GETFL), flags = fcntl(to, F_GETFD);
    if (status < 0 || flags < 0 || fcntl(from, F_SETFL, status) < 0) return -1;
    if (dup3(from, to, flags & FD_CLOEXEC ? O_CLOEXEC : 0) < 0) return -1;
    return close(from);
}

// Passes the two descriptors to the interposer.
static int hand_over(int broker, int program, const char *path) {
    // A worker in its sandbox may not send datagrams.
    int sender = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (sender < 0) return -1;
    union {
        char bytes[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr aligned;
    } control = {{0}};
    struct iovec text = {(void *)path, strlen(path)};
    struct msghdr message = {
        .msg_iov = &text, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes,
    };
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(2 * sizeof(int));
    memcpy(CMSG_DATA(header), (int[]){broker, program}, 2 * sizeof(int));
    ssize_t sent = real_connect(sender, (const struct sockaddr *)&interposer, sizeof interposer);
    if (sent == 0) {
        do sent = sendmsg(sender, &message, MSG_NOSIGNAL);
        while (sent < 0 && errno == EINTR);
    }
    if (sent < 0) {
        // A direct connection would pass the tests unnoticed.
        fprintf(stderr, "Fatal error: the interposer at %s cannot be reached: %s\n", interposer.sun_path, strerror(errno));
        abort();
    }
    return close(sender);
}

static int interpose(int descriptor, const char *path) {
    struct ucred listener = {0};
    socklen_t length = sizeof listener;
    struct stat status;
    int ends[2];
    if (real_getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &listener, &length) < 0) return -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) return -1;
    int result = hand_over(descriptor, ends[1], path);
    close(ends[1]);
    if (result < 0 || replace(descriptor, ends[0]) < 0) {
        close(ends[0]);
        return -1;
    }
    if (descriptor < KNOWN && fstat(descriptor, &status) == 0) {
        known[descriptor].inode = status.st_ino;
        known[descriptor].listener = listener;
    }
    return 0;
}

int connect(int descriptor, const struct sockaddr *address, socklen_t length) {
    char path[sizeof interposer.sun_path + 1] = "";
    size_t start = offsetof(struct sockaddr_un, sun_path);
    if (length > start && length <= sizeof interposer && address->sa_family == AF_UNIX)
        memcpy(path, (const char *)address + start, length - start);
    if (is_interposer && strncmp(path, descriptor_prefix, sizeof descriptor_prefix - 1) == 0)
        return replace(descriptor, atoi(path + sizeof descriptor_prefix - 1));
    int result = real_connect(descriptor, address, length);
    if (result < 0 || !interposer.sun_path[0] || !(ends_with(path, "/bus") || ends_with(path, "/work"))) return result;
    return interpose(descriptor, path);
}

// The peer of a program is the broker, although the other end of the socket pair was its own.
int getsockopt(int descriptor, int level, int name, void *value, socklen_t *length) {
    struct stat status;
    if (interposer.sun_path[0] && level == SOL_SOCKET && name == SO_PEERCRED && descriptor >= 0 && descriptor < KNOWN
        && *length >= sizeof(struct ucred) && known[descriptor].inode != 0 && fstat(descriptor, &status) == 0
        && status.st_ino == known[descriptor].inode) {
        memcpy(value, &known[descriptor].listener, sizeof(struct ucred));
        *length = sizeof(struct ucred);
        return 0;
    }
    return real_getsockopt(descriptor, level, name, value, length);
}
