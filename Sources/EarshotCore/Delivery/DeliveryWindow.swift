internal import DequeModule

/// Delivery queue of one subscriber: its unacknowledged terminals in order of their sequence numbers. A subscriber that
/// reads slowly fills its window; `BrokerCore+Delivery.swift` then sends nothing more and stops its transfers.
///
/// ```
///           append            take              removeFirst
/// (absent) ───────→ waiting ───────→ sent ───────────────────→ (absent)
///                   │  ↑  ↑           │ refuse, detach
///                   │  │  └───────────┘
///                   │  └─ replaceLast: the same terminal, elsewhere
///                   │ withdraw
///                   └──────────→ (absent), or a hole if an earlier connection had its number
/// ```
///
/// A hole is a withdrawn terminal whose sequence number the subscriber may still acknowledge. Terminals are sent while
/// the window is open and has room. The phases of the window; all transitions go through `enter`:
///
/// ```
///             attach           refuse
///  detached ─────────→ open ⇄ blocked
///      ↑                 │       │     unblock
///      └───── detach ────┴───────┘
///  any of them ── end ──→ ended
/// ```
struct DeliveryWindow {
    enum Phase: UInt8 {
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

        /// Header fields of terminals in memory.
        private(set) var fields: Int
        /// Bodies, and terminals outside of memory including their fields.
        private(set) var bodies: Int
        /// Those of `bodies` that may be in memory.
        private(set) var inMemory: Int

        init(fields: Int = 0, bodies: Int = 0, areInMemory: Bool = false) {
            self.fields = fields
            self.bodies = min(bodies, Self.mostBodyBytes)
            inMemory = areInMemory ? self.bodies : 0
        }

        static func += (left: inout Weight, right: Weight) {
            left.fields += right.fields
            left.bodies += right.bodies
            left.inMemory += right.inMemory
        }

        static func -= (left: inout Weight, right: Weight) {
            left.fields -= right.fields
            left.bodies -= right.bodies
            left.inMemory -= right.inMemory
        }
    }

    /// Interval in which a subscriber with many bytes due must acknowledge a terminal.
    struct Watch {
        /// Distinguishes its timer from those of other watches.
        let serial: UInt64
        /// Value of `acknowledged` when the watch began.
        fileprivate let acknowledged: UInt64
    }

    /// Terminals and holes. The first `sent` of them were sent over the current connection.
    private(set) var entries: Deque<DueTerminal> = []
    private(set) var sent = 0
    /// Number of entries, from the first, that an earlier connection sent. They keep their sequence numbers.
    private(set) var numbered = 0
    /// Sequence number of the latest acknowledged terminal.
    private(set) var acknowledged: UInt64
    /// Number of terminals in `entries`, without holes.
    private(set) var count = 0
    private(set) var weight = Weight()
    /// Bytes of the heaviest terminal that waits in memory. Reset when the newest terminal is the only one that waits.
    private var heaviest = 0
    private(set) var watch: Watch?
    private(set) var phase = Phase.detached
    /// Maximum number of unacknowledged sent terminals; nil if the socket's acceptance acknowledges a terminal.
    private(set) var size: Int?

    /// - Parameter sequence: the last sequence number that the connection used before.
    init(after sequence: UInt64 = 0) {
        acknowledged = sequence
    }

    // MARK: Queries

    /// Number of entries that were not sent over the current connection.
    var waiting: Int { entries.count - sent }

    /// Whether no further terminal may be sent.
    var isFull: Bool { phase != .open || sent >= size ?? .max }

    /// Sequence number that precedes the next reply.
    var lastSequence: UInt64 { acknowledged + UInt64(phase == .detached ? numbered : sent) }

    /// Highest sequence number that any connection of the session has sent.
    var lastReceived: UInt64 { acknowledged + UInt64(max(sent, numbered)) }

    /// Whether the subscriber's backpressure stops transfers that only it requested. While it is detached the size of
    /// its window bounds the terminals due. A detached subscriber without a window always stops them.
    ///
    /// - Parameter most: maximum number of terminals due without a window.
    func isClosed(dueDeliveries most: Int) -> Bool {
        switch phase {
        case .open: count >= size ?? most
        case .detached: count >= size ?? 0
        case .blocked, .ended: true
        }
    }

    /// Whether so much is due that the subscriber must have stopped reading.
    func isOverdue(terminals: Int, fieldBytes: Int) -> Bool { count >= terminals || weight.fields >= fieldBytes }

    /// Whether a terminal is due. O(entries).
    func contains(_ terminal: DueTerminal) -> Bool { entries.contains(terminal) }

    /// The first terminal, if this sequence number acknowledges it.
    func first(upTo sequence: UInt64) -> DueTerminal? { acknowledged < sequence ? entries.first : nil }

