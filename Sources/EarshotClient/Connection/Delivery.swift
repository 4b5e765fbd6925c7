public import EarshotWire

/// A terminal as its consumer gets it.
///
/// Where the body is a file (`terminal.response?.file`), the path is good until the delivery is finished: call
/// ``ClientConnection/finish(_:)`` when done with it, or ``ClientConnection/askAgain(_:)`` when it could not be opened.
/// A delivery without a file finishes by itself unless the connection was made with `finishesNone`. Finishing the terminal
/// of a durable request (`terminal.isDurable`) removes its result from the broker's disk.
public struct Delivery: Equatable, Sendable {
    /// Names a delivery for finishing it: the number of the connection it came by, and its sequence number there.
    public struct ID: Hashable, Sendable {
        let link: UInt64
        let sequence: UInt64
    }

    public let id: ID
    private let ended: Shared<Terminal>
    private let asked: Shared<Fetch>?
    /// Times the same request's file was gone before.
    let losses: Int

    init(id: ID, _ terminal: consuming Terminal, of request: OpenRequest?) {
        self.id = id
        ended = Shared(terminal)
        asked = request?.fetch
        losses = request?.losses ?? 0
    }

    /// How it ended.
    public var terminal: Terminal { ended.value }

    /// What was asked for; nil for what somebody else asked for and this client hears as a watcher.
    public var fetch: Fetch? { asked?.value }

    /// The request that ended.
    public var key: RequestKey { RequestKey(ended.value.handler, ended.value.request) }

    /// Whether the body is a file that has to be finished.
    public var isFile: Bool { terminal.response?.file != nil }
}
