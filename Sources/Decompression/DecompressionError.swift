/// Compressed bytes that are damaged, or not of their format.
public struct DecompressionError: Error, Hashable, Sendable, CustomStringConvertible {
    public let format: CompressionFormat
    /// The library's own code.
    public let code: Int

    /// Holds no byte of the input.
    public var description: String { "damaged \(format) data (\(code))" }

    init(_ format: CompressionFormat, _ code: some BinaryInteger) {
        self.format = format
        self.code = Int(truncatingIfNeeded: code)
    }
}
