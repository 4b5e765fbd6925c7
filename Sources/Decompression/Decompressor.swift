/// Decompresses one stream, step by step. Each step produces no more than its caller has room for.
///
/// Bytes after the end of a stream are ignored, except for another gzip member or zstd frame, which continues it.
public struct Decompressor: ~Copyable {
    /// The effect of one step.
    public struct Step: Hashable, Sendable {
        /// Bytes of input that were read.
        public let consumed: Int
        /// Bytes of output that were written.
        public let produced: Int
        /// Whether the stream has come to its end, so that the input may end here.
        public let isAtEnd: Bool
    }

    // Exactly one is set.
    private var zlib: ZlibStream?
    private var brotli: BrotliStream?
    private var zstd: ZstdStream?

    /// Loads the libraries, unless they are loaded already. Without this call, the first decompressor loads them and stops
    /// the process on failure.
    public static func loadLibraries() throws(LibraryError) { try Library.load() }

    /// A decompressor that has read nothing. Stops the process when there is no memory for it.
    public init(_ format: CompressionFormat) {
        switch format {
        case .gzip: zlib = ZlibStream(isGzip: true)
        case .deflate: zlib = ZlibStream(isGzip: false)
        case .brotli: brotli = BrotliStream()
        case .zstd: zstd = ZstdStream()
        }
    }

    /// Reads some of `input` and overwrites the beginning of `output`.
    ///
    /// A step that fills `output` may have more to write: call it again, even without input. A step that neither reads
    /// nor writes has to wait for more input. After an error the decompressor is of no use.
    public mutating func step(_ input: Span<UInt8>, into output: inout [UInt8]) throws(DecompressionError) -> Step {
        precondition(!output.isEmpty, "a decompression step without room for output")
        if let step = try zlib?.step(input, into: &output) { return step }
        if let step = try brotli?.step(input, into: &output) { return step }
        if let step = try zstd?.step(input, into: &output) { return step }
        preconditionFailure("a decompressor without a stream")
    }
}
