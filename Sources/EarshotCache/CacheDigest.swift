public import EarshotHTTP
internal import LibCrypto

/// A cache key as the index has it: SHA-256 over all of it and a salt, so that no credential is on the disk.
public struct CacheDigest: Hashable, Sendable {
    let bytes: [UInt8]

    /// The first bytes: what tells one key from nearly all others, to be kept for very many.
    public var prefix: UInt64 { bytes.prefix(8).reduce(0) { $0 << 8 | UInt64($1) } }

    /// The digest of a key under a salt.
    public init(_ key: CacheKey, salt: [UInt8]) {
        var material = salt
        // No URL and no client's own key has a LF.
        material += key.url.description.utf8
        material.append(UInt8(ascii: "\n"))
        material += key.partition.utf8
        material.append(UInt8(ascii: "\n"))
        material += key.scope.secretBytes
        bytes = SHA256.digest(of: material.span).bytes
    }

    init(bytes: [UInt8]) {
        self.bytes = bytes
    }

    /// What the index has of the request fields by which a variant was chosen: empty for none.
    public static func variant(_ key: VaryKey, salt: [UInt8]) -> [UInt8] {
        key.canonical.isEmpty ? [] : SHA256.digest(of: (salt + key.canonical).span).bytes
    }
}
