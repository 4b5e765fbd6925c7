// libpsl, loaded on first use: few brokers store cookies with a domain. libcurl needs the library anyway.
#ifndef EARSHOT_CLIBPSL_SHIM_H
#define EARSHOT_CLIBPSL_SHIM_H

/// Loads the library and the newest list on this machine. To be called once, before anything else here.
///
/// Returns NULL, or a message that lives until the dynamic linker's next error.
const char *pslshim_load(void);

/// Returns 1 if a domain in lower-case ASCII is a public suffix, else 0. Any top-level domain is one.
int pslshim_is_public_suffix(const char *domain);

#endif
