internal import EarshotWire

/// A running flight that lost its last request, and whose cancellation waits for the rest of its client's messages.
struct DeferredCancellation {
    /// The client whose message removed the last request; nil if no message did.
    let client: ClientID?
    /// Messages of that client's session that the broker had read by then.
    let heard: UInt64
    /// How the flight ended meanwhile; nil while its transfer goes on.
    var outcome: Outcome?
}
