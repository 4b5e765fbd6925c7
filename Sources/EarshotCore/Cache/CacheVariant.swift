public import EarshotHTTP
internal import EarshotWire

/// Stored response without its body, as the shell's index gives it to the core.
public struct CacheVariant: Equatable, Sendable {
    public var entry: CacheEntryID
    public var response: StoredResponse
    /// Length of the decoded body in bytes, 0 to `WireLimits.bodyBytes`.
    public let length: Int
    /// SHA-256 of the decoded body, as 64 hexadecimal digits; nil for an empty body.
    public var sha256: String?

    public init(entry: CacheEntryID, response: StoredResponse, length: Int, sha256: String?) {
        self.entry = entry
        self.response = response
        // The stored number may be damaged.
        self.length = min(max(length, 0), WireLimits.bodyBytes)
        self.sha256 = sha256
    }
}

/// Name of a stored response, which the core chooses when it stores the response.
public struct CacheEntryID: Hashable, Sendable {
    /// 0 to 2^63 - 1.
    public var rawValue: UInt64

    public init(rawValue: UInt64) {
        self.rawValue = rawValue
    }
}

/// Body of a stored response, in the form in which the shell read it.
public enum CachedBody: Equatable, Sendable {
    /// The response was evicted, or its body cannot be read.
    case missing
    /// A body in memory, which the shell holds for the core.
    case inline(BodyID)
    /// Base name of a spool file. The core owns the file from here on.
    case file(String)
}
