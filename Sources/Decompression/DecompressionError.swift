/// Compressed data that is corrupt or has another format.
public struct DecompressionError: Error, Hashable, Sendable, CustomStringConvertible {
    public let format: CompressionFormat
    /// Error code of the library.
    public let code: Int

    /// Contains no byte of the input.
    public var description: String { "damaged \(format) data (\(code))" }

    init(_ format: CompressionFormat, _ code: some BinaryInteger) {
        self.format = format
        self.code = Int(truncatingIfNeeded: code)
    }
}
