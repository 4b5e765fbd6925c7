public import EarshotHTTP
internal import EarshotWire

/// Cache state of a flight that needs more than a lookup and a store: fields to add, a stored response, or a pending
/// read.
package struct CachePlan {
    /// Fields that its JOB has in addition to those of the request: conditions, and `Cache-Control` for other caches.
    var addedFields = HeaderFields()
    /// Conditions of all requests of the flight, which its JOB has too, if the cache has none of its own.
    var requestConditions: RequestConditions?
    /// The stored response that is being validated, may replace a failure, or is being read.
    var storedVariant: CacheVariant?
    /// The source to report in the terminal, while the body is being read; nil otherwise.
    var readingSource: Terminal.Source?
    /// The range of the body that the flight requests; nil for the whole body.
    var requestedRange: RequestedRange?
    /// Failure of the origin, while a stale response is read to replace it.
    var fallbackFailure: Handle<Outcome>?
    /// Whether the flight is looked up again once one of its receivers has room for a stored response.
    package var waitsForReceiverRoom = false
    /// Client in whose window the flight has room reserved while it is looked up again, or the body is read.
    var reservedReceiver: GenerationalHandle<ClientSession>?
    /// Principal whose use of a stale response began a revalidation; nil for the administrator.
    var owner: PrincipalName?

    /// Returns the request of the JOB, which is the flight's request with the planned fields. Not a method of the core,
    /// because its caller would copy the whole core.
    func plannedRequest(from request: HTTPRequest) -> HTTPRequest {
        let request = request.addingFields(addedFields)
        return requestConditions.map { request.addingFields($0.fields) } ?? request
    }
}

/// Stored response without its body, as the shell's index returns it to the core.
public struct CacheVariant: Equatable, Sendable {
    public var entryID: CacheEntryID
    public var response: StoredResponse
    /// Length of the decoded body in bytes, 0 to `WireLimits.responseBodyBytes`.
    public let length: Int
    /// SHA-256 of the decoded body, as 64 hexadecimal digits; nil for an empty body.
    public var sha256: String?

    public init(entry: CacheEntryID, response: StoredResponse, length: Int, sha256: String?) {
        self.entryID = entry
        self.response = response
        // The stored number may be damaged.
        self.length = min(max(length, 0), WireLimits.responseBodyBytes)
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
