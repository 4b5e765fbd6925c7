#include "shim.h"
#include "loader.h"

#include <dlfcn.h>
#include <stddef.h>

// The interface of every version since 0.16, of 2016. It is declared here, because only this file needs it.
LOADER_LIBRARY(psl, "libpsl.so.5", LOADER_RECOMMENDED, "cookie-domains", "cookies with a domain, which public suffixes limit")

typedef struct psl_ctx_st psl_ctx_t;

// PSL_TYPE_ANY: suffixes of registries and of private owners, such as github.io.
enum { type_any = 3 };

static const psl_ctx_t *list;
static int (*is_public_suffix)(const psl_ctx_t *, const char *, int);

const char *pslshim_load(void) {
    psl_ctx_t *(*latest)(const char *);
    void *loaded = loader_open(&psl);
    if (!loaded) return dlerror();
    // POSIX lets dlsym return functions as object pointers.
    if (!(*(void **)&latest = dlsym(loaded, "psl_latest"))) return dlerror();
    if (!(*(void **)&is_public_suffix = dlsym(loaded, "psl_is_public_suffix2"))) return dlerror();
    // The list of the package publicsuffix, or an older one inside the library.
    list = latest(NULL);
    return list ? NULL : "the library has no list of public suffixes";
}

int pslshim_is_public_suffix(const char *domain) { return is_public_suffix(list, domain, type_any); }
