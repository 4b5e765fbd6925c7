public import EarshotHTTP

/// Requests from a loop to the cache's thread. Results arrive in the order of the requests.
public enum CacheRequest: Sendable {
    /// Returns all variants of a key: `found`.
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
    case used([UInt64])
    /// Sets the maximum total size.
    case limit(bytes: Int)
}

/// Results from the cache's thread.
public enum CacheAnswer: Sendable {
    /// The index is open; contains the suffixes of all its keys.
    case opened(Set<UInt64>)
    /// The index was corrupt and has been replaced, or no index is available any more.
    case emptied
    case found(ticket: UInt64, [CacheItem])
    case body(ticket: UInt64, CacheBody)
    /// Result of a `store`.
    case stored(key: CacheDigest, isKept: Bool)
    /// No response of these keys is stored any more.
    case gone([CacheDigest])
    /// Problem to report to an administrator.
    case fault(CacheFault)
}

/// Body of a stored response.
public enum CacheBody: Sendable {
    case missing
    case bytes([UInt8])
    /// File in the spool, not yet named by its content.
    case file(part: String, sha256: String, length: Int)
}

extension [UInt8] {
    /// Returns the bytes at these offsets, or all without a range; nil if they exceed the array.
    public func part(_ range: Range<Int>?) -> [UInt8]? {
        guard let range else { return self }
        return indices.contains(range) ? Array(self[range]) : nil
    }
}
