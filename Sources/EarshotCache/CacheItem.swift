public import EarshotHTTP

/// Stored response, exchanged between the loop and the index.
public struct CacheItem: Sendable {
    /// Identifier, 0 to 2^63 - 1.
    public var entry: UInt64
    public var key: CacheDigest
    /// URL of the cache key, for reports.
    public var url: String
    /// Whether the request had credentials.
    public var isPrivate: Bool
    /// Digest of its `VaryKey`; empty without one.
    public var variant: [UInt8]
    /// Response. Its `VaryKey` is `variant` if it was read from the index and has one.
    public var response: StoredResponse
    /// Length of the decoded body in bytes.
    public var length: Int
    /// Digest of the decoded body, 64 hexadecimal digits; nil without a body.
    public var sha256: String?
    /// Body, if it is stored in the index.
    public var body: [UInt8]?
    /// Principal whose part of the cache it takes; empty for the administrator.
    public var owner: String

    public init(
        entry: UInt64, key: CacheDigest, url: String, isPrivate: Bool, variant: [UInt8], response: StoredResponse,
        length: Int, sha256: String?, body: [UInt8]?, owner: String = ""
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
        self.owner = owner
    }

    /// Size counted toward the limit in bytes: its content, and an estimate of the row's overhead.
    var cost: Int { length + response.fields.bytes.count + url.utf8.count + 256 }
}
