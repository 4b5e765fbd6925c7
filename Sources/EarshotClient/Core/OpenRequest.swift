internal import EarshotWire

/// Request without a terminal, which `ClientCore` keeps to send it to the next broker again.
struct OpenRequest: Equatable {
    /// Maximum repetitions of a request whose file was missing: a broker can end twice in succession.
    static let mostLosses = 3

    var fetch: Shared<Fetch>
    /// Position in the order of creation, in which requests are repeated.
    let order: UInt64
    /// Number of deliveries whose file was missing.
    var losses = 0
    /// Number of the terminal that must be acknowledged first, because it occupies the ID; nil if the request can be
    /// sent.
    var waitsFor: UInt64?
    /// Number of its message in the session; `.max` if it was not sent in it.
    var number = UInt64.max
    /// Whether it was sent over any connection. A repetition does not replace the handler's requests again.
    var wasSent = false
    /// Whether it was sent in a lost session and is not idempotent: the server may have processed it.
    var isLost = false

    /// Whether the broker neither knows the request nor has to purge others for it.
    var isUnknownToBroker: Bool {
        number == .max && waitsFor == nil && !options.isDurable && !(options.replacesHandler && !wasSent)
    }

    private var options: Fetch.Options { fetch.value.options }

    /// Handles the loss of its session.
    mutating func sessionLost() {
        isLost = isLost || wasSent && !options.isRepeatable
        number = .max
    }

    /// Returns the FETCH to send.
    mutating func takeMessage() -> ClientMessage {
        defer { wasSent = true }
        guard wasSent else { return .fetch(fetch.value) }
        var fetch = fetch.value
        fetch.options.replacesHandler = false
        return .fetch(fetch)
    }
}
