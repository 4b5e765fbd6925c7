internal import DequeModule

/// Delivery queue of one subscriber: terminals that it has not acknowledged, oldest first, each with the next sequence
/// number.
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
/// A hole keeps a sequence number that the subscriber may acknowledge. Terminals are sent while the window is open and
/// has room. The phases of the window, whose transitions `enter` makes:
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
        /// No connection that has said HELLO.
        case detached
        case open
        /// The socket has refused a terminal and has not been writable since.
        case blocked
        /// The session has ended; its terminals are being removed.
        case ended
    }

    /// Bytes of a terminal, or of all that are due.
    struct Weight: Equatable {
        /// Header fields of terminals in memory.
        var fields = 0
        /// Bodies, and all of the terminals outside of memory.
        var bodies = 0

        static func += (left: inout Weight, right: Weight) {
            left.fields += right.fields
            left.bodies += right.bodies
        }

        static func -= (left: inout Weight, right: Weight) {
            left.fields -= right.fields
            left.bodies -= right.bodies
        }
    }

    /// Time in which a subscriber with many bytes due has to acknowledge a terminal.
    struct Watch {
        /// Distinguishes its timer from those of other watches.
        let serial: UInt64
        /// Sequence number acknowledged when it began.
        fileprivate let acknowledged: UInt64
    }

    /// Terminals and holes; the first `sent` of them have been sent over this connection.
    private(set) var entries: Deque<DueTerminal> = []
    private(set) var sent = 0
    /// Number of the first entries that were sent over an earlier connection, and keep their sequence numbers.
    private(set) var numbered = 0
    /// Sequence number of the last terminal that was acknowledged.
    private(set) var acknowledged: UInt64
    /// Number of terminals, without holes.
    private(set) var count = 0
    /// Number of terminals that a purge will append.
    private(set) var announced = 0
    private(set) var weight = Weight()
    /// Bytes in memory of the heaviest terminal that waits, since some began to wait.
    private var heaviest = 0
    private(set) var watch: Watch?
    private(set) var phase = Phase.detached
    /// Maximum number of terminals sent and not acknowledged. Nil: a terminal that the socket took is acknowledged.
    private(set) var size: Int?

    /// - Parameter sequence: the last one that the connection used before.
    init(after sequence: UInt64 = 0) {
        acknowledged = sequence
    }

    // MARK: Queries

    /// Number of entries that have not been sent.
    var waiting: Int { entries.count - sent }

    /// Whether no terminal may be sent.
    var isFull: Bool { phase != .open || sent >= size ?? .max }

    /// Terminals not acknowledged, those that a purge will append included.
    var owed: Int { count + announced }

    /// Sequence number after which the next reply belongs.
    var lastSequence: UInt64 { acknowledged + UInt64(phase == .detached ? numbered : sent) }

    /// Highest sequence number that a connection of the session has received.
    var lastReceived: UInt64 { acknowledged + UInt64(max(sent, numbered)) }

    /// Whether no transfer should start that only this subscriber wants. While it is detached its window bounds the
    /// terminals due; without a window nothing does.
    ///
    /// - Parameter most: maximum number of terminals due without a window.
    func isClosed(dueDeliveries most: Int) -> Bool {
        switch phase {
        case .open: owed >= size ?? most
        case .detached: owed >= size ?? 0
        case .blocked, .ended: true
        }
    }

    /// Whether so much is due that the subscriber must have stopped reading. Terminals that a purge will append do not
    /// count: it may read them as fast as they come.
    func isOverdue(terminals: Int, fieldBytes: Int) -> Bool { count >= terminals || weight.fields >= fieldBytes }

    /// O(entries).
    func contains(_ terminal: DueTerminal) -> Bool { entries.contains(terminal) }

    /// The first terminal, if this sequence number acknowledges it.
    func first(upTo sequence: UInt64) -> DueTerminal? { acknowledged < sequence ? entries.first : nil }

    /// Entries sent over this connection, up to a sequence number; none if that one has not been sent.
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

    /// Replaces the last terminal, which was just appended, by its copy elsewhere.
    mutating func replaceLast(_ weight: Weight, by copy: DueTerminal, _ other: Weight) {
        entries[entries.count - 1] = copy
        self.weight -= weight
        self.weight += other
    }

    /// Takes the next entry to send, if the window has room. A hole takes its turn, too.
    mutating func take() -> (entry: DueTerminal, sequence: UInt64)? {
        guard sent < entries.count, !isFull else { return nil }
        sent += 1
        return (entries[sent - 1], acknowledged + UInt64(sent))
    }

    /// Removes the first terminal, which was acknowledged or lost, and the holes behind it.
    mutating func removeFirst(_ weight: Weight) {
        count -= 1
        self.weight -= weight
        popFirst()
        dropHoles()
    }

    /// Removes terminals that have not been sent over this connection. O(waiting).
    ///
    /// - Parameter weigh: nil for a terminal that stays.
    /// - Returns: the removed ones.
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

    /// Whether the last terminal may wait in memory: all that wait could be as heavy as the heaviest, within a bound.
    mutating func keepsLast(bytes: Int, within bound: Int) -> Bool {
        let heaviest = max(bytes, waiting > 1 ? self.heaviest : 0)
        guard heaviest <= bound / waiting else { return false }
        self.heaviest = heaviest
        return true
    }

    /// Counts terminals that a purge will append.
    mutating func announce(_ count: Int) { announced += count }

    /// Counts announced terminals no longer: they are appended now, or withdrawn.
    mutating func retract(_ count: Int) { announced -= count }

    // MARK: Connections

    /// The session has a connection.
    mutating func attach(size: Int?) {
        enter(.open)
        self.size = size
    }

    /// The connection is gone: the next one gets all terminals again.
    mutating func detach() {
        enter(.detached)
        numbered = max(numbered, sent)
        sent = 0
    }

    /// The socket took neither this terminal nor any later one.
    mutating func refuse(_ sequence: UInt64) {
        guard sequence > acknowledged, phase == .open || phase == .blocked else { return }
        enter(.blocked)
        sent = min(sent, Int(sequence - acknowledged) - 1)
    }

    /// The socket is writable again.
    ///
    /// - Returns: whether it was blocked.
    mutating func unblock() -> Bool {
        guard phase == .blocked else { return false }
        enter(.open)
        return true
    }

    /// The session ends; its terminals are removed from the front.
    mutating func end() {
        enter(.ended)
        sent = 0
        watch = nil
    }

    private mutating func enter(_ next: Phase) {
        precondition(Self.isLegal(from: phase, to: next), "a delivery window goes from \(phase) to \(next)")
        phase = next
    }

    /// Whether the diagram has this transition. A blocked socket may refuse again.
    static func isLegal(from: Phase, to: Phase) -> Bool {
        switch to {
        case .detached: from == .open || from == .blocked
        case .open: from == .detached || from == .blocked
        case .blocked: from == .open || from == .blocked
        case .ended: from != .ended
        }
    }

    // MARK: Slow readers

    /// Whether so many bytes are due that the subscriber should be watched, and is not yet.
    func isUnwatched(stalledBytes: Int) -> Bool { weight.bodies >= stalledBytes && watch == nil }

    mutating func beginWatch(_ serial: UInt64) { watch = Watch(serial: serial, acknowledged: acknowledged) }

    /// The time of a watch is over.
    ///
    /// - Returns: whether the subscriber has stopped reading. If so, no other watch begins.
    mutating func endWatch(stalledBytes: Int) -> Bool {
        guard weight.bodies < stalledBytes || acknowledged != watch?.acknowledged else { return true }
        watch = nil
        return false
    }

    // MARK: Memory and checks

    /// Releases the room of an empty queue.
    mutating func releaseRoom() { entries.releaseRoomIfEmpty() }

    /// - Returns: a sentence for each invariant that does not hold; empty if all do.
    func checkInvariants() -> [String] {
        var faults: [String] = []
        func check(_ holds: Bool, _ fault: @autoclosure () -> String) { if !holds { faults.append(fault()) } }
        let terminals = entries.filter { $0 != .hole }
        check(count == terminals.count, "10: \(terminals.count) terminals are due, not \(count)")
        check(Set(terminals).count == terminals.count, "2: a terminal is due twice")
        check(max(sent, numbered) <= entries.count, "1: \(sent) of \(entries.count) terminals are sent")
        check(entries.first != .hole, "1: a hole awaits an acknowledgement")
        check(!entries.dropFirst(numbered).contains(.hole), "1: a hole keeps a number that no connection had")
        check(sent == 0 || phase == .open || phase == .blocked, "1: terminals are sent without a connection")
        check(sent <= size ?? .max, "11: \(sent) terminals are sent, in a window of \(size ?? 0)")
        check(phase != .ended || announced == 0 && watch == nil, "2: an ended session is owed removals, or watched")
        check(min(weight.fields, weight.bodies, announced) >= 0, "10: less than nothing is due")
        return faults
    }
}
