internal import EarshotWire

/// Client program, which repeats its open requests after a disconnection.
struct SimulatedClient {
    /// One of its requests: numbers of handler and request ID.
    struct Want: Hashable, Comparable {
        var handler: Int
        var request: Int

        static func < (left: Want, right: Want) -> Bool {
            (left.handler, left.request) < (right.handler, right.request)
        }
    }

    var link: UInt64?
    /// Delivery window.
    var window: Int
    var isSlow: Bool
    /// Principal for which it acts; nil for the administrator.
    var principal: PrincipalName?
    /// Numbers of the handlers it uses.
    var handlers: [Int]
    /// Requested lease in milliseconds.
    var lease: Int
    /// Token from the WELCOME of its session.
    var token: SessionToken?
    /// Whether it awaits a WELCOME before sending more, because a resumed session may need no repetition.
    var awaitsWelcome = false
    var wants: [Want: Fetch] = [:]
    /// Numbers of the messages of its session.
    var numbers = SimulatedNumbers()
    /// Last terminal received in its session.
    var received: UInt64 = 0
    var willAcknowledge = false
}
