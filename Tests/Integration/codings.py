"""Content codings, made by the libraries that libcurl reads them with."""

import ctypes
import gzip
import zlib


def encode(coding, content):
    """`content` in `gzip`, `deflate`, `br` or `zstd`."""
    return {"gzip": gzip.compress, "deflate": zlib.compress, "br": brotli, "zstd": zstd}[coding](content)


def brotli(content):
    library = ctypes.CDLL("libbrotlienc.so.1")
    size = ctypes.c_size_t(len(content) + 1024)
    place = ctypes.create_string_buffer(size.value)
    if not library.BrotliEncoderCompress(5, 22, 0, ctypes.c_size_t(len(content)), content, ctypes.byref(size), place):
        raise AssertionError("brotli could not encode")
    return place.raw[:size.value]


def zstd(content):
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_compress.restype = ctypes.c_size_t
    library.ZSTD_compress.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
    place = ctypes.create_string_buffer(len(content) + 1024)
    size = library.ZSTD_compress(place, len(place), content, len(content), 3)
    return place.raw[:size]
