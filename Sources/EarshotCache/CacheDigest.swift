public import EarshotHTTP
internal import LibCrypto

/// Cache key in the index: SHA-256 of the key and a salt, so that no credentials are written to disk.
public struct CacheDigest: Hashable, Sendable {
    let bytes: [UInt8]

    /// First eight bytes, which distinguish nearly all keys. Compact enough to keep for very many keys.
    public var prefix: UInt64 { bytes.prefix(8).reduce(0) { $0 << 8 | UInt64($1) } }

    /// Computes the digest of a key with a salt.
    public init(_ key: CacheKey, salt: [UInt8]) {
        var material = salt
        // Neither a URL nor a client's partition key contains LF.
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

    /// Returns the digest of the request fields that selected a variant; empty without such fields.
    public static func variant(_ key: VaryKey, salt: [UInt8]) -> [UInt8] {
        key.canonical.isEmpty ? [] : SHA256.digest(of: (salt + key.canonical).span).bytes
    }
}
