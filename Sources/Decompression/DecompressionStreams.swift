internal import CDecompression

/// A brotli stream, read by libbrotlidec, for `Decompressor`.
@safe struct BrotliStream: ~Copyable {
    private let library = unsafe DecompressionLibrary.functions
    /// Owned; freed by `deinit`.
    private let state: OpaquePointer

    init() {
        // Without allocation functions, the library uses malloc. Windows of more than 16 MiB stay rejected.
        guard let state = unsafe library.pointee.BrotliDecoderCreateInstance(nil, nil, nil) else {
            preconditionFailure("BrotliDecoderCreateInstance: out of memory")
        }
        unsafe self.state = unsafe state
    }

    deinit {
        unsafe library.pointee.BrotliDecoderDestroyInstance(state)
    }

    private var isAtEnd: Bool { unsafe library.pointee.BrotliDecoderIsFinished(state) != 0 }

    mutating func step(
        _ input: Span<UInt8>, into output: inout [UInt8]
    ) throws(DecompressionError) -> Decompressor.Step {
        guard !isAtEnd else { return Decompressor.Step(consumedBytes: input.count, producedBytes: 0, isAtEnd: true) }
        var inputLeft = input.count
        var outputLeft = output.count
        let result = unsafe input.withUnsafeBufferPointer { input in
            unsafe output.withUnsafeMutableBufferPointer { output in
                var next = input.baseAddress
                var place = output.baseAddress
                return unsafe library.pointee.BrotliDecoderDecompressStream(
                    state, &inputLeft, &next, &outputLeft, &place, nil)
            }
        }
        guard result != BROTLI_DECODER_RESULT_ERROR else {
            throw DecompressionError(
                format: .brotli, code: unsafe library.pointee.BrotliDecoderGetErrorCode(state).rawValue)
        }
        return Decompressor.Step(
            consumedBytes: input.count - inputLeft, producedBytes: output.count - outputLeft, isAtEnd: isAtEnd)
    }
}

/// A gzip, zlib or raw deflate stream, read by zlib.
///
/// ```
/// start → stream ⇄ member (gzip: the end of one member, and the beginning of the next)
///         stream, member → trailingData (after the end; further bytes are ignored)
/// ```
@safe struct ZlibStream: ~Copyable {
    private enum Phase {
        case start
        case stream
        /// After a gzip member, with this many bytes of the next one's signature read.
        case member(Int)
        case trailingData
    }

    /// First two bytes of a gzip member.
    private static let signature: [UInt8] = [0x1f, 0x8b]
    /// Maximum window of deflate, as a power of two.
    private static let windowBits: Int32 = 15
    /// Added to the window size for a stream in a gzip wrapper.
    private static let gzipWindowBitsFlag: Int32 = 16

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
            stream, Self.windowBits + (isGzip ? Self.gzipWindowBitsFlag : 0), ZLIB_VERSION,
            Int32(MemoryLayout<z_stream>.size))
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
        case .trailingData: true
        }
    }

    mutating func step(
        _ input: Span<UInt8>, into output: inout [UInt8]
    ) throws(DecompressionError) -> Decompressor.Step {
        switch phase {
        case .start:
            guard !input.isEmpty else { return stepWithoutOutput() }
            if !isGzip, !Self.hasZlibWrapper(firstByte: input[0]) {
                _ = unsafe library.pointee.inflateReset2(stream, -Self.windowBits)
            }
            phase = .stream
            return try inflate(input, into: &output)
        case .stream: return try inflate(input, into: &output)
        case .member(let matched):
            guard !input.isEmpty else { return stepWithoutOutput() }
            guard isGzip, input[0] == Self.signature[matched] else {
                phase = .trailingData
                return stepWithoutOutput(consumed: input.count)
            }
            guard matched + 1 == Self.signature.count else {
                phase = .member(matched + 1)
                return stepWithoutOutput(consumed: 1)
            }
            _ = unsafe library.pointee.inflateReset(stream)
            phase = .stream
            // The signature's first byte was consumed earlier, possibly in another call.
            _ = try inflate(Self.signature.span, into: &output)
            return stepWithoutOutput(consumed: 1)
        case .trailingData: return stepWithoutOutput(consumed: input.count)
        }
    }

    /// Returns whether a deflate stream with this first byte has a zlib wrapper: method 8, window of at most 32 KiB. A
    /// stream without the wrapper begins so only with a stored block whose padding is not zero.
    private static func hasZlibWrapper(firstByte byte: UInt8) -> Bool { byte & 0x0f == 8 && byte >> 4 <= 7 }

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
        case Z_STREAM_END: phase = isGzip ? .member(0) : .trailingData
        default: throw DecompressionError(format: isGzip ? .gzip : .deflate, code: result)
        }
        return unsafe Decompressor.Step(
            consumedBytes: inputCount - Int(stream.pointee.avail_in),
            producedBytes: room - Int(stream.pointee.avail_out), isAtEnd: isAtEnd)
    }

    /// Returns a step without output.
    private func stepWithoutOutput(consumed: Int = 0) -> Decompressor.Step {
        Decompressor.Step(consumedBytes: consumed, producedBytes: 0, isAtEnd: isAtEnd)
    }
}

