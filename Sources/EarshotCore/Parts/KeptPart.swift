internal import EarshotHTTP
internal import EarshotWire

/// Partial body of an interrupted transfer, in a spool file that only the broker touches.
struct KeptPart {
    let file: String
    let body: PartialBody
    /// Fields of the 200 response whose body it is.
    let fields: HeaderFields
    /// The attempt that received the first byte.
    let generation: AttemptID

    var bytes: Int { Int(body.keptBytes) }
}

/// File that the body of a running attempt grows in.
struct GrowingPart {
    /// Base name chosen by the worker.
    var file: String
    /// Fields of the 200 response whose body it is; empty while no later attempt could resume it.
    var fields: HeaderFields
    /// The attempt that received the first byte. Progress of another generation is about another representation.
    let generation: AttemptID
}

/// Part of a flight that has ended, kept in case another request needs it.
struct PartAside {
    let part: KeptPart
    /// Identifies the part's expiry timer, and orders the parts by age.
    let serial: UInt64
}

/// Key and request of a flight that has ended while its attempt is being cancelled.
final class AbandonedFlight: Sendable {
    let key: FlightKey
    let request: HTTPRequest

    init(key: FlightKey, request: HTTPRequest) {
        self.key = key
        self.request = request
    }
}
