public import EarshotWire

/// Terminal of a request as delivered to its consumer.
///
/// If the body is a file (`terminal.response?.file`), its path is valid until the delivery is finished. Call
/// ``ClientConnection/finish(_:)`` after reading it, or ``ClientConnection/askAgain(_:)`` if it cannot be opened. A
/// delivery without a file needs no call, unless the connection was created with `finishesNone`. Finishing a durable
/// terminal (`terminal.isDurable`) deletes its result from the broker's disk.
public struct Delivery: Equatable, Sendable {
    /// Identity of a delivery: number of its session, and its sequence number there.
    public struct ID: Hashable, Sendable {
        let link: UInt64
        let sequence: UInt64
    }

    /// Identity of the delivery.
    public let id: ID
    private let ended: Shared<Terminal>
    private let asked: Shared<Fetch>?
    /// Number of earlier deliveries of this request whose file was missing.
    let losses: Int

    init(id: ID, _ terminal: consuming Terminal, of request: OpenRequest?) {
        self.id = id
        ended = Shared(terminal)
        asked = request?.fetch
        losses = request?.losses ?? 0
    }

    /// The terminal.
    public var terminal: Terminal { ended.value }

    /// The request; nil for a request of another client.
    public var fetch: Fetch? { asked?.value }

    /// Handler and ID of the request.
    public var key: RequestKey { RequestKey(ended.value.handler, ended.value.request) }

    /// Whether the body is a file, so that the consumer must finish the delivery.
    public var isFile: Bool { terminal.response?.file != nil }
}
