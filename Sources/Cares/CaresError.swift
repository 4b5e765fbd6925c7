/// Why a resolver could not be made.
public struct CaresError: Error, Hashable, Sendable, CustomStringConvertible {
    /// What went wrong; grows with the library.
    public struct Code: Hashable, Sendable {
        let name: String

        /// The library or a channel could not be initialised.
        public static let notInitialized = Code(name: "not initialised")
        /// A server in the options is no numeric address.
        public static let badServers = Code(name: "bad servers")
    }

    public let code: Code
    /// c-ares' own status.
    public let status: Int

    public var description: String { "c-ares: \(code.name) (\(status))" }

    init(_ code: Code, status: Int32) {
        self.code = code
        self.status = Int(status)
    }
}
