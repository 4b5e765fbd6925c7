internal import EarshotHTTP
internal import EarshotWire

/// Partial bodies of interrupted attempts whose flights have not ended. A part belongs to the flight that resumes it:
///
/// ```
/// (absent) → kept  (keepPart)
/// kept → (absent)  (removePart: an attempt resumes it, a newer part replaces it, or the flight ends)
/// ```
///
/// The store deletes no files, and `Parts` bounds it by the quotas. Parts of ended flights are in the shell's folder of
/// parts.
struct PartStore {
    /// Whether the shell's folder of parts may have a part.
    var mayHaveStoredParts = false
    /// Bytes of all parts. A wrapping sum, because workers report some of the sizes.
    private(set) var keptPartBytes = 0
    /// Parts by flight.
    private(set) var keptPartsByFlight: [Handle<Flight>: KeptPart] = [:]

    var isEmpty: Bool { keptPartsByFlight.isEmpty }

    func hasKeptPart(of flight: Handle<Flight>) -> Bool { keptPartsByFlight[flight] != nil }

    /// Keeps a part for a flight without one.
    mutating func keepPart(_ part: KeptPart, for flight: Handle<Flight>) {
        precondition(keptPartsByFlight[flight] == nil, "flight \(flight) has two parts")
        keptPartsByFlight[flight] = part
        keptPartBytes &+= part.keptBodyBytes
    }

    /// Removes the part of a flight and returns it.
    mutating func removePart(of flight: Handle<Flight>) -> KeptPart? {
        // Nearly always empty, and called for each flight.
        guard !keptPartsByFlight.isEmpty, let part = keptPartsByFlight.removeValue(forKey: flight) else { return nil }
        keptPartBytes &-= part.keptBodyBytes
        return part
    }

    /// Releases spare capacity beyond `least` entries.
    mutating func releaseSpareCapacity(retaining least: Int) {
        keptPartsByFlight.releaseSpareCapacity(retaining: least)
    }

    /// Returns a sentence for each violated invariant.
    func checkInvariants() -> [String] {
        var faults: [String] = []
        let sum = keptPartsByFlight.values.reduce(0) { $0 &+ $1.keptBodyBytes }
        if keptPartBytes != sum { faults.append("11: parts have \(sum) bytes, not \(keptPartBytes)") }
        if Set(keptPartsByFlight.values.map(\.spoolFile)).count < keptPartsByFlight.count {
            faults.append("12: two parts share a file")
        }
        return faults
    }
}

/// Partial body of an interrupted transfer, in a spool file that no worker writes.
struct KeptPart {
    let spoolFile: String
    /// Principal whose quotas it counts for.
    let principal: Handle<Principal>
    let body: PartialBody
    /// Fields of the 200 response to which the body belongs.
    let responseFields: HeaderFields
    /// Attempt that received the first byte.
    let generation: AttemptID
    /// Sessions that have read the body while it grew.
    var fileAudience = FileAudience.knownToNoSession
    /// Whether the shell has its description.
    var isDescriptionStored = false

    var keptBodyBytes: Int { Int(body.keptBytes) }
}

/// File into which a running attempt writes its body.
struct GrowingPart {
    /// Base name chosen by the worker.
    var file: String
    /// Fields of the response to which the body belongs; empty if they are unknown.
    var responseFields: HeaderFields
    /// Status of a response whose body no later attempt can resume; nil for a 200.
    var status: Int?
    /// Attempt that received the first byte. Progress with another generation belongs to another representation.
    let generation: AttemptID
    /// Sessions that have read the body.
    var fileAudience = FileAudience.knownToNoSession
    /// Whether the shell has its description, so that the part outlives this broker.
    var isDescriptionStored = false
    /// Whether that description states that a session knows the file.
    var isDescriptionStoredAsKnown = false
    /// Whether all bytes of the file count. False for a part from before the last boot, until the worker has compared
    /// its hash.
    var areAllBytesVerified = true
    /// Bytes of the last checkpoint.
    var lastCheckpointBytes = 0

    /// Whether a later attempt can resume the body.
    var isResumable: Bool { status == nil && !responseFields.isEmpty }
}

/// Key and request of an ended flight whose attempt is being cancelled.
final class CancelledAttemptFlight: Sendable {
    let key: FlightKey
    let request: HTTPRequest
    /// Keys of its part; nil if the part may not outlive the flight.
    let partKeys: PartKeys?

    init(key: FlightKey, request: HTTPRequest, partKeys: PartKeys?) {
        self.key = key
        self.request = request
        self.partKeys = partKeys
    }
}
