internal import EarshotWire

/// A program that wants things, and asks again for what it still wants when its connection broke.
struct SimulatedClient {
    /// A request of its own: handler and request ID by number.
    struct Want: Hashable, Comparable {
        var handler: Int
        var request: Int

        static func < (left: Want, right: Want) -> Bool {
            (left.handler, left.request) < (right.handler, right.request)
        }
    }

    var link: UInt64?
    /// Nil: it needs no ACK.
    var window: Int?
    var isRequestReply: Bool
    var isSlow: Bool
    /// Handlers it uses, by number.
    var handlers: [Int]
    /// Milliseconds of the lease it asks for.
    var lease: Int
    /// Of the WELCOME of its session.
    var token: SessionToken?
    /// Whether it waits for a WELCOME before it says more: it may have to say nothing again.
    var awaitsWelcome = false
    var wants: [Want: Fetch] = [:]
    /// When it first asked for each.
    var askedAt: [Want: Int64] = [:]
    /// Whether it says so when it asks again.
    let tellsAge: Bool
    /// Messages said in its session, and with which of them each request was asked for.
    var said: UInt64 = 0
    var saidAs: [Want: UInt64] = [:]
    /// Replies received in its session.
    var replies: UInt64 = 0
    /// The last terminal of its session that arrived.
    var received: UInt64 = 0
    var willAcknowledge = false
}
