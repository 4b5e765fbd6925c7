/// Reason why a host name has no ASCII form.
public struct DomainNameError: Error, Hashable, Sendable, CustomStringConvertible {
    /// Kind of failure; grows with the library.
    public struct Code: Hashable, Sendable {
        let name: String

        /// libidn2 is not installed, or lacks a function.
        public static let notLoaded = Code(name: "not loaded")
        /// UTS 46 does not allow the name.
        public static let invalidName = Code(name: "invalid name")
    }

    public let code: Code
    /// Message of libidn2 or of the dynamic linker. Contains no part of the name.
    public let detail: String

    public var description: String { "libidn2: \(code.name) (\(detail))" }

    init(_ code: Code, detail: String) {
        self.code = code
        self.detail = detail
    }
}
