package import EarshotWire
internal import OrderedCollections

/// Name, subscribers and requests of one handler: a record of `HandlerRegistry`.
package struct HandlerEntry {
    /// State machine:
    ///
    /// ```
    /// named → removing → removed
    /// ```
    ///
    /// A handler that is `named` or `removed` is freed when it is idle.
    enum Phase: Equatable {
        /// Lookups of its name find it.
        case named
        /// Was removed with many requests, which are doomed. Its name belongs to another record.
        case removing(HandlerRemoval)
        /// All its requests have ended. Terminals refer to it until their acknowledgement.
        case removed
    }

    package let id: HandlerID
    let rootHandle: Handle<RootEntry>
    /// The principal that it belongs to.
    package let principal: Handle<Principal>
    private(set) var phase = Phase.named
    /// Requests whose IDs are taken, in the order of their arrival.
    package var interests = LinkedList<Interest>()
    /// Number of requests and waiting terminals that refer to this record.
    var referenceCount = 0
    /// Clients subscribed to exactly this handler.
    var subscribers: [Handle<ClientSession>] = []
    /// Number of open requests that belong to the handler itself.
    var openHandlerOwnedRequests = 0
    /// Durable requests whose outcomes are on disk, waiting for a subscriber.
    var durableRequestsAwaitingSubscriber = LinkedList<Interest>()
    /// Number of outcomes held until there is a subscriber.
    var heldOutcomeCount = 0
    /// Epoch without subscribers, which its grace timer names; nil while it has a subscriber.
    var subscriberAbsenceEpoch: UInt64?
    package var requestCounts = Ledger.Requests()

    init(_ key: HandlerKey, root: Handle<RootEntry>) {
        id = key.id
        principal = key.principal
        self.rootHandle = root
    }

    var key: HandlerKey { HandlerKey(principal, id) }

    var isNamed: Bool { if case .named = phase { true } else { false } }

    var isRemoving: Bool { if case .removing = phase { true } else { false } }

    /// Its removal; nil in other phases.
    var removal: HandlerRemoval? { if case .removing(let removal) = phase { removal } else { nil } }

    /// Changes the phase. All changes go through here.
    mutating func transition(to next: Phase) {
        precondition(Self.isLegal(from: phase, to: next), "handler \(id) cannot become \(next) when it is \(phase)")
        phase = next
    }

    static func isLegal(from: Phase, to: Phase) -> Bool {
        switch (from, to) {
        // The same phase again: a subscriber was withdrawn.
        case (.named, .removing), (.removing, .removing), (.removing, .removed): true
        case (.named, _), (.removing, _), (.removed, _): false
        }
    }

    /// Adds an open request of this owner; nil for one that belongs to the handler itself.
    mutating func addOpenRequest(ofOwner owner: Handle<ClientSession>?) {
        if owner == nil { openHandlerOwnedRequests += 1 }
    }

    /// Moves a request of this owner from pending to its result.
    mutating func requestEnded(owner: Handle<ClientSession>?, _ change: (inout Ledger.Requests) -> Void) {
        requestCounts.pending -= 1
        change(&requestCounts)
        removeOpenRequest(ofOwner: owner)
    }

    /// Removes an open request of this owner.
    mutating func removeOpenRequest(ofOwner owner: Handle<ClientSession>?) {
        if owner == nil { openHandlerOwnedRequests -= 1 }
    }
}

/// First segment of the handler names of one principal: one application.
struct RootEntry {
    /// See `HandlerRegistry.rootText`.
    let name: String
    /// Number of handlers with this first segment, including those being removed.
    var handlers = 0
}

/// Handlers and subtrees that one client is subscribed to.
struct ClientSubscriptions: Equatable {
    var handlers: Set<Handle<HandlerEntry>> = []
    var subtrees: OrderedSet<HandlerKey> = []

    var count: Int { handlers.count + subtrees.count }
}

/// Name of a handler in the namespace of its principal. Equal names of two principals are different handlers.
package struct HandlerKey: Hashable {
    /// Its principal.
    package let principal: Handle<Principal>
    package let id: HandlerID

    package init(_ principal: Handle<Principal>, _ id: HandlerID) {
        self.principal = principal
        self.id = id
    }

    /// Names of all subtrees that contain this handler, shortest first.
    var enclosingSubtreeKeys: [HandlerKey] { id.ancestorSubtrees.map { HandlerKey(principal, $0) } }

    package static func == (left: HandlerKey, right: HandlerKey) -> Bool {
        left.principal == right.principal && left.id == right.id
    }

    /// Skips the principal of a bus with one user, since names alone spread well there.
    package func hash(into hasher: inout Hasher) {
        hasher.combine(id)
        if principal != PrincipalTable.administrator { hasher.combine(principal) }
    }
}
