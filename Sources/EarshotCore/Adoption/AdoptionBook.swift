internal import EarshotWire

/// Attempts of earlier brokers, and the flights that adopt them.
///
/// Until a flight asks for the same, an attempt is an orphan. It runs in a worker, or waits as a response:
///
/// ```
///           hold             ended with a usable response
/// (absent) ─────→ running ────────────────────────────────→ responded
///    ↑               │                                          │
///    │               │ adopted by a flight (seek),              │ taken by a flight (takeResponse),
///    │               │ ended without one, giveUp, close         │ giveUp, close
///    └───────────────┴──────────────────────────────────────────┘
/// ```
///
/// `enter` is the only transition. The book accepts orphans while it is open. It sends no messages and releases no
/// bodies: each function returns the orphans that the caller stops or drops.
struct AdoptionBook {
    /// Bounds of the book.
    struct Limits: Equatable {
        /// Maximum number of flights that an orphan which comes later can be matched with.
        var seekers: Int
        /// Maximum number of bytes of responses in memory.
        var bytes: Int

        init(seekers: Int, bytes: Int) {
            self.seekers = seekers
            self.bytes = bytes
        }

        init(_ limits: CoreLimits) { self.init(seekers: limits.adopters, bytes: limits.orphanBytes) }
    }

    /// Attempt of an earlier broker that no flight has adopted.
    enum Orphan {
        /// A lease of a worker.
        case running(worker: Int32, AttemptID)
        /// A response without its URL.
        case responded(Outcome.Response)

        func isHeld(by worker: Int32, as attempt: AttemptID) -> Bool {
            guard case .running(worker, attempt) = self else { return false }
            return true
        }

        fileprivate var bytes: Int {
            if case .responded(let response) = self, response.body != nil { response.length } else { 0 }
        }
    }

    var limits: Limits
    /// Whether the book accepts orphans.
    private(set) var isOpen = false
    private(set) var orphans: [FlightIdentity: Orphan] = [:]
    /// Bytes of responses in memory.
    private(set) var bytes = 0
    /// Attempts by the flights that adopted them.
    private(set) var adopted: [Int32: AttemptID] = [:]
    /// Flights that may adopt an orphan which is not known yet.
    private var seekers: [FlightIdentity: FlightName] = [:]
    /// Flights that found a response and have not taken it.
    private var matches: [FlightName] = []

    init(limits: Limits) { self.limits = limits }

    var isEmpty: Bool { orphans.isEmpty && adopted.isEmpty }

    /// Accepts orphans from now on.
    mutating func open() { isOpen = true }

    /// Accepts no more orphans.
    ///
    /// - Returns: all orphans, in an order that is the same in each run.
    mutating func close() -> [Orphan] {
        isOpen = false
        seekers = [:]
        matches = []
        let identities = orphans.keys.sorted { ($0.high, $0.low) < ($1.high, $1.low) }
        return identities.compactMap { giveUp($0) }
    }

    // MARK: Orphans

    /// Whether an attempt of this flight may become an orphan.
    func accepts(_ identity: FlightIdentity) -> Bool { isOpen && orphans[identity] == nil }

    /// Flight to settle an orphan's identity with: the last one that sought it.
    func seeker(of identity: FlightIdentity) -> FlightName? { seekers[identity] }

    /// Makes an attempt an orphan. The book must accept its identity.
    mutating func hold(_ attempt: AttemptID, at worker: Int32, as identity: FlightIdentity) {
        enter(.running(worker: worker, attempt), identity)
    }

    /// Ends an orphan's attempt.
    ///
    /// - Parameter response: a response that a flight can use; nil if the attempt has none.
    /// - Returns: whether the response is kept.
    mutating func ended(_ identity: FlightIdentity, with response: Outcome.Response? = nil) -> Bool {
        let orphan = response.map { Orphan.responded($0) }
        let isKept = orphan.map { $0.bytes <= limits.bytes - bytes } ?? false
        enter(isKept ? orphan : nil, identity)
        return isKept
    }

    /// Removes an orphan, if there is one, to stop its attempt or drop its response.
    mutating func giveUp(_ identity: FlightIdentity) -> Orphan? {
        guard let orphan = orphans[identity] else { return nil }
        enter(nil, identity)
        return orphan
    }

    // MARK: Flights

    /// Matches a flight that is about to wait with the orphan of its identity, while the book is open. A flight whose
    /// orphan has a response is one of the `nextMatch`es.
    ///
    /// - Returns: the attempt that the flight adopts; nil if no worker runs one.
    mutating func seek(_ identity: FlightIdentity, for flight: FlightName) -> (worker: Int32, attempt: AttemptID)? {
        if seekers.count < limits.seekers || seekers[identity] != nil { seekers[identity] = flight }
        switch orphans[identity] {
        case .running(let worker, let attempt):
            enter(nil, identity)
            adopted[flight.number] = attempt
            return (worker, attempt)
        case .responded: matches.append(flight)
        case nil: break
        }
        return nil
    }

    /// The adopted attempt that a flight runs; nil if it runs one of this broker.
    @inline(__always)
    func attempt(of flight: Int32) -> AttemptID? { adopted[flight] }

    /// A flight's attempt has ended, or is being cancelled.
    mutating func attemptEnded(of flight: Int32) { adopted.drop(flight) }

    /// Removes the last of the flights that found a response.
    mutating func nextMatch() -> FlightName? { matches.popLast() }

    /// Removes the response of an orphan; nil if there is none.
    mutating func takeResponse(_ identity: FlightIdentity) -> Outcome.Response? {
        guard case .responded(let response)? = orphans[identity] else { return nil }
        enter(nil, identity)
        return response
    }

    // MARK: Transitions

    private mutating func enter(_ orphan: Orphan?, _ identity: FlightIdentity) {
        let earlier = orphans[identity]
        precondition(Self.isLegal(from: earlier, to: orphan), "orphan \(identity) makes a transition that is none")
        orphans[identity] = orphan
        bytes += (orphan?.bytes ?? 0) - (earlier?.bytes ?? 0)
    }

    /// Whether the diagram has this transition; nil is the phase `absent`.
    static func isLegal(from: Orphan?, to: Orphan?) -> Bool {
        switch (from, to) {
        case (nil, .running), (.running, .responded), (.running, nil), (.responded, nil): true
        case (nil, nil), (nil, .responded), (.running, .running), (.responded, .running), (.responded, .responded):
            false
        }
    }

    // MARK: Memory and checks

    /// Releases spare capacity beyond `least` entries.
    mutating func releaseRoom(least: Int) {
        adopted.releaseRoom(least: least)
        seekers.releaseRoom(least: least)
    }

    /// - Returns: a sentence for each invariant that does not hold; empty if all do.
    func checkInvariants() -> [String] {
        var faults: [String] = []
        let sum = orphans.values.reduce(0) { $0 + $1.bytes }
        if bytes != sum { faults.append("11: responses of orphans have \(sum) bytes, not \(bytes)") }
        if bytes > limits.bytes { faults.append("11: responses of orphans have \(bytes) bytes") }
        if seekers.count > limits.seekers { faults.append("11: \(seekers.count) flights seek orphans") }
        if !isOpen, !orphans.isEmpty || !seekers.isEmpty || !matches.isEmpty {
            faults.append("12: \(orphans.count) orphans are kept for ever")
        }
        let running = orphans.values.compactMap { if case .running(_, let attempt) = $0 { attempt } else { nil } }
        let attempts = running + adopted.values
        if Set(attempts).count < attempts.count { faults.append("3: an attempt was adopted twice") }
        return faults
    }
}
