package import EarshotHTTP
package import EarshotWire

/// State of a durable request in addition to its `Interest`: a record of `DurableBook`.
package struct DurableRecord {
    /// Bytes of a durable request beside its head and its body: those that the store counts for a row.
    static let rowOverheadBytes = 256

    /// See `DurableBook` for the transitions.
    enum Phase {
        /// The request is being written, and not accepted yet.
        case writingRequest(UnacceptedRequest)
        /// The request is on the disk.
        case stored
        /// Its result is being written.
        ///
        /// - bytes: bytes of a body in memory.
        case writingResult(bytes: Int)
        /// The request and its result are on the disk.
        case complete
        /// The result is being read.
        case readingResult
        /// The result, a failure, is being deleted, because a client repeats the request.
        case deletingFailure(UnacceptedRequest)

        var hasResult: Bool {
            switch self {
            case .writingRequest, .stored, .writingResult, .deletingFailure: false
            case .complete, .readingResult: true
            }
        }

        var resultBytesBeingWritten: Int { if case .writingResult(let bytes) = self { bytes } else { 0 } }
    }

    /// State until the request is on disk, or is pending there again.
    package final class UnacceptedRequest {
        /// Nil for a repeated request, which is on disk only.
        package let fetch: Fetch?
        /// Messages that await ACCEPTED. Messages without numbers of one session share an entry.
        var requesters: [Requester]

        init(_ fetch: Fetch?, by requester: Requester) {
            self.fetch = fetch
            requesters = [requester]
        }
    }

    let id: DurableID
    /// Time of the latest acceptance, possibly by an earlier broker.
    var acceptedAt: MonotonicTime
    var phase: Phase
    /// Serial of its latest expiry timer, which makes earlier ones stale.
    var expiryTimer: UInt64 = 0
    /// Spool file of a result that an earlier broker left.
    var file: String?
    /// Latest result; nil before the first.
    var summary: DurableSummary?
    /// Bytes that count for the principal: of the request, and of its result.
    var requestBytes = 0
    var resultBytes = 0
}

/// Name of a durable request on disk, unique over all lives of a broker.
public struct DurableID: Hashable, Sendable {
    /// Largest value accepted from disk: far above any assigned one, with room for later ones.
    static let maximumStoredValue = UInt64(1) << 62

    /// 1 to 2^63 - 1, ascending.
    public var rawValue: UInt64

    public init(rawValue: UInt64) {
        self.rawValue = rawValue
    }
}

/// Durable request that an earlier broker left.
public struct DurableEntry: Equatable, Sendable {
    public var id: DurableID
    /// Time of acceptance in seconds since 1970.
    public var acceptedAt: Int64
    /// The FETCH.
    public var head: [UInt8]
    /// Name of the principal that its handler belongs to; nil for the administrator.
    public var principal: String?
    /// Whether its result is on disk too.
    public var hasResult: Bool
    /// Code of the result, if that is a failure.
    public var failure: String?
    /// HTTP status of the result; nil without one.
    public var status: Int?
    /// Attempts until the result.
    public var attempts: Int
    /// Spool file of the result's body, if it still exists: a client may have received its path.
    public var file: String?
    /// Size of that file in bytes.
    public var fileBytes: Int
    /// Bytes of the result: its head and its body.
    public var resultBytes: Int

    /// Bytes that count for the principal.
    var quotaBytes: Int { head.count + DurableRecord.rowOverheadBytes + resultBytes }

    public init(
        id: DurableID, acceptedAt: Int64, head: [UInt8], principal: String? = nil, hasResult: Bool,
        failure: String? = nil, status: Int? = nil, attempts: Int = 0, file: String? = nil, fileBytes: Int = 0,
        resultBytes: Int = 0
    ) {
        self.id = id
        self.acceptedAt = acceptedAt
        self.head = head
        self.principal = principal
        self.hasResult = hasResult
        self.failure = failure
        self.status = status
        self.attempts = attempts
        self.file = file
        self.fileBytes = fileBytes
        self.resultBytes = resultBytes
    }
}

/// Outcome of a durable request, to be written to disk.
public struct DurableResult: Equatable, Sendable {
    /// The terminal without a path, with sequence number 0.
    public var terminalHead: [UInt8]
    /// Length of its body in bytes; 0 without a body.
    public var bodyLength: Int
    /// SHA-256 of the body, as 64 hexadecimal digits.
    public var sha256: String?
    /// The body, if it is in memory.
    public var body: BodyID?
    /// Base name of the body's spool file, if it is in one.
    public var file: String?
}

/// Outcome of a durable request, read from disk.
public struct DurableOutcome: Equatable, Sendable {
    /// The terminal, as in `DurableResult`.
    public var terminalHead: [UInt8]
    /// Also `missing` for a terminal without a body.
    public var body: CachedBody

    public init(head: [UInt8], body: CachedBody) {
        self.terminalHead = head
        self.body = body
    }
}

/// Result of a durable request, as lists show it while the result is on disk only.
package struct DurableSummary: Equatable {
    /// Nil for a success.
    package var failure: FailureCode?
    /// HTTP status; nil without a response.
    package var status: Int?
    package var attempts: Int
    /// URL of the response or of the last attempt; nil if it is unknown.
    package var url: String?
}
