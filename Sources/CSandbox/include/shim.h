// Landlock and seccomp, without their libraries: landlock(7), seccomp(2). Constants are ours, because Debian 12 has the kernel
// headers of Linux 6.1.
#ifndef EARSHOT_CSANDBOX_SHIM_H
#define EARSHOT_CSANDBOX_SHIM_H

#include <stdint.h>

/// Rights to files: LANDLOCK_ACCESS_FS_*.
enum {
    SANDBOX_FS_EXECUTE = 1 << 0,
    SANDBOX_FS_WRITE_FILE = 1 << 1,
    SANDBOX_FS_READ_FILE = 1 << 2,
    SANDBOX_FS_READ_DIR = 1 << 3,
    SANDBOX_FS_REMOVE_FILE = 1 << 5,
    SANDBOX_FS_MAKE_REG = 1 << 8,
    SANDBOX_FS_TRUNCATE = 1 << 14,
};

/// Rights to TCP ports: LANDLOCK_ACCESS_NET_*.
enum { SANDBOX_NET_BIND = 1 << 0, SANDBOX_NET_CONNECT = 1 << 1 };

/// Returns the version of the kernel's Landlock; -1 with the reason in errno without it.
int sandbox_landlock_version(void);

/// Returns the rights to files that a version of Landlock knows.
uint64_t sandbox_known_rights(int version);

/// Creates a rule set: a descriptor, or -1. It withdraws all rights to files that `version` knows, the rights `ports` to TCP ports
/// from version 4, and from version 6 signals and abstract sockets of processes outside.
int sandbox_make_rules(int version, uint64_t ports);

/// Grants rights to the file or below the directory of a descriptor.
int sandbox_grant(int rules, int descriptor, uint64_t rights);

/// Applies a rule set to the calling thread and threads that it starts later. Needs PR_SET_NO_NEW_PRIVS.
int sandbox_apply_rules(int rules);

/// Uses of sockets that the filter of system calls permits, besides connections of Unix sockets.
enum {
    /// Sockets of TCP and UDP.
    SANDBOX_INTERNET = 1 << 0,
    /// bind, listen and accept.
    SANDBOX_LISTENS = 1 << 1,
};

/// Drops all capabilities and installs the filter of system calls, for the calling thread and threads that it starts later. Needs
/// PR_SET_NO_NEW_PRIVS.
int sandbox_filter_calls(int uses);

#endif
