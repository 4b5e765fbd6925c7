/// Who may share an answer: everybody, or those who brought the same credentials.
public struct TrustScope: Hashable, Sendable, CustomStringConvertible {
    /// The scope of requests without credentials.
    public static let shared = TrustScope(material: [])

    /// The credentials in a canonical form, secrets and all; empty for `shared`.
    private let material: [UInt8]

    /// `material`, for a digest of it under a secret salt: never for a log, a disk or a wire.
    public var secretBytes: [UInt8] { material }

    init(material: [UInt8]) {
        self.material = material
    }

    /// Whether the scope is everybody's.
    public var isShared: Bool { material.isEmpty }

    /// `shared` or `private`: never the credentials.
    public var description: String { isShared ? "shared" : "private" }
}
