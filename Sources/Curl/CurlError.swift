/// Failure to set up libcurl or to start a transfer. A transfer that fails after its start ends with a
/// `TransferFailure` instead.
public struct CurlError: Error, Hashable, Sendable, CustomStringConvertible {
    /// Kind of failure; grows with the library.
    public struct Code: Hashable, Sendable {
        let name: String

        /// libcurl is missing, or lacks a function.
        public static let notLoaded = Code(name: "not loaded")
        /// libcurl returned no handle, because memory is exhausted.
        public static let noHandle = Code(name: "no handle")
        /// libcurl rejected the value of an option.
        public static let optionRefused = Code(name: "option refused")
        /// The name or value of a header field would break its line.
        public static let badHeaderField = Code(name: "bad header field")
        /// The multi handle rejected the transfer.
        public static let notAdded = Code(name: "not added")
    }

    public let code: Code
    /// libcurl's code (CURLcode or CURLMcode); 0 without one.
    public let underlying: Int

    /// Message of the dynamic linker; nil if it is not involved.
    let detail: String?

    /// Contains no text from a peer or URL.
    public var description: String { "libcurl: \(code.name) (\(detail ?? String(underlying)))" }

    init(_ code: Code, underlying: Int = 0, detail: String? = nil) {
        self.code = code
        self.underlying = underlying
        self.detail = detail
    }
}
