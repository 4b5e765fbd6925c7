internal import EarshotHTTP
internal import EarshotWire

/// Partial body of an interrupted transfer, in a spool file that no worker writes.
struct KeptPart {
    let file: String
    /// Principal whose quotas it counts for.
    let principal: Handle<Principal>
    let body: PartialBody
    /// Fields of the 200 response to which the body belongs.
    let fields: HeaderFields
    /// Attempt that received the first byte.
    let generation: AttemptID
    /// Sessions that have read the body while it grew.
    var audience = FileAudience.noSession
    /// Whether the shell has its description.
    var isRecorded = false

    var bytes: Int { Int(body.keptBytes) }
}

/// File into which a running attempt writes its body.
struct GrowingPart {
    /// Base name chosen by the worker.
    var file: String
    /// Fields of the response to which the body belongs; empty if they are unknown.
    var fields: HeaderFields
    /// Status of a response whose body no later attempt can resume; nil for a 200.
    var status: Int?
    /// Attempt that received the first byte. Progress with another generation belongs to another representation.
    let generation: AttemptID
    /// Sessions that have read the body.
    var audience = FileAudience.noSession
    /// Whether the shell has its description, so that the part outlives this broker.
    var isRecorded = false
    /// Whether that description says that a session knows the file.
    var isRecordedAsKnown = false
    /// Whether all bytes of the file count. False for a part from before the last boot until the worker has compared its hash.
    var isVerified = true
    /// Bytes of the last checkpoint.
    var checkpointBytes = 0

    /// Whether a later attempt can resume the body.
    var isResumable: Bool { status == nil && !fields.isEmpty }
}

/// Key and request of an ended flight whose attempt is being cancelled.
final class AbandonedFlight: Sendable {
    let key: FlightKey
    let request: HTTPRequest
    /// Keys of its part; nil if that may not outlive it.
    let partKeys: PartKeys?

    init(key: FlightKey, request: HTTPRequest, partKeys: PartKeys?) {
        self.key = key
        self.request = request
        self.partKeys = partKeys
    }
}
