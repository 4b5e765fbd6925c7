internal import DequeModule

/// Delivery queue of one subscriber: its unacknowledged terminals in order of their sequence numbers. A subscriber that
/// reads slowly fills its window; nothing more is sent then, and its transfers stop.
///
/// ```
///           append          popNextToSend        removeFirst
/// (absent) ───────→ waiting ──────────────→ sent ────────────→ (absent)
///                   │  ↑  ↑                  │ blockAtUnsent, detach
///                   │  │  └──────────────────┘
///                   │  └─ replaceLast: its outcome counts towards the bounds
///                   │ withdrawScannedTerminal
///                   └──────────→ (absent), or `withdrawn` if an earlier connection had its number
/// ```
///
/// The sequence number of a withdrawn entry may still be acknowledged. A withdrawal checks the waiting entries in
/// slices, and nothing is sent until it ends. Terminals are sent while the window is open and has room. A terminal that
/// has to wait counts towards the bounds. An outcome that several terminals share counts once.
///
/// The phases of the window; all transitions go through `transition`:
///
/// ```
///             attach       blockAtUnsent
///  detached ─────────→ open ⇄───────────→ blocked
///      ↑                 │     unblock       │
///      └───── detach ────┴───────────────────┘
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
    struct ByteWeight: Equatable {
        /// Maximum bytes counted for the body of one terminal, as many as
        /// `CoreLimits.maximumStalledBodyBytesPerClient`. Terminals have 32-bit numbers in two tables, so the sum stays
        /// below 2^63.
        private static let maximumCountedBodyBytes = 1 << 30

        /// URLs and tags of compact failures.
        private(set) var failureTextBytes: Int
        private(set) var bodyBytes: Int
        /// Header fields and URLs of responses, and those of `bodyBytes` that may be in memory.
        private(set) var bytesInMemory: Int

        init(failureTextBytes: Int = 0, bodyBytes: Int = 0, bytesInMemory: Int = 0) {
            self.failureTextBytes = failureTextBytes
            self.bodyBytes = min(bodyBytes, Self.maximumCountedBodyBytes)
            self.bytesInMemory = bytesInMemory
        }

        /// Weight of a terminal with a response.
        ///
        /// - Parameters:
        ///   - isWarm: whether the terminal has no body.
        ///   - memoryBodyBytes: largest body that may be in memory.
        init(_ response: borrowing Outcome.Response, isWarm: Bool, memoryBodyBytes: Int) {
            let bodies = isWarm ? 0 : response.bodyLength
            let rest = response.headerFields.count + response.url.utf8.count
            self.init(bodyBytes: bodies, bytesInMemory: rest + (bodies <= memoryBodyBytes ? bodies : 0))
        }

        static func += (left: inout ByteWeight, right: ByteWeight) {
            left.failureTextBytes += right.failureTextBytes
            left.bodyBytes += right.bodyBytes
            left.bytesInMemory += right.bytesInMemory
        }

        static func -= (left: inout ByteWeight, right: ByteWeight) {
            left.failureTextBytes -= right.failureTextBytes
            left.bodyBytes -= right.bodyBytes
            left.bytesInMemory -= right.bytesInMemory
        }
    }

    /// Outcome that the window counts, and the bytes of its header fields.
    struct CountedOutcome: Equatable {
        let outcome: Handle<Outcome>
        let fieldBytes: Int
    }

    /// Bounds of the terminals due to one subscriber.
    struct DueLimits {
        let maximumTerminals: Int
        let maximumOutcomes: Int
        /// Header fields, URLs and tags in memory.
        let maximumBytes: Int

        init(maximumTerminals: Int, maximumOutcomes: Int, maximumBytes: Int) {
            self.maximumTerminals = maximumTerminals
            self.maximumOutcomes = maximumOutcomes
            self.maximumBytes = maximumBytes
        }

        init(_ limits: borrowing CoreLimits) {
            self.init(
                maximumTerminals: limits.maximumDueTerminalsPerClient,
                maximumOutcomes: limits.maximumDueOutcomesPerClient,
                maximumBytes: limits.maximumDueHeaderBytesPerClient)
        }
    }

    /// Interval in which a subscriber with many bytes due must acknowledge a terminal.
    struct StallWatch {
        /// Distinguishes its timer from those of other watches.
        let timerSerial: UInt64
        /// Value of `lastAcknowledgedSequence` when the watch began.
        fileprivate let acknowledgedAtStart: UInt64
    }

    /// Check of the entries that waited when it began.
    private struct WithdrawalScan {
        /// Index of the next entry to check.
        var nextIndex: Int
        /// Index after the last entry to check. Terminals that become due later are behind it, and stay.
        var endIndex: Int
    }

    /// Terminals, and withdrawn ones. The first `sentCount` of them were sent over the current connection.
    private(set) var dueTerminals: Deque<DueTerminal> = []
    private(set) var sentCount = 0
    /// Number of entries, from the first, that an earlier connection sent. They keep their sequence numbers.
    private(set) var previouslySentCount = 0
    /// Sequence number of the latest acknowledged terminal.
    private(set) var lastAcknowledgedSequence: UInt64
    /// Number of terminals in `dueTerminals`, without withdrawn ones.
    package private(set) var dueTerminalCount = 0
    private(set) var byteWeight = ByteWeight()
    /// Counted outcomes, each with the number of entries that share it.
    private(set) var countedOutcomes: [Handle<Outcome>: Int32] = [:]
    /// Header fields of the counted outcomes, in bytes.
    private(set) var headerFieldBytes = 0
    private(set) var stallWatch: StallWatch?
    package private(set) var phase = Phase.detached
    /// Withdrawal under way.
    private var withdrawalScan: WithdrawalScan?
    /// Number of `withdrawn` entries before the next one to check. They disappear at the end of the withdrawal.
    private var withdrawnBeforeScanCount = 0
    /// Maximum number of unacknowledged sent terminals.
    package private(set) var maximumSentTerminals = 0

    /// - Parameter sequence: the last sequence number that the connection used before.
    init(afterSequence sequence: UInt64 = 0) {
        lastAcknowledgedSequence = sequence
    }

    // MARK: Queries

    /// Number of entries that were not sent over the current connection.
    var unsentCount: Int { dueTerminals.count - sentCount - withdrawnBeforeScanCount }

    /// Whether a withdrawal is under way.
    var isWithdrawing: Bool { withdrawalScan != nil }

    /// Whether no further terminal may be sent.
    var isFull: Bool { phase != .open || sentCount >= maximumSentTerminals || isWithdrawing }

    /// Sequence number that precedes the next reply.
    var lastSequence: UInt64 { lastAcknowledgedSequence + UInt64(phase == .detached ? previouslySentCount : sentCount) }

    /// Highest sequence number that any connection of the session has sent.
    var highestSentSequence: UInt64 { lastAcknowledgedSequence + UInt64(max(sentCount, previouslySentCount)) }

    /// Whether the subscriber's backpressure stops transfers that only it requested. While it is detached the size of
    /// its window bounds the terminals due.
    package var isClosed: Bool {
        switch phase {
        case .open, .detached: dueTerminalCount >= maximumSentTerminals
        case .blocked, .ended: true
        }
    }

    /// Whether so much is due that the subscriber must have stopped reading.
    func exceedsDueLimits(_ bounds: DueLimits) -> Bool {
        dueTerminalCount > bounds.maximumTerminals || countedOutcomes.count > bounds.maximumOutcomes
            || headerFieldBytes + byteWeight.failureTextBytes >= bounds.maximumBytes
    }

    /// Whether a terminal is due. O(entries).
    func contains(_ terminal: DueTerminal) -> Bool { dueTerminals.contains(terminal) }

    /// The first terminal, if this sequence number acknowledges it.
    func firstTerminal(acknowledgedBy sequence: UInt64) -> DueTerminal? {
        lastAcknowledgedSequence < sequence ? dueTerminals.first : nil
    }

    /// The entry with this sequence number; nil if no connection has sent it or it was acknowledged.
    func sentTerminal(atSequence sequence: UInt64) -> DueTerminal? {
        guard sequence > lastAcknowledgedSequence, sequence <= highestSentSequence else { return nil }
        return dueTerminals[Int(sequence - lastAcknowledgedSequence) - 1]
    }

    // MARK: Terminals

    /// - Parameter outcome: outcome of a compact failure; nil for all others.
    mutating func append(_ terminal: DueTerminal, _ weight: ByteWeight, counting outcome: CountedOutcome? = nil) {
        dueTerminals.append(terminal)
        dueTerminalCount += 1
        self.byteWeight += weight
        if let outcome { countOutcome(outcome) }
    }

    /// Replaces the last terminal, which was just appended and waits, by the entry with which it counts.
    ///
    /// - Parameter weight: weight of that entry in addition to the weight of the last one.
    mutating func replaceLast(with entry: DueTerminal, _ weight: ByteWeight, _ outcome: CountedOutcome) {
        dueTerminals[dueTerminals.count - 1] = entry
        self.byteWeight += weight
        countOutcome(outcome)
    }

    private mutating func countOutcome(_ outcome: CountedOutcome) {
        let holders = countedOutcomes[outcome.outcome] ?? 0
        if holders == 0 { headerFieldBytes += outcome.fieldBytes }
        countedOutcomes[outcome.outcome] = holders + 1
    }

    private mutating func uncountOutcome(_ outcome: CountedOutcome) {
        guard let holders = countedOutcomes[outcome.outcome] else {
            preconditionFailure("outcome \(outcome.outcome) is not counted")
        }
        countedOutcomes[outcome.outcome] = holders > 1 ? holders - 1 : nil
        if holders == 1 { headerFieldBytes -= outcome.fieldBytes }
        // Releases the capacity that very many outcomes needed.
        if countedOutcomes.isEmpty { countedOutcomes = [:] }
    }

    /// Takes the next entry to send, if the window has room. The caller skips a withdrawn one.
    mutating func popNextToSend() -> (entry: DueTerminal, sequence: UInt64)? {
        guard sentCount < dueTerminals.count, !isFull else { return nil }
        sentCount += 1
        return (dueTerminals[sentCount - 1], lastAcknowledgedSequence + UInt64(sentCount))
    }

    /// Removes the first terminal, which was acknowledged or lost, and the withdrawn ones that follow it.
    ///
    /// - Parameter outcome: its outcome if it counts; nil for an entry that does not.
    mutating func removeFirst(_ weight: ByteWeight, counting outcome: CountedOutcome?) {
        dueTerminalCount -= 1
        self.byteWeight -= weight
        if let outcome { uncountOutcome(outcome) }
        popFirst()
        removeWithdrawnPrefix()
    }

    private mutating func removeWithdrawnPrefix() {
        while previouslySentCount > 0, dueTerminals.first == .withdrawn { popFirst() }
    }

    private mutating func popFirst() {
        dueTerminals.removeFirst()
        sentCount = max(0, sentCount - 1)
        previouslySentCount = max(0, previouslySentCount - 1)
        lastAcknowledgedSequence += 1
        guard let withdrawalScan else { return }
        self.withdrawalScan = WithdrawalScan(
            nextIndex: max(0, withdrawalScan.nextIndex - 1), endIndex: max(0, withdrawalScan.endIndex - 1))
    }

    // MARK: Withdrawal

    /// Begins a withdrawal among the terminals that wait. Nothing is sent until it ends.
    ///
    /// - Parameter sequence: the last sequence number of which terminals are checked; nil for all.
    mutating func beginWithdrawal(upTo sequence: UInt64? = nil) {
        precondition(!isWithdrawing, "two withdrawals from one window")
        let end = sequence.map {
            $0 > lastAcknowledgedSequence ? Int(min($0 - lastAcknowledgedSequence, UInt64(dueTerminals.count))) : 0
        }
        let withdrawal = WithdrawalScan(nextIndex: sentCount, endIndex: end ?? dueTerminals.count)
        if withdrawal.nextIndex < withdrawal.endIndex { self.withdrawalScan = withdrawal }
    }

    /// Next entry to check, for `keepScannedTerminal` or `withdrawScannedTerminal`; nil if there is none.
    var nextToScan: DueTerminal? {
        guard let withdrawalScan, withdrawalScan.nextIndex < withdrawalScan.endIndex else { return nil }
        return dueTerminals[withdrawalScan.nextIndex]
    }

    /// Keeps the entry that was checked.
    mutating func keepScannedTerminal() {
        guard let next = withdrawalScan?.nextIndex else { return }
        if withdrawnBeforeScanCount > 0 { dueTerminals.swapAt(next, next - withdrawnBeforeScanCount) }
        withdrawalScan?.nextIndex += 1
    }

    /// Withdraws the terminal that was checked.
    ///
    /// - Parameter outcome: its outcome if it counts; nil for an entry that does not.
    mutating func withdrawScannedTerminal(_ weight: ByteWeight, counting outcome: CountedOutcome?) {
        guard let next = withdrawalScan?.nextIndex else { return }
        dueTerminalCount -= 1
        self.byteWeight -= weight
        if let outcome { uncountOutcome(outcome) }
        dueTerminals[next] = .withdrawn
        if next >= previouslySentCount { withdrawnBeforeScanCount += 1 }
        withdrawalScan?.nextIndex += 1
        removeWithdrawnPrefix()
    }

    /// Ends the withdrawal. Entries that were not checked stay.
    mutating func endWithdrawal() {
        guard let next = withdrawalScan?.nextIndex else { return }
        withdrawalScan = nil
        removeWithdrawnEntries(before: next)
    }

    private mutating func removeWithdrawnEntries(before next: Int) {
        dueTerminals.removeSubrange(next - withdrawnBeforeScanCount..<next)
        withdrawnBeforeScanCount = 0
    }

    /// Lets the withdrawal under way check all entries that wait, since some that were sent wait again.
    private mutating func restartWithdrawal() {
        guard let withdrawalScan, sentCount < withdrawalScan.nextIndex - withdrawnBeforeScanCount else { return }
        self.withdrawalScan = WithdrawalScan(
            nextIndex: sentCount, endIndex: withdrawalScan.endIndex - withdrawnBeforeScanCount)
        removeWithdrawnEntries(before: withdrawalScan.nextIndex)
    }

    // MARK: Connections

    /// Opens the window for a new connection.
    mutating func attach(size: Int) {
        transition(to: .open)
        self.maximumSentTerminals = size
    }

    /// Detaches a lost connection. The next one gets all unacknowledged terminals again.
    mutating func detach() {
        transition(to: .detached)
        previouslySentCount = max(previouslySentCount, sentCount)
        sentCount = 0
    }

    /// Blocks the window at a terminal that the socket did not take. That terminal and later ones count as unsent.
    mutating func blockAtUnsent(sequence: UInt64) {
        guard sequence > lastAcknowledgedSequence, phase == .open || phase == .blocked else { return }
        transition(to: .blocked)
        sentCount = min(sentCount, Int(sequence - lastAcknowledgedSequence) - 1)
        restartWithdrawal()
    }

    /// Opens the window again after the socket became writable.
    ///
    /// - Returns: whether the window was blocked.
    mutating func unblock() -> Bool {
        guard phase == .blocked else { return false }
        transition(to: .open)
        return true
    }

    /// Ends the session. The caller removes its terminals from the front.
    mutating func end() {
        transition(to: .ended)
        endWithdrawal()
        sentCount = 0
        stallWatch = nil
    }

    private mutating func transition(to next: Phase) {
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
    func needsStallWatch(stalledBytes: Int) -> Bool { byteWeight.bodyBytes >= stalledBytes && stallWatch == nil }

    mutating func beginStallWatch(_ serial: UInt64) {
        stallWatch = StallWatch(timerSerial: serial, acknowledgedAtStart: lastAcknowledgedSequence)
    }

    /// Ends the interval of a watch.
    ///
    /// - Parameter isReading: whether the subscriber has read a part of a body during the watch.
    /// - Returns: whether the subscriber has stopped reading. The watch then stays set, so that no other begins.
    mutating func endStallWatch(stalledBytes: Int, isReading: Bool = false) -> Bool {
        guard
            byteWeight.bodyBytes < stalledBytes || isReading
                || lastAcknowledgedSequence != stallWatch?.acknowledgedAtStart
        else { return true }
        stallWatch = nil
        return false
    }

    // MARK: Memory and checks

    /// Releases the storage of an empty queue.
    mutating func releaseSpareCapacity() { dueTerminals.releaseSpareCapacityIfEmpty() }

    /// - Returns: a sentence for each violated invariant.
    func checkInvariants() -> [String] {
        var faults: [String] = []
        func check(_ holds: Bool, _ fault: @autoclosure () -> String) { if !holds { faults.append(fault()) } }
        let terminals = dueTerminals.filter { $0 != .withdrawn }
        check(dueTerminalCount == terminals.count, "10: \(terminals.count) terminals are due, not \(dueTerminalCount)")
        check(Set(terminals).count == terminals.count, "2: a terminal is due twice")
        check(
            max(sentCount, previouslySentCount) <= dueTerminals.count,
            "1: \(sentCount) of \(dueTerminals.count) terminals are sent")
        let next = withdrawalScan?.nextIndex ?? 0
        let gap = next - withdrawnBeforeScanCount..<next
        check(
            previouslySentCount == 0 || dueTerminals.first != .withdrawn,
            "1: a withdrawn terminal awaits an acknowledgement")
        check(
            dueTerminals.indices.allSatisfy {
                $0 < previouslySentCount || (dueTerminals[$0] == .withdrawn) == gap.contains($0)
            },
            "1: a withdrawn terminal has a number that no connection used")
        check(
            gap.isEmpty
                || gap.lowerBound >= max(sentCount, previouslySentCount) && gap.upperBound <= dueTerminals.count,
            "10: \(withdrawnBeforeScanCount) vacant entries are among those that were sent")
        check(sentCount == 0 || phase == .open || phase == .blocked, "1: terminals are sent without a connection")
        check(
            sentCount <= maximumSentTerminals,
            "11: \(sentCount) terminals are sent, in a window of \(maximumSentTerminals)")
        check(phase != .ended || stallWatch == nil, "2: an ended session is watched")
        let counted = terminals.count { if case .uncountedTerminal = $0.kind { false } else { true } }
        let counts = countedOutcomes.values.reduce(0) { $0 + Int($1) }
        check(counts == counted, "11: \(counted) terminals count, their outcomes are counted \(counts) times")
        check(
            min(byteWeight.failureTextBytes, byteWeight.bodyBytes, headerFieldBytes) >= 0,
            "10: a weight or count is negative")
        return faults
    }
}
