public import EarshotHTTP

/// One kept answer, between the loop and the index.
public struct CacheItem: Sendable {
    /// Its name, 0 to 2^63 - 1.
    public var entry: UInt64
    public var key: CacheDigest
    /// As in the cache key, for people and for invalidation.
    public var url: String
    /// Whether it was asked for with credentials.
    public var isPrivate: Bool
    /// The digest of its `VaryKey`, empty for none.
    public var variant: [UInt8]
    /// Its `VaryKey` is `variant` where it comes from the index and there is one.
    public var response: StoredResponse
    /// Decoded bytes of body.
    public var length: Int
    /// Of the decoded body, 64 hexadecimal digits; nil if there is none.
    public var sha256: String?
    /// The body, if it is kept in the index.
    public var body: [UInt8]?

    public init(
        entry: UInt64, key: CacheDigest, url: String, isPrivate: Bool, variant: [UInt8], response: StoredResponse,
        length: Int, sha256: String?, body: [UInt8]?
    ) {
        self.entry = entry
        self.key = key
        self.url = url
        self.isPrivate = isPrivate
        self.variant = variant
        self.response = response
        self.length = length
        self.sha256 = sha256
        self.body = body
    }

    /// What it counts for in the limit: its bytes, and about what a row takes besides.
    var cost: Int { length + response.fields.bytes.count + url.utf8.count + 256 }
}
