package import EarshotHTTP
internal import EarshotWire

/// Result or failure of a flight or of one request. The terminals of several requests share it.
package struct Outcome {
    /// Response of an origin, of a user's own worker, or of the cache.
    package struct Response {
        package var status: Int
        package var url: String
        package var bodyLength: Int
        var sha256: String?
        var body: Body?
        var headerFields: [UInt8]
        var startedAt: MonotonicTime
        var endedAt: MonotonicTime
        /// Number of bytes of an earlier attempt with which the last one began; 0 if it began with the first byte.
        var resumedBytes = 0
        /// Whether another node of the cluster received it.
        var isFromOtherNode = false
        /// Whether the worker left out the body, that of a redirect or an error page.
        var isBodyOmitted = false
        /// Attempt that received the first byte of a body in a file; nil if the worker did not report the file.
        var bodyGeneration: AttemptID?
        /// Source of a response from the cache; nil for a transfer.
        var cacheSource: Terminal.Source?

        /// Whether the origin is overloaded: 429 (RFC 6585, section 4) or 503 (RFC 9110, section 15.6.4).
        var isOriginOverloaded: Bool { status == 429 || status == 503 }

        var inlineBody: BodyID? { if case .inline(let id) = body { id } else { nil } }

        var bodyFile: String? { if case .file(let name, _) = body { name } else { nil } }
    }

    /// Form of a body: in memory, or a file of the spool.
    package enum Body: Equatable {
        case inline(BodyID)
        /// `spilledBody`: the ID that the body had in memory. The shell reports a failed write by it.
        case file(String, spilledBody: BodyID? = nil)

        /// - Parameter stored: nil or `missing` for none.
        init?(_ stored: CachedBody?) {
            switch stored {
            case .inline(let id): self = .inline(id)
            case .file(let name): self = .file(name)
            case .missing, nil: return nil
            }
        }
    }

    package var failure: FailureCode?
    /// Seconds until the end of the cool-down that caused the failure; 0 for other failures. Fits into the padding
    /// after the code.
    var coolDownSeconds: UInt32 = 0
    /// Sentence that replaces the standard sentence of the code; nil for the standard one.
    var detail: String?
    /// URL of a failure without a response; nil if there was no flight.
    package var url: String?
    /// Result, or error page of an `http-status`.
    package var response: Response?
    package var attempts = 0
    /// Reference count: interests, and functions that are distributing the outcome.
    var referenceCount = 0

    var retryAfterSeconds: Int? { coolDownSeconds == 0 ? nil : Int(coolDownSeconds) }

    /// Text of a failure without a response; nil for all others.
    var sharedFailureText: CompactFailure.SharedFailureText? {
        guard let failure, response == nil else { return nil }
        return CompactFailure.SharedFailureText(
            failure: failure, detail: detail, attemptCount: attempts, retryAfterSeconds: retryAfterSeconds)
    }

    /// Maximum bytes of a worker's or another node's detail that clients receive.
    private static let maximumPeerDetailBytes = 200

    /// Returns the part of a worker's or another node's detail that clients receive.
    static func truncatedPeerDetail(_ detail: String) -> String {
        String(decoding: detail.utf8.prefix(maximumPeerDetailBytes), as: UTF8.self)
    }

    /// A failure of a flight, or of one of its requests, that has no response.
    static func failure(
        _ code: FailureCode, of flight: Handle<Flight>, detail: String? = nil, in records: inout Records
    ) -> Outcome {
        let url = records.flights[flight].url.description
        return Outcome(
            failure: code, detail: detail, url: url, attempts: Int(records.flights[flight].assignedAttemptCount))
    }

    /// A failure in place of this outcome, for the same request.
    func replacedByFailure(_ failure: FailureCode, detail: String? = nil) -> Outcome {
        Outcome(failure: failure, detail: detail, url: response?.url ?? url, attempts: attempts)
    }
}

/// Reason why a request cannot be served at all.
struct RequestRefusal: Error {
    let code: FailureCode
    /// Sentence that replaces the code's own; nil for that one.
    var detail: String?
}

/// Failure without a response that waits for room in the windows of its receivers. It is small, because one removal may
/// add half a million of them to a client's window.
///
/// ```
/// (absent) → attached            (addCompactFailure)
/// attached → detached            (detachCompactFailure: the request's record is freed)
/// attached, detached → (absent)  (releaseCompactFailure: the last reference is released)
/// ```
struct CompactFailure {
    /// Text that failures share as one outcome.
    struct SharedFailureText: Hashable {
        let failure: FailureCode
        let detail: String?
        let attemptCount: Int
        let retryAfterSeconds: Int?
    }

    let request: RequestID
    let handler: Handle<HandlerEntry>
    /// Outcome of all failures with the same text.
    let outcome: Handle<Outcome>
    /// Reference count: deliveries neither acknowledged nor lost.
    var referenceCount: Int32 = 0
    /// Interest of the request while its record exists.
    @OptionalHandle var interest: Handle<Interest>? = nil
}
