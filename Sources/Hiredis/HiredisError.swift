/// Failure of hiredis.
public struct HiredisError: Error, Hashable, Sendable, CustomStringConvertible {
    /// Kind of failure; grows with the library.
    public struct Code: Hashable, Sendable {
        let name: String

        /// The library is not installed, or lacks a function.
        public static let notLoaded = Code(name: "not loaded")
        /// The server's bytes are no reply, or a reply exceeds a bound.
        public static let malformedReply = Code(name: "malformed reply")
        /// No memory was available.
        public static let outOfMemory = Code(name: "out of memory")
    }

    public let code: Code
    /// Message of the dynamic linker; nil for other failures.
    public let loadFailure: String?

    public var description: String {
        if let loadFailure { return "cannot load hiredis (\(loadFailure)); install the package libhiredis" }
        return "hiredis: \(code.name)"
    }

    init(_ code: Code, loadFailure: String? = nil) {
        self.code = code
        self.loadFailure = loadFailure
    }
}
