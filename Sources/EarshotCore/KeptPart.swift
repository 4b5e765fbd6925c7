internal import EarshotHTTP
internal import EarshotWire

/// The beginning of a body whose transfer broke off, in a file of the spool that only the broker touches.
struct KeptPart {
    let file: String
    let body: PartialBody
    /// Fields of the 200 whose body it is.
    let fields: HeaderFields
    /// The attempt that brought its first byte.
    let generation: AttemptID

    var bytes: Int { Int(body.keptBytes) }
}

/// The file the body of a running attempt grows in.
struct GrowingPart {
    /// Base name, as the worker calls it.
    var file: String
    /// Fields of the 200 whose body it is; empty while no later attempt could go on with it.
    var fields: HeaderFields
    /// The attempt that brought its first byte: what was told of another one is no part of what comes.
    let generation: AttemptID
}

/// What is kept for a flight that nobody wants any more, in case somebody will.
struct PartAside {
    let part: KeptPart
    let serial: UInt64
}

/// What was asked for by a flight that is gone while its attempt is being cancelled.
final class AbandonedFlight: Sendable {
    let key: FlightKey
    let request: HTTPRequest

    init(key: FlightKey, request: HTTPRequest) {
        self.key = key
        self.request = request
    }
}
