/// Why libcurl could not be set up, or a transfer not be started. A transfer that was started and failed ends with a
/// `TransferFailure` instead.
public struct CurlError: Error, Hashable, Sendable, CustomStringConvertible {
    /// What went wrong; grows with the library.
    public struct Code: Hashable, Sendable {
        let name: String

        /// There is no libcurl, or one that lacks something.
        public static let notLoaded = Code(name: "not loaded")
        /// libcurl gave no handle: the process is out of memory.
        public static let noHandle = Code(name: "no handle")
        /// libcurl refused an option's value.
        public static let optionRefused = Code(name: "option refused")
        /// A header field's name or value would break out of its line.
        public static let badHeaderField = Code(name: "bad header field")
        /// The multi handle refused the transfer.
        public static let notAdded = Code(name: "not added")
    }

    public let code: Code
    /// libcurl's own code (CURLcode or CURLMcode), 0 if it did not say one.
    public let underlying: Int

    /// What the dynamic linker says; nil if it has no part in it.
    let detail: String?

    /// Holds nothing that came from a peer or out of a URL.
    public var description: String { "libcurl: \(code.name) (\(detail ?? String(underlying)))" }

    init(_ code: Code, underlying: Int = 0, detail: String? = nil) {
        self.code = code
        self.underlying = underlying
        self.detail = detail
    }
}
