internal import DequeModule
internal import EarshotCore
internal import EarshotWire

/// Model's state of one client session, which may span several connections.
final class SessionRecord {
    /// Its first connection, a permanent identity.
    let id: ClientID
    /// Its connection; while disconnected the last one.
    var connection: ClientID
    let connectedAt: MonotonicTime
    /// Token for resuming it, if it has a lease.
    let token: SessionToken
    /// Principal that it belongs to; nil for the administrator.
    var principal: PrincipalName?
    /// Whether HELLO was accepted.
    var isOpen = false
    var leaseMilliseconds = 0
    /// Expiry of its lease; nil while connected.
    var awayUntil: MonotonicTime?
    /// Whether the core has requested its end.
    var isClosing = false
    /// Number of messages since its HELLO.
    var lastReceived: UInt64 = 0
    /// Number of the last message that had one, and of the present message; 0 without one.
    var lastNumber: UInt64 = 0
    var currentMessageNumber: UInt64 = 0
    /// Reply to a message with its number, which is 0 without one.
    struct KeptReply {
        let reply: ReferenceModel.Reply
        let number: UInt64
        /// Number of the last terminal before it.
        let precedingSequence: UInt64

        /// Whether it is kept after it was sent. The client asks again for the answer to a QUERY.
        var isKeptAfterSending: Bool { !reply.isAnswer && number > 0 }
    }

    /// Latest replies, oldest first.
    var replies: Deque<KeptReply> = []
    /// Highest number of a reply that is kept no longer.
    private var lastDiscardedReply: UInt64 = 0
    /// Number of the last replies not yet sent on its connection.
    var unsentReplies = 0
    /// Delivery window.
    var window = 0
    var subscribedHandlers: Set<HandlerID> = []
    var subscribedSubtrees: Set<HandlerID> = []
    /// Open requests that it owns, by serial.
    var ownedRequests: [Int: RequestRecord] = [:]
    /// Unsent terminals by name, in the order in which their requests ended.
    var unsentTerminals: [RequestName: [RequestRecord]] = [:]
    var dueTerminalCount = 0
    /// Requests that it removed and that were not requested again.
    var removedRequests: Set<RequestName> = []
    var removedHandlers: Set<HandlerID> = []
    /// Unacknowledged terminals, oldest first; nil for one withdrawn before it was sent again.
    var unacknowledgedTerminals: Deque<RequestRecord?> = []
    /// Terminals sent on an earlier connection that must be sent again first, with their numbers.
    var redeliveries: Deque<RequestRecord?> = []
    /// Last number sent on an earlier connection.
    var redeliveredSequence: UInt64 = 0
    var lastAcknowledged: UInt64 = 0
    /// Whether its socket refused a terminal and has not become writable since.
    var isBlocked = false

    init(_ id: ClientID, token: SessionToken, connectedAt: MonotonicTime) {
        self.id = id
        connection = id
        self.token = token
        self.connectedAt = connectedAt
    }

    var isAway: Bool { awayUntil != nil }

    var lastSequence: UInt64 { lastAcknowledged + UInt64(unacknowledgedTerminals.count) }

    /// Number of terminals neither acknowledged nor lost.
    var waitingTerminalCount: Int { (unacknowledgedTerminals + redeliveries).count { $0 != nil } + dueTerminalCount }

    /// Number of terminals to deliver, including numbers without a terminal, and how many of them are in transit.
    private var totalDeliveryCount: Int { unacknowledgedTerminals.count + redeliveries.count + dueTerminalCount }
    private var begunDeliveryCount: Int {
        isAway || isBlocked ? unacknowledgedTerminals.count : min(window, totalDeliveryCount)
    }

    /// Number of terminals that wait for its window.
    var unbegunDeliveryCount: Int { totalDeliveryCount - begunDeliveryCount }

    /// Whether another terminal would wait for its window.
    var isWindowFull: Bool { isAway || isBlocked || totalDeliveryCount >= window }

    /// Most bytes of header fields and URLs in waiting terminals. O(terminals).
    var waitingTextBytes: Int {
        let requests = unsentTerminals.values.joined() + (unacknowledgedTerminals + redeliveries).compactMap(\.self)
        return requests.reduce(0) { sum, request in
            guard let completion = request.ending?.completion else {
                return sum + request.fetch.url.utf8.count + Self.maximumExtraRedirectBytes
            }
            return sum + completion.httpFields.count
        }
    }

    /// Most bytes by which the target of a simulated redirect is longer than the URL of the request.
    private static let maximumExtraRedirectBytes = 60

