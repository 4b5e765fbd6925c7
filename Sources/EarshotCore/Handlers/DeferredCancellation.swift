internal import EarshotWire

/// A running flight without requests, whose cancellation waits for the remaining messages of its client.
struct DeferredCancellation {
    /// Message that removed the last request; nil if no message did.
    let message: MessageMark?
    /// Outcome of the flight, kept for a request that rejoins it; nil while the transfer runs. One reference is held.
    var outcome: Handle<Outcome>?
}

/// Position of a message in the input of its client's session.
struct MessageMark: Equatable {
    let client: ClientID
    /// Number of messages of the session that the broker had read, including this one.
    let number: UInt64
}
