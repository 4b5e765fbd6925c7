// Shared libraries that are loaded at run time: each has a note in the program, from which bin/package takes its
// dependencies. The form is that of "dlopen() Metadata for ELF Files" (https://systemd.io/ELF_DLOPEN_METADATA).
#ifndef EARSHOT_CLOADER_LOADER_H
#define EARSHOT_CLOADER_LOADER_H

#include <stdint.h>

/// A library that has a note. Only LOADER_LIBRARY defines one.
struct loader_library {
    const char *soname;
};

// Values of PRIORITY: without the library the program does not work, lacks an important feature, or lacks another feature.
#define LOADER_REQUIRED "required"
#define LOADER_RECOMMENDED "recommended"
#define LOADER_SUGGESTED "suggested"

/// Defines the library `NAME` and its note. The other parameters are string literals without characters that JSON escapes.
#define LOADER_LIBRARY(NAME, SONAME, PRIORITY, FEATURE, DESCRIPTION) \
    LOADER_NOTE(NAME##_note, "[{\"soname\":[\"" SONAME "\"],\"priority\":\"" PRIORITY "\",\"feature\":\"" FEATURE \
        "\",\"description\":\"" DESCRIPTION "\"}]") \
    static const struct loader_library NAME = {SONAME};

/// An ELF note: the sizes of owner and text, the type, and both texts with padding.
#define LOADER_NOTE(NAME, TEXT) \
    __attribute__((section(".note.dlopen"), used, aligned(4))) static const struct { \
        uint32_t owner_size, text_size, type; \
        char owner[4]; \
        __attribute__((aligned(4))) char text[sizeof(TEXT)]; \
    } NAME = {4, sizeof(TEXT), 0x407c0c0a, "FDO", TEXT};

/// Loads a library. Returns its handle for dlsym(3), or NULL after an error that dlerror(3) describes.
void *loader_open(const struct loader_library *library);

#endif
