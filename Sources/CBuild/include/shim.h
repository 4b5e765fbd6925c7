// Facts about the build of a program, and its arguments.
#ifndef EARSHOT_CBUILD_SHIM_H
#define EARSHOT_CBUILD_SHIM_H

/// Version of all programs.
#define EARSHOT_VERSION "0.1.0"

/// Commit and Swift version of a release, as lines `NAME VALUE`. Empty in other builds.
const char *_Nonnull build_facts(void);

/// Arguments of this program with its name first, and their number. Swift reads them from /proc, which may be absent.
int build_argument_count(void);
char *_Nullable *_Nonnull build_arguments(void);

#endif
