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
    var wants: [Want: Fetch] = [:]
    /// The last terminal that arrived on this connection.
    var received: UInt64 = 0
    var willAcknowledge = false
}
