/// Incremental decompressor of one stream. Each step produces at most as much output as the caller has room for.
///
/// Bytes after the end of a stream are ignored, except for another gzip member or zstd frame, which continues it.
public struct Decompressor: ~Copyable {
    /// The effect of one step.
    public struct Step: Hashable, Sendable {
        /// Number of input bytes consumed.
        public let consumedBytes: Int
        /// Number of output bytes produced.
        public let producedBytes: Int
        /// Whether the stream is complete, so that the input may end here.
        public let isAtEnd: Bool
    }

    // Exactly one is set.
    private var zlib: ZlibStream?
    private var brotli: BrotliStream?
    private var zstd: ZstdStream?

    /// Loads the libraries if needed. Without this call, the first decompressor loads them, and traps on failure.
    public static func loadLibraries() throws(LibraryError) { try DecompressionLibrary.load() }

    /// Creates a decompressor. Traps if memory is exhausted.
    public init(_ format: CompressionFormat) {
        switch format {
        case .gzip: zlib = ZlibStream(isGzip: true)
        case .deflate: zlib = ZlibStream(isGzip: false)
        case .brotli: brotli = BrotliStream()
        case .zstd: zstd = ZstdStream()
        }
    }

    /// Consumes some of `input` and overwrites the beginning of `output`.
    ///
    /// A step that fills `output` may have more to write: call it again, even without input. A step that neither reads
    /// nor writes needs more input. After an error the decompressor must not be used.
    public mutating func step(_ input: Span<UInt8>, into output: inout [UInt8]) throws(DecompressionError) -> Step {
        precondition(!output.isEmpty, "a decompression step without room for output")
        if let step = try zlib?.step(input, into: &output) { return step }
        if let step = try brotli?.step(input, into: &output) { return step }
        if let step = try zstd?.step(input, into: &output) { return step }
        preconditionFailure("a decompressor without a stream")
    }
}

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

/// Compressed data that is corrupt or has another format.
public struct DecompressionError: Error, Hashable, Sendable, CustomStringConvertible {
    public let format: CompressionFormat
    /// Error code of the library.
    public let code: Int

    /// Contains no byte of the input.
    public var description: String { "damaged \(format) data (\(code))" }

    init(format: CompressionFormat, code: some BinaryInteger) {
        self.format = format
        self.code = Int(truncatingIfNeeded: code)
    }
}
