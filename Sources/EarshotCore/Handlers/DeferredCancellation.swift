internal import EarshotWire

/// A running flight without requests, whose cancellation waits for the remaining messages of its client.
struct DeferredCancellation {
    /// The client whose message removed the last request; nil if no message did.
    let client: ClientID?
    /// Number of messages of that client's session that the broker had read when the request was removed.
    let heard: UInt64
    /// Outcome of the flight, kept for a request that rejoins it; nil while the transfer runs.
    var outcome: Outcome?
}
