"""Content codings, encoded with the libraries that Earshot decodes with."""

import ctypes
import functools
import gzip
import zlib

PIECE = 16 << 20
"""Number of zeros of a bomb that are encoded at once; the encoded piece is then repeated."""


def encode(coding, content):
    """Encodes `content` in `gzip`, `deflate`, `br` or `zstd`."""
    return {"gzip": gzip.compress, "deflate": zlib.compress, "br": brotli, "zstd": zstd}[coding](content)


def brotli(content):
    library = ctypes.CDLL("libbrotlienc.so.1")
    size = ctypes.c_size_t(len(content) + 1024)
    buffer = ctypes.create_string_buffer(size.value)
    if not library.BrotliEncoderCompress(5, 22, 0, ctypes.c_size_t(len(content)), content, ctypes.byref(size), buffer):
        raise AssertionError("brotli could not encode")
    return buffer.raw[:size.value]


def zstd(content):
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_compress.restype = ctypes.c_size_t
    library.ZSTD_compress.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
    buffer = ctypes.create_string_buffer(len(content) + 1024)
    size = library.ZSTD_compress(buffer, len(buffer), content, len(content), 3)
    return buffer.raw[:size]


@functools.cache
def bomb(coding, size):
    """Returns a bomb of `size` zeros, a multiple of 16 MiB, at the highest compression of `coding`. A gzip bomb has a wrong
    checksum, which only a decoder that reads all of it detects."""
    pieces = size // PIECE
    if coding == "zstd":
        return zstd(bytes(PIECE)) * pieces
    if coding == "br":
        first, piece, end = brotli_pieces()
        return first + piece * (pieces - 1) + end
    encoder = zlib.compressobj(9, zlib.DEFLATED, 31 if coding == "gzip" else 15)
    first = encoder.compress(bytes(PIECE)) + encoder.flush(zlib.Z_FULL_FLUSH)
    piece = encoder.compress(bytes(PIECE)) + encoder.flush(zlib.Z_FULL_FLUSH)
    return first + piece * (pieces - 1) + encoder.flush()


@functools.cache
def brotli_pieces():
    """Returns the first piece of a brotli stream of zeros, each further piece, and the end."""
    library = ctypes.CDLL("libbrotlienc.so.1")
    library.BrotliEncoderCreateInstance.restype = ctypes.c_void_p
    encoder = ctypes.c_void_p(library.BrotliEncoderCreateInstance(None, None, None))

    def run(operation, content):
        rest, start = ctypes.c_size_t(len(content)), ctypes.c_char_p(content)
        buffer = ctypes.create_string_buffer(4096)
        room, out = ctypes.c_size_t(len(buffer)), ctypes.c_void_p(ctypes.addressof(buffer))
        if not library.BrotliEncoderCompressStream(encoder, operation, ctypes.byref(rest), ctypes.byref(start),
                                                   ctypes.byref(room), ctypes.byref(out), None):
            raise AssertionError("brotli could not encode")
        return buffer.raw[:len(buffer) - room.value]
    first, second, third = run(1, bytes(PIECE)), run(1, bytes(PIECE)), run(1, bytes(PIECE))
    end = run(2, b"")
    library.BrotliEncoderDestroyInstance(encoder)
    if second != third:
        raise AssertionError("brotli's pieces differ")
    return first, second, end
