internal import EarshotWire

/// One worker as the broker sees it.
struct WorkerSession {
    /// `joining -> ready -> draining`; a worker that leaves is dropped.
    enum Phase: String {
        /// Connected, READY not yet accepted.
        case joining
        case ready
        /// Finishes what it runs and gets nothing new.
        case draining
    }

    /// An attempt that runs alone because an earlier worker died while it ran the same flight.
    struct Isolation {
        let attempt: AttemptID
        /// End of the time in which the worker gets no other work.
        let end: Tick
        /// When the worker was asked for a sign of life after `end`; nil before.
        var askedAt: Tick?
    }

    /// A worker's hold on an attempt.
    struct Lease {
        var origin: Int32
        /// Whether it is of class `high`, for whom slots are kept.
        let isHigh: Bool
        /// The flight by number; -1 while nobody has asked for it of this broker, and once nobody wants it and the
        /// worker was told to stop.
        var flight: Int32
        /// What it fetches, while it is an earlier broker's and nobody has asked for it of this one.
        var orphan: FlightIdentity?
        var startedAt: Tick
        /// When the worker told this broker of it; nil for an attempt of this broker's own.
        var heldAt: Tick?
        /// Decoded bytes its JOB allowed, or its HOLDS said; nil for any number.
        let allowedBytes: Int?
        /// What it may bring now: it may have been raised since.
        var maxBytes: Int?
        /// Decoded bytes it has brought so far.
        var receivedBytes = 0
        /// Bytes of the whole, as far as known.
        var totalBytes: Int?
        /// The file its body grows in; nil before it is known.
        var part: GrowingPart?
        /// Bytes of that file that count as in the spool.
        var growingBytes = 0
        /// Whether its JOB gave it that file to go on with.
        var isResuming = false
        /// What the broker found in that file when it took it back.
        var keptBytes: Int?
        /// What was asked for, once nobody wants it.
        var abandoned: AbandonedFlight?

        init(origin: Int32, isHigh: Bool, flight: Int32, startedAt: Tick, maxBytes: Int?) {
            self.origin = origin
            self.isHigh = isHigh
            self.flight = flight
            self.startedAt = startedAt
            allowedBytes = maxBytes
            self.maxBytes = maxBytes
        }
    }

    var id: WorkerID
    var phase = Phase.joining
    var pid = 0
    /// What it fetches, by number; none for one that fetches nothing for us.
    var pools: [Int32] = []
    /// Transfers at once that it last said it would run.
    private(set) var offered = 0
    /// Transfers at once it was told to run; nil if that is its own affair.
    private(set) var wish: Int?
    /// The most it may hold: its slots or, after they became fewer, what it has not ended since.
    private(set) var ceiling = 0
    /// By their names, of which those that are taken over from an earlier broker are that one's.
    var leases = LeaseTable()
    /// Attempts of earlier brokers' lives it holds and has not told of, or is to stop: they take slots until they end.
    var foreign: Set<AttemptID> = []
    /// Those of them whose HOLDS is still to come. Until then it gets no work: it could be its own transfer again.
    var untold: Set<AttemptID> = []
    var cancelling = 0
    /// The suspect that it runs alone; nil for a worker that takes other work.
    var isolation: Isolation?
    /// Whether it runs suspects, and takes no other work until the last of them is cleared.
    var isQuarantine = false
    /// Leases of lower classes than `high`.
    var lower = 0
    var lastHeard: Tick
    /// Whether it is told when the broker drains, though it is its user's own.
    var hearsDrain = false
    /// Whether it can speak HTTP/2.
    var speaksHTTP2 = false
    /// Whether a timer for its signs of life runs.
    var isWatched = false
    /// When it was asked for a sign of life; nil when it owes none.
    var askedAt: Tick?

    /// Its leases in an order that is the same in each run: what follows from them is told in it.
    var leasesInOrder: [(key: AttemptID, value: Lease)] {
        leases.sorted { left, right in
            (left.value.flight, left.key.flight, left.key.broker.rawValue)
                < (right.value.flight, right.key.flight, right.key.broker.rawValue)
        }
    }

    /// Whether it has something to end.
    var isBusy: Bool { !leases.isEmpty || !foreign.isEmpty }

    @inline(__always)
    var slots: Int { min(offered, wish ?? offered) }

    @inline(__always)
    var freeSlots: Int {
        isQuarantine || phase != .ready ? 0 : unusedSlots
    }

    /// Slots without a transfer, for suspects too.
    @inline(__always)
    var unusedSlots: Int { untold.isEmpty ? max(0, slots - leases.count - foreign.count) : 0 }

    /// Whether it runs no transfer.
    var isEmpty: Bool { leases.isEmpty && foreign.isEmpty }

    /// It said how many transfers it runs. One that fetches nothing for us stays with none.
    mutating func offers(_ slots: Int) {
        offered = pools.isEmpty ? 0 : slots
        lowerCeiling()
    }

    mutating func wishFor(_ slots: Int?) {
        wish = slots
        lowerCeiling()
    }

    /// To be called when its slots change, and whenever a lease has ended: what is over the slots drains.
    mutating func lowerCeiling() {
        ceiling = max(slots, leases.count)
    }
}
