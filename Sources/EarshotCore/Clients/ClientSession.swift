internal import EarshotHTTP
internal import EarshotWire

/// One client: what it wants, hears and is owed, over one connection, or with a lease over several.
struct ClientSession {
    /// `joining -> open <-> away`. A session that ends is dropped, and so is one without a lease whose connection is
    /// gone.
    enum Phase {
        /// Connected, HELLO not yet seen.
        case joining
        case open
        /// Its connection is gone, its lease runs.
        case away
    }

    /// Its connection; of one that is away the one that it had.
    var id: ClientID
    /// What another connection says to go on with it.
    var token: SessionToken
    var phase = Phase.joining
    /// Whether it has but some time left for its HELLO.
    var isGreetingDue = false
    /// How long it is kept when its connection is gone; 0 for not at all.
    var leaseMilliseconds = 0
    /// Tells this session from others that have had its number.
    let serial: UInt64
    /// The present time away, for the timer that ends it; 0 while it is connected.
    var absence: UInt64 = 0
    /// Messages taken in since its HELLO, those that were refused included.
    var heard: UInt64 = 0
    /// Its replies; empty without a lease.
    var replies = ReplyLog()
    /// Whether it can only take one answer for each message (REQ): it gets no progress.
    var isRequestReply: Bool
    var name: String?
    /// Handlers it hears, by number.
    var subscriptions: Set<Int32> = []
    /// Subtrees it hears.
    var subtrees: Set<HandlerID> = []
    /// Requests it asked for that have no terminal yet.
    var owned = Chain()
    /// Terminals that it has not acknowledged.
    var deliveries = DeliveryWindow()
    /// Whether the shell was asked to close it.
    var isClosing = false

    /// Requests whose last progress its socket did not take, with their serial numbers.
    var missedProgress: [Int32: UInt64] = [:]
    /// Requests it owns that count as removed and are not purged yet.
    var purging = 0

    init(id: ClientID, token: SessionToken, serial: UInt64, isRequestReply: Bool) {
        self.id = id
        self.serial = serial
        self.token = token
        self.isRequestReply = isRequestReply
    }

    var isAway: Bool { phase == .away }

    /// Whether the session has ended, and its requests are being purged.
    var isGone: Bool { deliveries.phase == .ended }
}

/// A handler's name, who listens and what is wanted under it.
struct HandlerEntry {
    var id: HandlerID
    var root: Int32
    /// Interests whose IDs are taken.
    var interests = Chain()
    /// Interests that still name it, taken IDs or not.
    var references = 0
    /// Clients subscribed to exactly this handler, by number.
    var subscribers: [Int32] = []
    /// Its requests that have not ended, by owner.
    var owners = OwnerCounts()
    /// What became of it when it was removed with very much; nil for one that has its name.
    var purge: Purge?
    /// Open requests that belong to the handler itself.
    var ownRequests = 0
    /// Durable requests whose outcomes wait on the disk for a listener.
    var resting = Chain()
    /// Terminals that wait for a listener.
    var held = 0
    /// The present time without listeners, for the timer that ends it; 0 while somebody listens.
    var absence: UInt64 = 0
    var requests = Ledger.Requests()
}

/// A handler's first segment: one application.
struct RootEntry {
    var name: String
    /// Handlers with this first segment, those being purged included.
    var handlers = 0
    /// The cookies of those of its requests that take part in them; nil if none ever did.
    var jar: CookieJar?
}
