public import EarshotHTTP

/// A kept answer, named by the core when it is stored.
public struct CacheEntryID: Hashable, Sendable {
    /// 0 to 2^63 - 1.
    public var rawValue: UInt64

    public init(rawValue: UInt64) {
        self.rawValue = rawValue
    }
}

/// A kept answer without its body.
public struct CacheVariant: Equatable, Sendable {
    public var entry: CacheEntryID
    public var response: StoredResponse
    /// Decoded bytes of body.
    public var length: Int
    /// Of the decoded body, 64 hexadecimal digits.
    public var sha256: String?

    public init(entry: CacheEntryID, response: StoredResponse, length: Int, sha256: String?) {
        self.entry = entry
        self.response = response
        self.length = length
        self.sha256 = sha256
    }
}

/// The body of a kept answer, as the shell brings it.
public enum CachedBody: Equatable, Sendable {
    /// The answer is kept no longer, or its body cannot be read.
    case missing
    /// Held by the shell, for the core.
    case inline(BodyID)
    /// A spool file by its base name, the core's from now on.
    case file(String)
    /// Both.
    case both(BodyID, file: String)
}
