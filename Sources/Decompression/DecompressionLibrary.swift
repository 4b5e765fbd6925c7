internal import CDecompression

/// Loading of zlib, libbrotlidec and libzstd on first use, for `Decompressor` and its streams.
enum DecompressionLibrary {
    /// Message of the dynamic linker if a library cannot be used; nil once all are loaded. The initializer of a static
    /// runs once, however many threads ask.
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
