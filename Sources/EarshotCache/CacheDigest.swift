public import EarshotHTTP
internal import LibCrypto

/// Cache key in the index: SHA-256 of the key and a salt, so that no credentials are written to disk.
public struct CacheDigest: Hashable, Sendable {
    /// The 32 bytes as big-endian words.
    private let words: SIMD4<UInt64>

    /// First eight bytes, which distinguish nearly all keys. Compact enough to keep for very many keys.
    public var prefix: UInt64 { words[0] }

    /// The 32 bytes.
    var bytes: [UInt8] {
        (0..<32).map { UInt8(truncatingIfNeeded: words[$0 / 8] >> UInt64(56 - $0 % 8 * 8)) }
    }

    /// Computes the digest of a key with a salt.
    public init(_ key: CacheKey, salt: [UInt8]) {
        var material = salt
        // Neither a URL nor a client's partition key contains LF.
        material += key.url.description.utf8
        material.append(UInt8(ascii: "\n"))
        material += key.partition.utf8
        material.append(UInt8(ascii: "\n"))
        material += key.scope.secretBytes
        self.init(bytes: SHA256.digest(of: material.span).bytes)
    }

    /// - Parameter bytes: 32 bytes; of a damaged index, fewer.
    init(bytes: [UInt8]) {
        var words = SIMD4<UInt64>()
        for (index, byte) in bytes.prefix(32).enumerated() {
            words[index / 8] |= UInt64(byte) << UInt64(56 - index % 8 * 8)
        }
        self.words = words
    }

    /// Hashes the prefix alone: who does not know the salt cannot choose it.
    public func hash(into hasher: inout Hasher) { hasher.combine(prefix) }

    /// Returns the digest of the request fields that selected a variant; empty without such fields.
    public static func variant(_ key: VaryKey, salt: [UInt8]) -> [UInt8] {
        key.canonical.isEmpty ? [] : SHA256.digest(of: (salt + key.canonical).span).bytes
    }
}
