internal import EarshotHTTP
internal import EarshotWire

/// Partial bodies of interrupted attempts whose flights have not ended. A part belongs to the flight that resumes it:
///
/// ```
///            keep            take, or replaced by a newer part
/// (absent) ────────→ kept ────────────────────────────────────→ (absent)
/// ```
///
/// The store deletes no files, and `Parts` bounds it by the quotas. Parts of ended flights are in the shell's folder of parts.
struct PartStore {
    /// Whether the shell's folder of parts may have one.
    var mayHaveStored = false
    /// Bytes of all parts. A wrapping sum, because workers report some of the sizes.
    private(set) var bytes = 0
    /// Parts by flight.
    private(set) var keptParts: [Handle<Flight>: KeptPart] = [:]

    var isEmpty: Bool { keptParts.isEmpty }

    func hasPart(of flight: Handle<Flight>) -> Bool { keptParts[flight] != nil }

    /// Keeps a part for a flight without one.
    mutating func keepPart(_ part: KeptPart, for flight: Handle<Flight>) {
        precondition(keptParts[flight] == nil, "flight \(flight) has two parts")
        keptParts[flight] = part
        bytes &+= part.bytes
    }

    /// Removes the part of a flight and returns it.
    mutating func take(_ flight: Handle<Flight>) -> KeptPart? {
        // Nearly always empty, and called for each flight.
        guard !keptParts.isEmpty, let part = keptParts.removeValue(forKey: flight) else { return nil }
        bytes &-= part.bytes
        return part
    }

    /// Releases spare capacity beyond `least` entries.
    mutating func releaseRoom(least: Int) { keptParts.releaseRoom(least: least) }

    /// Returns a sentence for each violated invariant.
    func checkInvariants() -> [String] {
        var faults: [String] = []
        let sum = keptParts.values.reduce(0) { $0 &+ $1.bytes }
        if bytes != sum { faults.append("11: parts have \(sum) bytes, not \(bytes)") }
        if Set(keptParts.values.map(\.file)).count < keptParts.count { faults.append("12: two parts share a file") }
        return faults
    }
}

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
