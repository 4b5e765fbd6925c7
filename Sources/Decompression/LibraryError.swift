/// Reason why zlib, libbrotlidec or libzstd cannot be used: it is not installed, or lacks a function.
public struct LibraryError: Error, Hashable, Sendable, CustomStringConvertible {
    /// Message of the dynamic linker, which names the library.
    public let detail: String

    public var description: String { "decompression: \(detail)" }
}
