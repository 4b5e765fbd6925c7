public import EarshotHTTP

/// Requests from a loop to the cache's thread. Results arrive in the order of the requests.
public enum CacheRequest: Sendable {
    /// Returns all variants of a key: `variantsFound`.
    case lookUp(ticket: UInt64, CacheDigest)
    /// Returns the body of a response, or the bytes at these offsets of it: `body`.
    case read(ticket: UInt64, entry: UInt64, range: Range<Int>?)
    /// Stores a response, replacing one with the same key and variant: `stored`. A body file is passed as a descriptor,
    /// which is closed.
    case store(CacheItem, file: Int32?)
    /// Updates a revalidated response.
    case refresh(entry: UInt64, StoredResponse, variant: [UInt8])
    case discard(entry: UInt64)
    /// Marks responses for the URLs of these keys, in all scopes, for revalidation before use.
    case invalidate([CacheDigest])
    /// Records uses of responses, in this order.
    case recordUses([UInt64])
    /// Sets the maximum total size.
    case setLimit(bytes: Int)
}

/// Results from the cache's thread.
public enum CacheAnswer: Sendable {
    /// The index is open; contains the suffixes of all its keys.
    case indexOpened(Set<UInt64>)
    /// The index was corrupt and has been replaced, or no index is available any more.
    case indexEmptied
    case variantsFound(ticket: UInt64, [CacheItem])
    case body(ticket: UInt64, CacheBody)
    /// Result of a `store`.
    case stored(key: CacheDigest, isKept: Bool)
    /// No response of these keys is stored any more.
    case keysRemoved([CacheDigest])
    /// Problem to report to an administrator.
    case fault(CacheFault)
}

/// Body of a stored response.
public enum CacheBody: Sendable {
    case missing
    case bytes([UInt8])
    /// File in the spool, not yet named by its content.
    case spoolFile(name: String, sha256: String, length: Int)
}

extension [UInt8] {
    /// Returns the bytes at these offsets, or all without a range; nil if they exceed the array.
    public func bytes(in range: Range<Int>?) -> [UInt8]? {
        guard let range else { return self }
        return indices.contains(range) ? Array(self[range]) : nil
    }
}

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
    var costBytes: Int { length + response.fields.bytes.count + url.utf8.count + 256 }
}
