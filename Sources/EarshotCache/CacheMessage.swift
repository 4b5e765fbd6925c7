public import EarshotHTTP

/// What a loop asks of the cache's thread. Answers come in the order of the questions.
public enum CacheRequest: Sendable {
    /// All variants of a key: `found`.
    case lookUp(ticket: UInt64, CacheDigest)
    /// The body of an answer: `body`.
    case read(ticket: UInt64, entry: UInt64)
    /// Keep this, in the place of one of the same key and variant; `stored` follows. A body that is a file is given as
    /// a descriptor, which is closed.
    case store(CacheItem, file: Int32?)
    /// An answer was found unchanged.
    case refresh(entry: UInt64, StoredResponse, variant: [UInt8])
    case discard(entry: UInt64)
    /// Answers for these URLs are to be validated before use.
    case invalidate([String])
    /// These answers were used, in this order.
    case used([UInt64])
    /// Keep so many bytes at most.
    case limit(bytes: Int)
}

/// What the cache's thread answers.
public enum CacheAnswer: Sendable {
    /// The index is open: the prefixes of all keys in it.
    case opened(Set<UInt64>)
    /// The index was damaged, was moved aside and is begun anew, or there is none any more.
    case emptied
    case found(ticket: UInt64, [CacheItem])
    case body(ticket: UInt64, CacheBody)
    /// A `store` was carried out, or could not be.
    case stored(key: CacheDigest, isKept: Bool)
    /// Of these keys nothing is kept any more.
    case gone([CacheDigest])
    /// Something that a person should know.
    case trouble(String)
}

/// The body of a kept answer.
public enum CacheBody: Sendable {
    case missing
    case bytes([UInt8])
    /// A file of the spool, not named by its content yet.
    case file(part: String, sha256: String, length: Int)
}
