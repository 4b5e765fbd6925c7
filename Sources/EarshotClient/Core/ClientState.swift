package import EarshotWire

/// State of a client's connection to the broker.
package enum ClientState: Equatable, Sendable {
    /// Disconnected. Open requests are stored and repeated after the reconnection.
    case disconnected
    /// Connected. All open requests were sent.
    case connected(BrokerInstance)
    /// The broker accepts no new requests, because it will end or its setting `admission` is closed. The next broker
    /// gets the requests that this one did not answer.
    case draining
    /// The broker supports another version of the protocol. The client does not try again.
    case incompatible
}