    /// Fewest different outcomes that wait for its window. A terminal that the socket refused may not count.
    /// O(terminals that were not sent).
    var minimumWaitingOutcomes: Int {
        let responses = unsentTerminals.values.joined().compactMap { request in
            request.ending?.mayBeSpoolFull == false ? request.ending?.completion?.attempt : nil
        }
        return Set(responses).count - window
    }

    /// Whether a stored result may be delivered to it.
    func hasRoomForResult(_ limits: CoreLimits) -> Bool {
        !isClosing && unbegunDeliveryCount < max(1, limits.maximumWaitingTerminals)
    }

    /// Whether work is started for it.
    ///
    /// - Parameter count: Number of terminals of removals that the core does not yet owe it.
    func mayStartWork(withoutLast count: Int = 0) -> Bool { !isBlocked && waitingTerminalCount - count < window }

    /// Whether a terminal must be sent again now.
    var expectsRedelivery: Bool {
        guard !isAway, !isBlocked, let first = redeliveries.firstIndex(where: { $0 != nil }) else { return false }
        return unacknowledgedTerminals.count + first < window
    }

    /// Next reply to send again, or to send for the first time after such replies.
    var nextReply: KeptReply? {
        unsentReplies > 0 ? replies[replies.count - unsentReplies] : nil
    }

    /// Records the reply to the present message.
    func keepReply(_ reply: ReferenceModel.Reply, isSent: Bool) {
        let kept = KeptReply(reply: reply, number: currentMessageNumber, precedingSequence: lastSequence)
        if !isSent { unsentReplies += 1 }
        if !isSent || kept.isKeptAfterSending { replies.append(kept) }
    }

    /// Records that the next reply was sent.
    func markNextReplySent() {
        let index = replies.count - unsentReplies
        unsentReplies -= 1
        if !replies[index].isKeptAfterSending { replies.remove(at: index) }
    }

    /// Discards the oldest replies.
    func trimReplies(to most: Int) {
        unsentReplies = min(unsentReplies, most)
        while replies.count > most { lastDiscardedReply = max(lastDiscardedReply, replies.removeFirst().number) }
    }

    /// Prepares the replies for a connection that lacks them from a number on.
    /// - Returns: false if some are not available.
    func resumeReplies(from first: UInt64) -> Bool {
        guard first > lastDiscardedReply, first <= lastNumber + 1 else { return false }
        replies = replies.filter { $0.number >= first && $0.isKeptAfterSending }
        unsentReplies = replies.count
        return true
    }

    /// Counts the numbers of withdrawn terminals at the front as sent.
    func skipWithdrawnNumbers() {
        while let first = redeliveries.first, first == nil {
            redeliveries.removeFirst()
            unacknowledgedTerminals.append(nil)
        }
    }

    /// Removes and returns the first numbered terminal.
    func popNumberedTerminal() -> RequestRecord?? {
        if let first = unacknowledgedTerminals.popFirst() { return first }
        return redeliveries.popFirst()
    }

    /// Acknowledges leading numbers without a terminal.
    func acknowledgeWithdrawnNumbers() {
        while let first = unacknowledgedTerminals.first ?? redeliveries.first, first == nil {
            _ = popNumberedTerminal()
            lastAcknowledged += 1
        }
    }

    /// Handles its disconnection: sent terminals must be sent again.
    func disconnect(until: MonotonicTime) {
        awayUntil = until
        unsentReplies = 0
        redeliveredSequence = max(redeliveredSequence, lastSequence)
        redeliveries = unacknowledgedTerminals + redeliveries
        unacknowledgedTerminals = []
        isBlocked = false
    }

    /// Names of unsent terminals.
    var unsentNames: [RequestName] { Array(unsentTerminals.keys) + redeliveries.compactMap { $0?.name } }

    func expectTerminal(_ request: RequestRecord) {
        unsentTerminals[request.name, default: []].append(request)
        dueTerminalCount += 1
        removedRequests.remove(request.name)
        removedHandlers.remove(request.name.handler)
    }

    /// Withdraws unsent terminals of these names.
    func withdrawTerminals(_ names: [RequestName]) -> [RequestRecord] {
        var taken: [RequestRecord] = []
        for name in names {
            guard let requests = unsentTerminals.removeValue(forKey: name) else { continue }
            taken += requests
            removedRequests.insert(name)
        }
        dueTerminalCount -= taken.count
        for index in redeliveries.indices {
            guard let request = redeliveries[index], names.contains(request.name) else { continue }
            taken.append(request)
            redeliveries[index] = nil
            removedRequests.insert(request.name)
        }
        acknowledgeWithdrawnNumbers()
        return taken
    }
}
