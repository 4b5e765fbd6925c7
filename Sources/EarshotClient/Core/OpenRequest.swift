internal import EarshotWire

/// A request that is wanted and has no terminal.
struct OpenRequest: Equatable {
    /// Times a request is asked again because its file was gone before it was read: a broker can die twice in a row.
    static let mostLosses = 3

    var fetch: Shared<Fetch>
    /// Requests are said again in the order they were first asked for.
    let order: UInt64
    /// When the consumer asked for it, in milliseconds of `ClientCore.milliseconds`.
    var askedAt = 0
    /// Times its file was gone before its consumer could read it.
    var losses = 0
    /// Asked for only once the terminal of this number is acknowledged: until then the broker holds the ID taken.
    var waitsFor: UInt64?
    /// With which message of the session it was, or will be, asked for.
    var number = UInt64.max
    /// Whether it was asked for before, over whatever connection. It does not replace its handler's requests twice.
    var wasSaid = false
    /// Whether it was asked for in a session that is gone, and must not be done twice: nobody knows whether it was.
    var isLost = false

    /// Whether no broker that lives can have heard of it, nor waits for it to purge others.
    var isUnheard: Bool {
        number == .max && waitsFor == nil && !options.isDurable && !(options.replacesHandler && !wasSaid)
    }

    private var options: Fetch.Options { fetch.value.options }

    /// The session that it was asked in is gone.
    mutating func sessionLost() {
        isLost = isLost || wasSaid && !options.isRepeatable
        number = .max
    }

    /// What to say now. Said again, it tells the broker since when the request has been open: an answer of that time
    /// may serve it.
    mutating func takeMessage(at now: Int) -> ClientMessage {
        defer { wasSaid = true }
        guard wasSaid else { return .fetch(fetch.value) }
        var fetch = fetch.value
        fetch.options.replacesHandler = false
        fetch.options.askedMilliseconds = min(max(now - askedAt, 0), WireLimits.seconds * 1_000)
        return .fetch(fetch)
    }
}
