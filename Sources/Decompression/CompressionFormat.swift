/// A compressed format that a `Decompressor` reads.
public enum CompressionFormat: Hashable, Sendable, CaseIterable {
    /// RFC 1952: one member or several in a row.
    case gzip
    /// RFC 1950, or RFC 1951 without its wrapper, which some servers send instead.
    case deflate
    /// RFC 7932.
    case brotli
    /// RFC 8878: one frame or several in a row, with windows of at most 8 MiB (RFC 9659).
    case zstd
}
