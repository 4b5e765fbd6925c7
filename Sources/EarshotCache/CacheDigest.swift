public import EarshotHTTP
internal import LibCrypto

/// Cache key in the index: SHA-256 of the key and a salt, so that no credentials are written to disk.
///
/// Its first half depends on the URL alone. So the keys of a URL are neighbours in the index, which needs no second
/// index to find them.
public struct CacheDigest: Hashable, Sendable {
    /// The 32 bytes as big-endian words.
    private var words: SIMD4<UInt64>

    /// Last eight bytes, which distinguish nearly all keys. Compact enough to keep for very many keys.
    public var suffix: UInt64 { words[3] }

    /// The 32 bytes.
    var bytes: [UInt8] {
        (0..<32).map { UInt8(truncatingIfNeeded: words[$0 / 8] >> UInt64(56 - $0 % 8 * 8)) }
    }

    /// Least and greatest 32 bytes of a key of the same URL.
    var keyRangeOfURL: (first: [UInt8], last: [UInt8]) {
        let url = Array(bytes.prefix(16))
        return (url + [UInt8](repeating: 0, count: 16), url + [UInt8](repeating: .max, count: 16))
    }

    /// Computes the digest of a key with a salt.
    public init(_ key: CacheKey, salt: [UInt8]) {
        let url = key.url.description
        self.init(url: url, salt: salt)
        guard !key.partition.isEmpty || !key.trustScope.isCredentialFree else { return }
        words.highHalf =
            Self(url: url, partition: key.partition, secret: key.trustScope.secretBytes, salt: salt).words.highHalf
    }

    /// Computes the digest of the key of a URL without partition and credentials.
    public init(url: String, salt: [UInt8]) {
        self.init(url: url, partition: "", secret: [], salt: salt)
    }

    private init(url: String, partition: String, secret: [UInt8], salt: [UInt8]) {
        var material = salt
        // Neither a URL nor a client's partition key contains LF.
        material += url.utf8
        material.append(UInt8(ascii: "\n"))
        material += partition.utf8
        material.append(UInt8(ascii: "\n"))
        material += secret
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

    /// Hashes the suffix alone: without the salt a peer cannot choose it.
    public func hash(into hasher: inout Hasher) { hasher.combine(suffix) }

    /// Returns the digest of the request fields that selected a variant; empty without such fields.
    public static func variantDigest(_ key: VaryKey, salt: [UInt8]) -> [UInt8] {
        key.canonicalFields.isEmpty ? [] : SHA256.digest(of: (salt + key.canonicalFields).span).bytes
    }
}
