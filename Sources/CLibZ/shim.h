#ifndef EARSHOT_CLIBZ_SHIM_H
#define EARSHOT_CLIBZ_SHIM_H

#include <zlib.h>

/// inflateInit2, which is a macro.
static inline int zshim_inflate_init(z_stream *stream, int window_bits) {
    return inflateInit2(stream, window_bits);
}

#endif
