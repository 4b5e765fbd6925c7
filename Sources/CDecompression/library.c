#include "shim.h"
#include "loader.h"

#include <dlfcn.h>
#include <stddef.h>

// inflateReset2 came with 1.2.4, of 2010.
LOADER_LIBRARY(zlib, "libz.so.1", LOADER_REQUIRED, "gzip", "decoding of gzip and deflate")
// The interface of every version since 1.0, of 2017.
LOADER_LIBRARY(brotli, "libbrotlidec.so.1", LOADER_REQUIRED, "brotli", "decoding of br")
// ZSTD_DCtx_setParameter came with 1.4, of 2019.
LOADER_LIBRARY(zstd, "libzstd.so.1", LOADER_REQUIRED, "zstd", "decoding of zstd")

static struct decshim_functions functions;

// POSIX lets dlsym return functions as object pointers.
#define LOOK_UP(name) \
    if (!(*(void **)&functions.name = dlsym(loaded, #name))) return dlerror();

const char *decshim_load(void) {
    void *loaded = loader_open(&zlib);
    if (!loaded) return dlerror();
    DECSHIM_ZLIB(LOOK_UP)
    if (!(loaded = loader_open(&brotli))) return dlerror();
    DECSHIM_BROTLI(LOOK_UP)
    if (!(loaded = loader_open(&zstd))) return dlerror();
    DECSHIM_ZSTD(LOOK_UP)
    return NULL;
}

const struct decshim_functions *decshim_functions(void) { return &functions; }
