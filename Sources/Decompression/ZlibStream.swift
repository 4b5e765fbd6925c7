internal import CDecompression

/// A gzip, zlib or raw deflate stream, read by zlib.
///
/// ```
/// start → stream ⇄ member (gzip: the end of one member, and the beginning of the next)
///         stream, member → rest (after the end; further bytes are ignored)
/// ```
@safe struct ZlibStream: ~Copyable {
    private enum Phase {
        case start
        case stream
        /// After a gzip member, with this many bytes of the next one's signature read.
        case member(Int)
        case rest
    }

    /// First two bytes of a gzip member.
    private static let signature: [UInt8] = [0x1f, 0x8b]
    /// Maximum window of deflate, as a power of two.
    private static let windowBits: Int32 = 15
    /// Added to the window size for a stream in a gzip wrapper.
    private static let gzipWrapper: Int32 = 16

    private let library = unsafe DecompressionLibrary.functions
    /// Stable address, which zlib compares. Owned; freed by `deinit`.
    private let stream: UnsafeMutablePointer<z_stream>
    private let isGzip: Bool
    private var phase = Phase.start

    init(isGzip: Bool) {
        self.isGzip = isGzip
        unsafe stream = .allocate(capacity: 1)
        unsafe stream.initialize(to: z_stream())
        // Expansion of the macro inflateInit2.
        let result = unsafe library.pointee.inflateInit2_(
            stream, Self.windowBits + (isGzip ? Self.gzipWrapper : 0), ZLIB_VERSION, Int32(MemoryLayout<z_stream>.size))
        precondition(result == Z_OK, "inflateInit2: \(result)")
    }

    deinit {
        _ = unsafe library.pointee.inflateEnd(stream)
        unsafe stream.deallocate()
    }

    private var isAtEnd: Bool {
        switch phase {
        case .start, .stream: false
        case .member(let matched): matched == 0
        case .rest: true
        }
    }

    mutating func step(
        _ input: Span<UInt8>, into output: inout [UInt8]
    ) throws(DecompressionError) -> Decompressor.Step {
        switch phase {
        case .start:
            guard !input.isEmpty else { return nothing() }
            if !isGzip, !Self.isWrapped(first: input[0]) {
                _ = unsafe library.pointee.inflateReset2(stream, -Self.windowBits)
            }
            phase = .stream
            return try inflate(input, into: &output)
        case .stream: return try inflate(input, into: &output)
        case .member(let matched):
            guard !input.isEmpty else { return nothing() }
            guard isGzip, input[0] == Self.signature[matched] else {
                phase = .rest
                return nothing(consumed: input.count)
            }
            guard matched + 1 == Self.signature.count else {
                phase = .member(matched + 1)
                return nothing(consumed: 1)
            }
            _ = unsafe library.pointee.inflateReset(stream)
            phase = .stream
            // The signature's first byte was consumed earlier, possibly in another call.
            _ = try inflate(Self.signature.span, into: &output)
            return nothing(consumed: 1)
        case .rest: return nothing(consumed: input.count)
        }
    }

    /// Returns whether a deflate stream with this first byte has a zlib wrapper: method 8, window of at most 32 KiB. A
    /// stream without the wrapper begins so only with a stored block whose padding is not zero.
    private static func isWrapped(first byte: UInt8) -> Bool { byte & 0x0f == 8 && byte >> 4 <= 7 }

    private mutating func inflate(
        _ input: Span<UInt8>, into output: inout [UInt8]
    ) throws(DecompressionError) -> Decompressor.Step {
        let library = unsafe library
        let stream = unsafe stream
        let inputCount = min(input.count, Int(UInt32.max))
        let room = min(output.count, Int(UInt32.max))
        let result = unsafe input.withUnsafeBufferPointer { input in
            unsafe output.withUnsafeMutableBufferPointer { output in
                // zlib does not write to its input.
                unsafe stream.pointee.next_in = UnsafeMutablePointer(mutating: input.baseAddress)
                unsafe stream.pointee.avail_in = UInt32(inputCount)
                unsafe stream.pointee.next_out = output.baseAddress
                unsafe stream.pointee.avail_out = UInt32(room)
                return unsafe library.pointee.inflate(stream, Z_NO_FLUSH)
            }
        }
        switch result {
        // Z_BUF_ERROR: no input, or no room for output.
        case Z_OK, Z_BUF_ERROR: break
        case Z_STREAM_END: phase = isGzip ? .member(0) : .rest
        default: throw DecompressionError(isGzip ? .gzip : .deflate, result)
        }
        return unsafe Decompressor.Step(
            consumed: inputCount - Int(stream.pointee.avail_in), produced: room - Int(stream.pointee.avail_out),
            isAtEnd: isAtEnd)
    }

    /// Returns a step without output.
    private func nothing(consumed: Int = 0) -> Decompressor.Step {
        Decompressor.Step(consumed: consumed, produced: 0, isAtEnd: isAtEnd)
    }
}
