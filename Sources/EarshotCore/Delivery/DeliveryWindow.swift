internal import DequeModule

/// Delivery queue of one subscriber: its unacknowledged terminals in order of their sequence numbers. A subscriber that
/// reads slowly fills its window; nothing more is sent then, and its transfers stop.
///
/// ```
///           append            take              removeFirst
/// (absent) ───────→ waiting ───────→ sent ───────────────────→ (absent)
///                   │  ↑  ↑           │ refuse, detach
///                   │  │  └───────────┘
///                   │  └─ countLast: its outcome counts towards the bounds
///                   │ withdrawNext
///                   └──────────→ (absent), or `withdrawn` if an earlier connection had its number
/// ```
///
/// The sequence number of a withdrawn entry may still be acknowledged. A withdrawal checks the waiting entries in
/// slices, and nothing is sent until it ends. Terminals are sent while the window is open and has room. One that has to wait counts towards the bounds: an outcome that several of them share counts once. The
/// phases of the window; all transitions go through `enter`:
///
/// ```
///             attach           refuse
///  detached ─────────→ open ⇄ blocked
///      ↑                 │       │     unblock
///      └───── detach ────┴───────┘
///  any of them ── end ──→ ended
/// ```
package struct DeliveryWindow {
    package enum Phase: UInt8 {
        /// No connection, or HELLO not received yet.
        case detached
        case open
        /// The socket refused a terminal and has not become writable since.
        case blocked
        /// The session has ended and its terminals are being removed.
        case ended
    }

    /// Bytes of one terminal, or of all due ones.
    struct Weight: Equatable {
        /// Maximum bytes counted for the body of one terminal, as many as `CoreLimits.stalledBytes`. Terminals have
        /// 32-bit numbers in two tables, so the sum stays below 2^63.
        private static let mostBodyBytes = 1 << 30

        /// URLs and tags of owed failures.
        private(set) var texts: Int
        private(set) var bodies: Int
        /// Header fields and URLs of responses, and those of `bodies` that may be in memory.
        private(set) var inMemory: Int

        init(texts: Int = 0, bodies: Int = 0, inMemory: Int = 0) {
            self.texts = texts
            self.bodies = min(bodies, Self.mostBodyBytes)
            self.inMemory = inMemory
        }

        /// Weight of a terminal with a response.
        ///
        /// - Parameters:
        ///   - isWarm: whether the terminal has no body.
        ///   - memoryBodyBytes: largest body that may be in memory.
        init(_ response: borrowing Outcome.Response, isWarm: Bool, memoryBodyBytes: Int) {
            let bodies = isWarm ? 0 : response.length
            let rest = response.fields.count + response.url.utf8.count
            self.init(bodies: bodies, inMemory: rest + (bodies <= memoryBodyBytes ? bodies : 0))
        }

        static func += (left: inout Weight, right: Weight) {
            left.texts += right.texts
            left.bodies += right.bodies
            left.inMemory += right.inMemory
        }

        static func -= (left: inout Weight, right: Weight) {
            left.texts -= right.texts
            left.bodies -= right.bodies
            left.inMemory -= right.inMemory
        }
    }

    /// Outcome that the window counts, and the bytes of its header fields.
    struct CountedOutcome: Equatable {
        let outcome: Handle<Outcome>
        let fieldBytes: Int
    }

    /// Bounds of the terminals due to one subscriber.
    struct Bounds {
        let terminals: Int
        let outcomes: Int
        /// Header fields, URLs and tags in memory.
        let bytes: Int

        init(terminals: Int, outcomes: Int, bytes: Int) {
            self.terminals = terminals
            self.outcomes = outcomes
            self.bytes = bytes
        }

        init(_ limits: borrowing CoreLimits) {
            self.init(terminals: limits.dueDeliveries, outcomes: limits.dueOutcomes, bytes: limits.dueBytes)
        }
    }

    /// Interval in which a subscriber with many bytes due must acknowledge a terminal.
    struct Watch {
        /// Distinguishes its timer from those of other watches.
        let serial: UInt64
        /// Value of `acknowledged` when the watch began.
        fileprivate let acknowledged: UInt64
    }

    /// Check of the entries that waited when it began.
    private struct Withdrawal {
        /// Index of the next entry to check.
        var nextIndex: Int
        /// Index after the last entry to check. Terminals that become due later are behind it, and stay.
        var end: Int
    }

    /// Terminals, and withdrawn ones. The first `sent` of them were sent over the current connection.
    private(set) var entries: Deque<DueTerminal> = []
    private(set) var sent = 0
    /// Number of entries, from the first, that an earlier connection sent. They keep their sequence numbers.
    private(set) var numberedCount = 0
    /// Sequence number of the latest acknowledged terminal.
    private(set) var acknowledged: UInt64
    /// Number of terminals in `entries`, without withdrawn ones.
    package private(set) var count = 0
    private(set) var weight = Weight()
    /// Counted outcomes, each with the number of entries that share it.
    private(set) var outcomes: [Handle<Outcome>: Int32] = [:]
    /// Header fields of the counted outcomes, in bytes.
    private(set) var fieldBytes = 0
    private(set) var watch: Watch?
    package private(set) var phase = Phase.detached
    /// Withdrawal under way.
    private var withdrawal: Withdrawal?
    /// Number of `withdrawn` entries before the next one to check. They disappear at the end of the withdrawal.
    private var vacantCount = 0
    /// Maximum number of unacknowledged sent terminals.
    package private(set) var size = 0

    /// - Parameter sequence: the last sequence number that the connection used before.
    init(after sequence: UInt64 = 0) {
        acknowledged = sequence
    }

    // MARK: Queries

    /// Number of entries that were not sent over the current connection.
    var waiting: Int { entries.count - sent - vacantCount }

    /// Whether a withdrawal is under way.
    var isWithdrawing: Bool { withdrawal != nil }

    /// Whether no further terminal may be sent.
    var isFull: Bool { phase != .open || sent >= size || isWithdrawing }

    /// Sequence number that precedes the next reply.
    var lastSequence: UInt64 { acknowledged + UInt64(phase == .detached ? numberedCount : sent) }

    /// Highest sequence number that any connection of the session has sent.
    var lastReceived: UInt64 { acknowledged + UInt64(max(sent, numberedCount)) }

    /// Whether the subscriber's backpressure stops transfers that only it requested. While it is detached the size of
    /// its window bounds the terminals due.
    package var isClosed: Bool {
        switch phase {
        case .open, .detached: count >= size
        case .blocked, .ended: true
        }
    }

    /// Whether so much is due that the subscriber must have stopped reading.
    func isOverdue(_ bounds: Bounds) -> Bool {
        count > bounds.terminals || outcomes.count > bounds.outcomes || fieldBytes + weight.texts >= bounds.bytes
    }

    /// Whether a terminal is due. O(entries).
    func contains(_ terminal: DueTerminal) -> Bool { entries.contains(terminal) }

    /// The first terminal, if this sequence number acknowledges it.
    func first(upTo sequence: UInt64) -> DueTerminal? { acknowledged < sequence ? entries.first : nil }

    /// The entry with this sequence number; nil if no connection has sent it or it was acknowledged.
    func entry(_ sequence: UInt64) -> DueTerminal? {
        guard sequence > acknowledged, sequence <= lastReceived else { return nil }
        return entries[Int(sequence - acknowledged) - 1]
    }

    // MARK: Terminals

    /// - Parameter outcome: outcome of an owed failure; nil for all others.
    mutating func append(_ terminal: DueTerminal, _ weight: Weight, counting outcome: CountedOutcome? = nil) {
        entries.append(terminal)
        count += 1
        self.weight += weight
        if let outcome { countOutcome(outcome) }
    }

    /// Replaces the last terminal, which was just appended and waits, by the entry with which it counts.
    ///
    /// - Parameter weight: weight of that entry in addition to the weight of the last one.
    mutating func countLast(as entry: DueTerminal, _ weight: Weight, _ outcome: CountedOutcome) {
        entries[entries.count - 1] = entry
        self.weight += weight
        countOutcome(outcome)
    }

    private mutating func countOutcome(_ outcome: CountedOutcome) {
        let holders = outcomes[outcome.outcome] ?? 0
        if holders == 0 { fieldBytes += outcome.fieldBytes }
        outcomes[outcome.outcome] = holders + 1
    }

    private mutating func uncountOutcome(_ outcome: CountedOutcome) {
        guard let holders = outcomes[outcome.outcome] else {
            preconditionFailure("outcome \(outcome.outcome) is not counted")
        }
        outcomes[outcome.outcome] = holders > 1 ? holders - 1 : nil
        if holders == 1 { fieldBytes -= outcome.fieldBytes }
        // Releases the capacity that very many outcomes needed.
        if outcomes.isEmpty { outcomes = [:] }
    }

    /// Takes the next entry to send, if the window has room. The caller skips a withdrawn one.
    mutating func take() -> (entry: DueTerminal, sequence: UInt64)? {
        guard sent < entries.count, !isFull else { return nil }
        sent += 1
        return (entries[sent - 1], acknowledged + UInt64(sent))
    }

    /// Removes the first terminal, which was acknowledged or lost, and the withdrawn ones that follow it.
    ///
    /// - Parameter outcome: its outcome if it counts; nil for an entry that does not.
    mutating func removeFirst(_ weight: Weight, counting outcome: CountedOutcome?) {
        count -= 1
        self.weight -= weight
        if let outcome { uncountOutcome(outcome) }
        popFirst()
        dropWithdrawn()
    }

    private mutating func dropWithdrawn() { while numberedCount > 0, entries.first == .withdrawn { popFirst() } }

    private mutating func popFirst() {
        entries.removeFirst()
        sent = max(0, sent - 1)
        numberedCount = max(0, numberedCount - 1)
        acknowledged += 1
        guard let withdrawal else { return }
        self.withdrawal = Withdrawal(nextIndex: max(0, withdrawal.nextIndex - 1), end: max(0, withdrawal.end - 1))
    }

    // MARK: Withdrawal

    /// Begins a withdrawal among the terminals that wait. Nothing is sent until it ends.
    ///
    /// - Parameter sequence: the last sequence number of which terminals are checked; nil for all.
    mutating func beginWithdrawal(upTo sequence: UInt64? = nil) {
        precondition(!isWithdrawing, "two withdrawals from one window")
        let end = sequence.map { $0 > acknowledged ? Int(min($0 - acknowledged, UInt64(entries.count))) : 0 }
        let withdrawal = Withdrawal(nextIndex: sent, end: end ?? entries.count)
        if withdrawal.nextIndex < withdrawal.end { self.withdrawal = withdrawal }
    }

    /// Next entry to check, for `keepNext` or `withdrawNext`; nil if there is none.
    var nextToCheck: DueTerminal? {
        guard let withdrawal, withdrawal.nextIndex < withdrawal.end else { return nil }
        return entries[withdrawal.nextIndex]
    }

    /// Keeps the entry that was checked.
    mutating func keepNext() {
        guard let next = withdrawal?.nextIndex else { return }
        if vacantCount > 0 { entries.swapAt(next, next - vacantCount) }
        withdrawal?.nextIndex += 1
    }

    /// Withdraws the terminal that was checked.
    ///
    /// - Parameter outcome: its outcome if it counts; nil for an entry that does not.
    mutating func withdrawNext(_ weight: Weight, counting outcome: CountedOutcome?) {
        guard let next = withdrawal?.nextIndex else { return }
        count -= 1
        self.weight -= weight
        if let outcome { uncountOutcome(outcome) }
        entries[next] = .withdrawn
        if next >= numberedCount { vacantCount += 1 }
        withdrawal?.nextIndex += 1
        dropWithdrawn()
    }

    /// Ends the withdrawal. Entries that were not checked stay.
    mutating func endWithdrawal() {
        guard let next = withdrawal?.nextIndex else { return }
        withdrawal = nil
        removeVacant(before: next)
    }

    private mutating func removeVacant(before next: Int) {
        entries.removeSubrange(next - vacantCount..<next)
        vacantCount = 0
    }

    /// Lets the withdrawal under way check all entries that wait, since some that were sent wait again.
    private mutating func restartWithdrawal() {
        guard let withdrawal, sent < withdrawal.nextIndex - vacantCount else { return }
        self.withdrawal = Withdrawal(nextIndex: sent, end: withdrawal.end - vacantCount)
        removeVacant(before: withdrawal.nextIndex)
    }

    // MARK: Connections

    /// Opens the window for a new connection.
    mutating func attach(size: Int) {
        enter(.open)
        self.size = size
    }

    /// Detaches a lost connection. The next one gets all unacknowledged terminals again.
    mutating func detach() {
        enter(.detached)
        numberedCount = max(numberedCount, sent)
        sent = 0
    }

    /// Blocks the window at a terminal that the socket did not take. That terminal and later ones count as unsent.
    mutating func refuse(_ sequence: UInt64) {
        guard sequence > acknowledged, phase == .open || phase == .blocked else { return }
        enter(.blocked)
        sent = min(sent, Int(sequence - acknowledged) - 1)
        restartWithdrawal()
    }

    /// Opens the window again after the socket became writable.
    ///
    /// - Returns: whether the window was blocked.
    mutating func unblock() -> Bool {
        guard phase == .blocked else { return false }
        enter(.open)
        return true
    }

    /// Ends the session. The caller removes its terminals from the front.
    mutating func end() {
        enter(.ended)
        endWithdrawal()
        sent = 0
        watch = nil
    }

    private mutating func enter(_ next: Phase) {
        precondition(Self.isLegal(from: phase, to: next), "a delivery window goes from \(phase) to \(next)")
        phase = next
    }

    /// Whether the diagram has this transition. A blocked window may be blocked again.
    static func isLegal(from: Phase, to: Phase) -> Bool {
        switch to {
        case .detached: from == .open || from == .blocked
        case .open: from == .detached || from == .blocked
        case .blocked: from == .open || from == .blocked
        case .ended: from != .ended
        }
    }

    // MARK: Slow readers

    /// Whether the bytes due require a watch and none runs.
    func isUnwatched(stalledBytes: Int) -> Bool { weight.bodies >= stalledBytes && watch == nil }

    mutating func beginWatch(_ serial: UInt64) { watch = Watch(serial: serial, acknowledged: acknowledged) }

    /// Ends the interval of a watch.
    ///
    /// - Parameter isReading: whether the subscriber has read a part of a body during the watch.
    /// - Returns: whether the subscriber has stopped reading. The watch then stays set, so that no other begins.
    mutating func endWatch(stalledBytes: Int, isReading: Bool = false) -> Bool {
        guard weight.bodies < stalledBytes || isReading || acknowledged != watch?.acknowledged else { return true }
        watch = nil
        return false
    }

    // MARK: Memory and checks

    /// Releases the storage of an empty queue.
    mutating func releaseRoom() { entries.releaseRoomIfEmpty() }

    /// - Returns: a sentence for each violated invariant.
    func checkInvariants() -> [String] {
        var faults: [String] = []
        func check(_ holds: Bool, _ fault: @autoclosure () -> String) { if !holds { faults.append(fault()) } }
        let terminals = entries.filter { $0 != .withdrawn }
        check(count == terminals.count, "10: \(terminals.count) terminals are due, not \(count)")
        check(Set(terminals).count == terminals.count, "2: a terminal is due twice")
        check(max(sent, numberedCount) <= entries.count, "1: \(sent) of \(entries.count) terminals are sent")
        let next = withdrawal?.nextIndex ?? 0
        let gap = next - vacantCount..<next
        check(
            numberedCount == 0 || entries.first != .withdrawn, "1: a withdrawn terminal awaits an acknowledgement")
        check(
            entries.indices.allSatisfy { $0 < numberedCount || (entries[$0] == .withdrawn) == gap.contains($0) },
            "1: a withdrawn terminal has a number that no connection used")
        check(
            gap.isEmpty || gap.lowerBound >= max(sent, numberedCount) && gap.upperBound <= entries.count,
            "10: \(vacantCount) vacant entries are among those that were sent")
        check(sent == 0 || phase == .open || phase == .blocked, "1: terminals are sent without a connection")
        check(sent <= size, "11: \(sent) terminals are sent, in a window of \(size)")
        check(phase != .ended || watch == nil, "2: an ended session is watched")
        let counted = terminals.count { if case .uncounted = $0.kind { false } else { true } }
        let counts = outcomes.values.reduce(0) { $0 + Int($1) }
        check(counts == counted, "11: \(counted) terminals count, their outcomes are counted \(counts) times")
        check(min(weight.texts, weight.bodies, fieldBytes) >= 0, "10: a weight or count is negative")
        return faults
    }
}
