#include "shim.h"

#include <dlfcn.h>
#include <stddef.h>

static struct decshim_functions functions;

// POSIX lets dlsym return functions as object pointers.
#define LOOK_UP(name) \
    if (!(*(void **)&functions.name = dlsym(loaded, #name))) return dlerror();

const char *decshim_load(void) {
    // inflateReset2 came with 1.2.4, of 2010.
    void *loaded = dlopen("libz.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!loaded) return dlerror();
    DECSHIM_ZLIB(LOOK_UP)
    // The interface of every version since 1.0, of 2017.
    if (!(loaded = dlopen("libbrotlidec.so.1", RTLD_LAZY | RTLD_LOCAL))) return dlerror();
    DECSHIM_BROTLI(LOOK_UP)
    // ZSTD_DCtx_setParameter came with 1.4, of 2019.
    if (!(loaded = dlopen("libzstd.so.1", RTLD_LAZY | RTLD_LOCAL))) return dlerror();
    DECSHIM_ZSTD(LOOK_UP)
    return NULL;
}

const struct decshim_functions *decshim_functions(void) { return &functions; }
