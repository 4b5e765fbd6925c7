// zlib, libbrotlidec and libzstd, loaded on first use: only workers decompress, and each linked library slows every start
// of the program.
#ifndef EARSHOT_CDECOMPRESSION_SHIM_H
#define EARSHOT_CDECOMPRESSION_SHIM_H

#include <brotli/decode.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#define DECSHIM_ZLIB(USE) \
    USE(inflateInit2_) \
    USE(inflate) \
    USE(inflateReset) \
    USE(inflateReset2) \
    USE(inflateEnd)

#define DECSHIM_BROTLI(USE) \
    USE(BrotliDecoderCreateInstance) \
    USE(BrotliDecoderDecompressStream) \
    USE(BrotliDecoderIsFinished) \
    USE(BrotliDecoderGetErrorCode) \
    USE(BrotliDecoderDestroyInstance)

#define DECSHIM_ZSTD(USE) \
    USE(ZSTD_createDCtx) \
    USE(ZSTD_DCtx_setParameter) \
    USE(ZSTD_decompressStream) \
    USE(ZSTD_isError) \
    USE(ZSTD_getErrorCode) \
    USE(ZSTD_freeDCtx)

/// The libraries' functions, each under its name and with the type of its header.
struct decshim_functions {
#define DECSHIM_FIELD(name) __typeof__(name) *_Nonnull name;
    DECSHIM_ZLIB(DECSHIM_FIELD)
    DECSHIM_BROTLI(DECSHIM_FIELD)
    DECSHIM_ZSTD(DECSHIM_FIELD)
#undef DECSHIM_FIELD
};

/// Loads the libraries. To be called once, before anything else here.
///
/// Returns NULL, or the dynamic linker's message, which lives until its next error.
const char *_Nullable decshim_load(void);

/// The functions, once they are loaded.
const struct decshim_functions *_Nonnull decshim_functions(void);

#endif
