internal import CDecompression

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
        guard !input.isEmpty || !isAtEnd else { return Decompressor.Step(consumed: 0, produced: 0, isAtEnd: true) }
        if isBetweenFrames, !input.isEmpty {
            guard Self.beginsFrame(input[0]) else {
                throw DecompressionError(.zstd, ZSTD_error_prefix_unknown.rawValue)
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
            throw DecompressionError(.zstd, unsafe library.pointee.ZSTD_getErrorCode(hint).rawValue)
        }
        isAtEnd = hint == 0
        if isAtEnd { isBetweenFrames = true }
        return Decompressor.Step(consumed: consumed, produced: produced, isAtEnd: isAtEnd)
    }

    /// Returns whether a frame of RFC 8878 can begin with this byte. This excludes frames of earlier versions, which
    /// libzstd may support with windows of any size.
    private static func beginsFrame(_ byte: UInt8) -> Bool { byte == 0x28 || byte & 0xf0 == 0x50 }
}
