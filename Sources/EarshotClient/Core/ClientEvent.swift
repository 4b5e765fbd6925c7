public import EarshotWire

/// What a ``ClientConnection`` tells its consumer, always from the loop and never from inside a call of the consumer.
public enum ClientEvent: Sendable {
    /// The end of a request, own or watched, once. `body` is its content if it came inline, else empty.
    ///
    /// If ``Delivery/isFile``, the consumer must finish it: see there.
    case terminal(Delivery, body: [UInt8])
    /// A durable request is on the broker's disk: it runs without this client.
    case accepted(RequestKey)
    case progress(Progress)
    /// After this nothing of the request follows.
    case cancelled(RequestKey)
    /// After this nothing of what was removed follows. `count` requests were.
    case removed(HandlerPattern, count: Int)
    /// A query's answer, JSON.
    case answer(Query, json: [UInt8])
    /// A setting was changed; in normal form.
    case changed(SettingWords)
    /// The broker refused a message, or sent one that this version cannot read. If it names a request, that is over,
    /// without a terminal. `connection-lost` is this library's own code: the broker was lost, and the request is of a
    /// method that may not be done twice, so it is not asked again, and nobody knows whether it was done.
    case refused(ErrorReply)
    case state(ClientState)
}
