internal import EarshotWire

/// Cookies that the consumer stored in a jar of the broker, to be stored again in the empty jars of another broker.
struct StoredCookies {
    let handler: HandlerID
    /// The message that carries them.
    let message: ClientMessage
    /// Broker to which the message was sent; nil for none.
    var broker: BrokerInstance?
}
