#include "shim.h"
#include "loader.h"

#include <dlfcn.h>
#include <idn2.h>
#include <stddef.h>

// The interface of every version since 2.0, of 2017.
LOADER_LIBRARY(idn2, "libidn2.so.0", LOADER_RECOMMENDED, "idn", "internationalized host names")

static __typeof__(idn2_to_ascii_8z) *to_ascii;
static __typeof__(idn2_strerror) *message;

const char *idn2shim_load(void) {
    void *loaded = loader_open(&idn2);
    if (!loaded) return dlerror();
    // POSIX lets dlsym return functions as object pointers.
    if (!(*(void **)&to_ascii = dlsym(loaded, "idn2_to_ascii_8z"))) return dlerror();
    if (!(*(void **)&message = dlsym(loaded, "idn2_strerror"))) return dlerror();
    return NULL;
}

const char *idn2shim_to_ascii(const char *name, char **ascii) {
    int result = to_ascii(name, ascii, IDN2_NONTRANSITIONAL | IDN2_NFC_INPUT);
    return result == IDN2_OK ? NULL : message(result);
}
