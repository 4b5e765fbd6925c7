// libidn2, loaded on first use: few host names need it, and it and libunistring would slow every start of the program.
#ifndef EARSHOT_CLIBIDN2_SHIM_H
#define EARSHOT_CLIBIDN2_SHIM_H

/// Loads the library. To be called once, before anything else here.
///
/// Returns NULL, or the dynamic linker's message, which lives until its next error.
const char *idn2shim_load(void);

/// Converts a host name in UTF-8 to its ASCII form by UTS 46, non-transitional.
///
/// Returns NULL and a string in `ascii` that free(3) takes, or the library's message about an invalid name.
const char *idn2shim_to_ascii(const char *name, char **ascii);

#endif
