public import EarshotCore
internal import LibCrypto

/// Keys of flights and origins: HMAC-SHA-256 with the cluster's secret, cut to 128 bits.
///
/// Nodes with the same secret make the same keys in every process and version. Without the secret a key cannot be
/// computed from a URL.
public struct ClusterKeys: Sendable {
    private let keyedHash: HMAC

    /// - Parameter secret: long and random, because keys of URLs can be tried offline. The owner of the settings checks
    ///   it.
    public init(secret: [UInt8]) {
        keyedHash = HMAC(key: secret)
    }

    /// Key of a shared flight. `identity` has everything that decides which requests may share it.
    public func flightKey(identity: [UInt8]) -> ClusterKey { derivedKey(purpose: "flight", bytes: identity) }

    /// Key of an origin, by its name such as `https://example.com`.
    public func originKey(name: String) -> ClusterKey { derivedKey(purpose: "origin", bytes: Array(name.utf8)) }

    /// Text by which nodes recognize that they have the same secret and the same key pair for bodies.
    public func compatibilityCode(publicKey: String) -> String {
        derivedKey(purpose: "check", bytes: Array(publicKey.utf8)).description
    }

    /// Code by which nodes recognize an entry of the engine that one of them has written.
    func authenticationCode(ofKind kind: String, entry: [UInt8]) -> ClusterKey {
        derivedKey(purpose: kind, bytes: entry)
    }

    /// The purpose comes first, so that keys of different purposes differ.
    private func derivedKey(purpose: String, bytes: [UInt8]) -> ClusterKey {
        let digest = keyedHash.authenticationCode(of: Array(purpose.utf8) + [0] + bytes).bytes
        func word(_ bytes: ArraySlice<UInt8>) -> UInt64 { bytes.reduce(0) { $0 << 8 | UInt64($1) } }
        return ClusterKey(high: word(digest[..<8]), low: word(digest[8..<16]))
    }
}

extension ClusterKeys: CustomStringConvertible, CustomReflectable {
    public var description: String { "keys of a cluster" }

    /// Without the secret, so that `dump` does not print it.
    public var customMirror: Mirror { Mirror(self, children: [:]) }
}
