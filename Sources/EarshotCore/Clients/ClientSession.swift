internal import EarshotWire

/// Session of one client: its requests, subscriptions and due terminals, over one connection, or with a lease over
/// several.
package struct ClientSession: Generational {
    /// State machine:
    ///
    /// ```
    /// joining → open  (HELLO)
    /// open → away     (the connection is lost)
    /// away → open     (another connection resumes the session)
    /// ```
    ///
    /// A session ends in any phase. It is freed then, after the removal of its requests if there are many (`hasEnded`).
    enum Phase: CaseIterable {
        /// Connected; HELLO not received yet.
        case joining
        case open
        /// Connection lost; the lease runs.
        case away
    }

    /// Its connection; the latest one while away.
    var id: ClientID
    /// Secret with which another connection resumes the session.
    var token: SessionToken
    private(set) var phase = Phase.joining
    /// Whether its HELLO timeout runs.
    var isHelloTimeoutRunning = false
    /// Duration of the lease after the loss of the connection, in milliseconds; 0 without a lease.
    var leaseMilliseconds = 0
    /// Distinguishes this session from others in the same place.
    let generation: UInt64
    /// Disconnect epoch, which its lease timer names; nil unless it is away.
    var disconnectEpoch: UInt64?
    /// Number of messages received since its HELLO, including refused ones.
    var receivedMessageCount: UInt64 = 0
    /// Numbers of its messages.
    var messageNumbers = MessageNumbers()
    /// Replies kept for the next connection; empty without a lease.
    var replies = ReplyLog()
    /// Principal of the local user at the other end of the connection.
    var user: Handle<Principal>
    /// Whether a gateway made the connection, the latest one while away. Such a connection has no rights of `user`.
    var isGateway: Bool
    /// Principal that the session belongs to.
    package var principal: Handle<Principal>
    /// Whether it has the rights of the administrator: it belongs to the administrator, and its HELLO kept the rights.
    var isAdministrator = false
    /// Open requests that it owns.
    var ownedRequests = LinkedList<Interest>()
    /// Terminals that it has not acknowledged.
    package var deliveries = DeliveryWindow()
    /// Bytes of its terminals that are charged to its principal; 0 for the administrator.
    var chargedWeight = DeliveryWindow.ByteWeight()
    /// Number of its terminals that is charged to its principal.
    var chargedTerminalCount = 0
    /// Number of flights of which stored responses are read, or looked up again, for a terminal of this client.
    var cacheReservationCount = 0
    /// Whether durable failures stay on disk after its acknowledgement.
    var keepsFailuresOnDisk = false
    /// Whether the core has requested that the shell close it.
    var isCloseRequested = false

    /// Requests whose latest PROGRESS its socket did not take, with their generations.
    var missedProgress: [Handle<Interest>: UInt64] = [:]

    init(id: ClientID, token: SessionToken, generation: UInt64, user: Handle<Principal>, isGateway: Bool) {
        self.id = id
        self.generation = generation
        self.token = token
        self.user = user
        self.isGateway = isGateway
        principal = user
    }

    /// Changes the phase. Called by `SessionTable`.
    mutating func transition(to next: Phase) {
        precondition(
            Self.isLegal(from: phase, to: next),
            "the session of connection \(id.rawValue) cannot become \(next) when it is \(phase)")
        phase = next
    }

    static func isLegal(from: Phase, to: Phase) -> Bool {
        switch (from, to) {
        case (.joining, .open), (.open, .away), (.away, .open): true
        case (.joining, _), (.open, _), (.away, _): false
        }
    }

    package var isAway: Bool { phase == .away }

    /// Whether the session has ended and is being removed.
    package var hasEnded: Bool { deliveries.phase == .ended }
}
