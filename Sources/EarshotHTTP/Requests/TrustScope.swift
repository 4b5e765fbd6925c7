/// Trust scope: all requests without credentials, or all requests with the same credentials.
public struct TrustScope: Hashable, Sendable, CustomStringConvertible {
    /// Scope of requests without credentials.
    public static let shared = TrustScope(material: [])

    /// Credentials in canonical form, including secrets; empty for `shared`.
    private let material: [UInt8]

    /// Input for a digest with a secret salt. Never write it to a log, disk or connection.
    public var secretBytes: [UInt8] { material }

    init(material: [UInt8]) {
        self.material = material
    }

    /// Whether this is the scope of requests without credentials.
    public var isShared: Bool { material.isEmpty }

    /// `shared` or `private`; contains no credentials.
    public var description: String { isShared ? "shared" : "private" }
}
