/// Failure to create a resolver.
public struct CaresError: Error, Hashable, Sendable, CustomStringConvertible {
    /// Kind of failure; grows with the library.
    public struct Code: Hashable, Sendable {
        let name: String

        /// c-ares or a channel could not be initialized.
        public static let notInitialized = Code(name: "not initialised")
        /// A server in the options is not a numeric address.
        public static let badServers = Code(name: "bad servers")
    }

    public let code: Code
    /// Status code of c-ares.
    public let status: Int

    public var description: String { "c-ares: \(code.name) (\(status))" }

    init(_ code: Code, status: Int32) {
        self.code = code
        self.status = Int(status)
    }
}
