package import EarshotWire

/// Event of a ``ClientConnection``. Events come from the loop, never from inside a call of the consumer.
package enum ClientEvent: Sendable {
    /// A request ended, of this client or of a subscribed handler. `body` is the inline content, else empty.
    ///
    /// If ``DeliveredTerminal/isFile`` is true, the consumer must finish the delivery.
    case terminal(DeliveredTerminal, body: [UInt8])
    /// A durable request is on the broker's disk and no longer needs this client.
    case accepted(RequestKey)
    /// A transfer has received more bytes.
    case progress(Progress)
    /// A request was cancelled. No further event concerns it. `wasOpen` is false if it had ended or is unknown.
    case cancelled(RequestKey, wasOpen: Bool)
    /// Handlers were removed, with `count` open requests. No further event concerns these.
    case removed(HandlerPattern, count: Int)
    /// Answer to a query, as JSON.
    case queryAnswer(Query, json: [UInt8])
    /// A setting was changed, in canonical form.
    case settingChanged(SettingWords)
    /// The broker refused a message, or sent a message that this version cannot read.
    ///
    /// The request of a refused FETCH has ended without a terminal. The library's own code `connection-lost` means that
    /// a request which is not idempotent was in flight on a lost connection: the server may have processed it, and it
    /// is not repeated.
    case messageRefused(RefusedMessage)
    /// The state of the connection changed.
    case state(ClientState)
}

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
