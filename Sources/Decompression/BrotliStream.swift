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
        guard !isAtEnd else { return Decompressor.Step(consumed: input.count, produced: 0, isAtEnd: true) }
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
            throw DecompressionError(.brotli, unsafe library.pointee.BrotliDecoderGetErrorCode(state).rawValue)
        }
        return Decompressor.Step(
            consumed: input.count - inputLeft, produced: output.count - outputLeft, isAtEnd: isAtEnd)
    }
}