/// Consecutive Zstandard frames, decoded by libzstd, for `Decompressor`.
@safe struct ZstdStream: ~Copyable {
    /// Maximum window, as a power of two: RFC 9659, section 3.
    private static let windowBits: Int32 = 23

    private let library = unsafe DecompressionLibrary.functions
    /// Owned; freed by `deinit`.
    private let context: OpaquePointer
    /// Whether the last byte read ended a frame, and all of the frame has been written.
    private var isAtEnd = false
    /// Whether the next byte begins a frame.
    private var isBetweenFrames = true

    init() {
        guard let context = unsafe library.pointee.ZSTD_createDCtx() else {
            preconditionFailure("ZSTD_createDCtx: out of memory")
        }
        unsafe self.context = unsafe context
        let result = unsafe library.pointee.ZSTD_DCtx_setParameter(context, ZSTD_d_windowLogMax, Self.windowBits)
        precondition(unsafe library.pointee.ZSTD_isError(result) == 0, "ZSTD_d_windowLogMax: \(result)")
    }

    deinit {
        _ = unsafe library.pointee.ZSTD_freeDCtx(context)
    }

    mutating func step(
        _ input: Span<UInt8>, into output: inout [UInt8]
    ) throws(DecompressionError) -> Decompressor.Step {
        // Without input, the library would begin another frame.
        guard !input.isEmpty || !isAtEnd else {
            return Decompressor.Step(consumedBytes: 0, producedBytes: 0, isAtEnd: true)
        }
        if isBetweenFrames, !input.isEmpty {
            guard Self.beginsFrame(input[0]) else {
                throw DecompressionError(format: .zstd, code: ZSTD_error_prefix_unknown.rawValue)
            }
            isBetweenFrames = false
        }
        var consumed = 0
        var produced = 0
        let hint = unsafe input.withUnsafeBufferPointer { input in
            unsafe output.withUnsafeMutableBufferPointer { output in
                var source = unsafe ZSTD_inBuffer(src: input.baseAddress, size: input.count, pos: 0)
                var target = unsafe ZSTD_outBuffer(dst: output.baseAddress, size: output.count, pos: 0)
                let hint = unsafe library.pointee.ZSTD_decompressStream(context, &target, &source)
                consumed = unsafe source.pos
                produced = unsafe target.pos
                return hint
            }
        }
        guard unsafe library.pointee.ZSTD_isError(hint) == 0 else {
            throw DecompressionError(format: .zstd, code: unsafe library.pointee.ZSTD_getErrorCode(hint).rawValue)
        }
        isAtEnd = hint == 0
        if isAtEnd { isBetweenFrames = true }
        return Decompressor.Step(consumedBytes: consumed, producedBytes: produced, isAtEnd: isAtEnd)
    }

    /// Returns whether a frame of RFC 8878 can begin with this byte. This excludes frames of earlier versions, which
    /// libzstd may support with windows of any size.
    private static func beginsFrame(_ byte: UInt8) -> Bool { byte == 0x28 || byte & 0xf0 == 0x50 }
}

/// Loading of zlib, libbrotlidec and libzstd on first use, for `Decompressor` and its streams.
enum DecompressionLibrary {
    /// Message of the dynamic linker if a library cannot be used; nil once all are loaded. The initializer of a static
    /// runs once, however many threads call.
    private static let loadFailure: String? = unsafe decshim_load().map { unsafe String(cString: $0) }

    static func load() throws(LibraryError) {
        if let loadFailure { throw LibraryError(detail: loadFailure) }
    }

    /// Functions of all three libraries. Traps if they cannot be loaded.
    static var functions: UnsafePointer<decshim_functions> {
        if let loadFailure { preconditionFailure(loadFailure) }
        return unsafe decshim_functions()
    }
}

/// Reason why zlib, libbrotlidec or libzstd cannot be used: it is not installed, or lacks a function.
public struct LibraryError: Error, Hashable, Sendable, CustomStringConvertible {
    /// Message of the dynamic linker, which names the library.
    public let detail: String

    public var description: String { "decompression: \(detail)" }
}
