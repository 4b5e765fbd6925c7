/// Compressed format supported by `Decompressor`.
public enum CompressionFormat: Hashable, Sendable, CaseIterable {
    /// RFC 1952: one or more consecutive members.
    case gzip
    /// RFC 1950, or RFC 1951 without its wrapper, which some servers send instead.
    case deflate
    /// RFC 7932.
    case brotli
    /// RFC 8878: one or more consecutive frames, with windows of at most 8 MiB (RFC 9659).
    case zstd
}