    /// The entry with this sequence number; nil if no connection has sent it or it was acknowledged.
    func entry(_ sequence: UInt64) -> DueTerminal? {
        guard sequence > acknowledged, sequence <= lastReceived else { return nil }
        return entries[Int(sequence - acknowledged) - 1]
    }

    /// Entries sent over this connection up to a sequence number; empty if that number was not sent.
    func sentEntries(upTo sequence: UInt64) -> Deque<DueTerminal>.SubSequence {
        let isSent = sequence > acknowledged && sequence <= acknowledged + UInt64(sent)
        return entries.prefix(isSent ? Int(sequence - acknowledged) : 0)
    }

    // MARK: Terminals

    mutating func append(_ terminal: DueTerminal, _ weight: Weight) {
        entries.append(terminal)
        count += 1
        self.weight += weight
    }

    /// Replaces the last terminal, which was just appended, by its copy outside of memory.
    mutating func replaceLast(_ weight: Weight, by copy: DueTerminal, _ other: Weight) {
        entries[entries.count - 1] = copy
        self.weight -= weight
        self.weight += other
    }

    /// Takes the next entry to send, if the window has room. The caller skips a hole.
    mutating func take() -> (entry: DueTerminal, sequence: UInt64)? {
        guard sent < entries.count, !isFull else { return nil }
        sent += 1
        return (entries[sent - 1], acknowledged + UInt64(sent))
    }

    /// Removes the first terminal, which was acknowledged or lost, and the holes that follow it.
    mutating func removeFirst(_ weight: Weight) {
        count -= 1
        self.weight -= weight
        popFirst()
        dropHoles()
    }

    /// Removes terminals that were not sent over this connection. O(waiting).
    ///
    /// - Parameter weigh: returns the weight of a terminal to remove; nil to keep it.
    /// - Returns: the removed terminals.
    mutating func withdraw(_ weigh: (DueTerminal) -> Weight?) -> [DueTerminal] {
        var withdrawn: [DueTerminal] = []
        var kept = Deque(entries.prefix(sent))
        for entry in entries.dropFirst(sent) {
            guard entry != .hole, let weight = weigh(entry) else {
                kept.append(entry)
                continue
            }
            withdrawn.append(entry)
            count -= 1
            self.weight -= weight
            if kept.count < numbered { kept.append(.hole) }
        }
        entries = kept
        dropHoles()
        return withdrawn
    }

    private mutating func dropHoles() { while entries.first == .hole { popFirst() } }

    private mutating func popFirst() {
        entries.removeFirst()
        sent = max(0, sent - 1)
        numbered = max(0, numbered - 1)
        acknowledged += 1
    }

    /// Whether the last terminal may stay in memory: all waiting ones, at the size of the heaviest, must fit into the
    /// bound.
    mutating func keepsLast(bytes: Int, within bound: Int) -> Bool {
        let heaviest = max(bytes, waiting > 1 ? self.heaviest : 0)
        guard heaviest <= bound / waiting else { return false }
        self.heaviest = heaviest
        return true
    }

    // MARK: Connections

    /// Opens the window for a new connection.
    mutating func attach(size: Int?) {
        enter(.open)
        self.size = size
    }

    /// Detaches a lost connection. The next one gets all unacknowledged terminals again.
    mutating func detach() {
        enter(.detached)
        numbered = max(numbered, sent)
        sent = 0
    }

    /// Blocks the window at a terminal that the socket did not take. That terminal and later ones count as unsent.
    mutating func refuse(_ sequence: UInt64) {
        guard sequence > acknowledged, phase == .open || phase == .blocked else { return }
        enter(.blocked)
        sent = min(sent, Int(sequence - acknowledged) - 1)
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
        let terminals = entries.filter { $0 != .hole }
        check(count == terminals.count, "10: \(terminals.count) terminals are due, not \(count)")
        check(Set(terminals).count == terminals.count, "2: a terminal is due twice")
        check(max(sent, numbered) <= entries.count, "1: \(sent) of \(entries.count) terminals are sent")
        check(entries.first != .hole, "1: a hole awaits an acknowledgement")
        check(!entries.dropFirst(numbered).contains(.hole), "1: a hole has a number that no connection used")
        check(sent == 0 || phase == .open || phase == .blocked, "1: terminals are sent without a connection")
        check(sent <= size ?? .max, "11: \(sent) terminals are sent, in a window of \(size ?? 0)")
        check(phase != .ended || watch == nil, "2: an ended session is watched")
        check(min(weight.fields, weight.bodies) >= 0, "10: a weight or count is negative")
        return faults
    }
}
