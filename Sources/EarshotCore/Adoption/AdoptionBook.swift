internal import EarshotWire

/// Attempts of earlier brokers, and the flights that adopt them.
///
/// Until a flight with the same identity adopts it, an attempt is an orphan. It runs in a worker, or waits as a
/// response:
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
/// All transitions go through `enter`. The book accepts orphans while it is open. It sends no messages and releases no
/// bodies: each function returns the orphans that the caller cancels or drops.
struct AdoptionBook {
    /// Bounds of the book.
    struct Limits: Equatable {
        /// Maximum number of flights that can be matched with an orphan reported later.
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
        /// An attempt that holds a lease of a worker.
        case running(worker: Handle<WorkerSession>, AttemptID)
        /// A finished response. Its URL is set when a flight takes it.
        case responded(Outcome.Response)

        /// Whether a worker runs this attempt for the orphan.
        func isHeld(by worker: Handle<WorkerSession>, as attempt: AttemptID) -> Bool {
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
    /// Adopted attempts, by flight.
    private(set) var adopted: [Handle<Flight>: AttemptID] = [:]
    /// Latest flight that sought each identity. It may adopt an orphan that is reported later.
    private var seekers: [FlightIdentity: FlightName] = [:]
    /// Flights that found a response and have not taken it yet.
    private var matches: [FlightName] = []

    init(limits: Limits) { self.limits = limits }

    var isEmpty: Bool { orphans.isEmpty && adopted.isEmpty }

    /// Starts to accept orphans.
    mutating func open() { isOpen = true }

    /// Stops accepting orphans.
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

    /// Whether an attempt with this identity may become an orphan.
    func accepts(_ identity: FlightIdentity) -> Bool { isOpen && orphans[identity] == nil }

    /// The last flight that sought this identity.
    func seeker(of identity: FlightIdentity) -> FlightName? { seekers[identity] }

    /// Makes an attempt an orphan.
    ///
    /// - Precondition: `accepts(identity)`.
    mutating func hold(_ attempt: AttemptID, at worker: Handle<WorkerSession>, as identity: FlightIdentity) {
        enter(.running(worker: worker, attempt), identity)
    }

    /// Ends an orphan's attempt. The orphan must be running.
    ///
    /// - Parameter response: response that a flight can use; nil if the attempt produced none.
    /// - Returns: whether the response is kept. Otherwise the orphan is removed.
    mutating func ended(_ identity: FlightIdentity, with response: Outcome.Response? = nil) -> Bool {
        let orphan = response.map { Orphan.responded($0) }
        let isKept = orphan.map { $0.bytes <= limits.bytes - bytes } ?? false
        enter(isKept ? orphan : nil, identity)
        return isKept
    }

    /// Removes an orphan, if there is one. The caller cancels its attempt or drops its response.
    mutating func giveUp(_ identity: FlightIdentity) -> Orphan? {
        guard let orphan = orphans[identity] else { return nil }
        enter(nil, identity)
        return orphan
    }

    // MARK: Flights

    /// Matches a flight that is about to wait with the orphan of its identity. Called only while the book is open. A
    /// flight whose orphan has a response is appended to the `nextMatch` list.
    ///
    /// - Returns: the attempt that the flight adopts; nil if no worker runs one.
    mutating func seek(
        _ identity: FlightIdentity, for flight: FlightName
    ) -> (worker: Handle<WorkerSession>, attempt: AttemptID)? {
        if seekers.count < limits.seekers || seekers[identity] != nil { seekers[identity] = flight }
        switch orphans[identity] {
        case .running(let worker, let attempt):
            enter(nil, identity)
            adopted[flight.reference.record] = attempt
            return (worker, attempt)
        case .responded: matches.append(flight)
        case nil: break
        }
        return nil
    }

    /// The adopted attempt that a flight runs; nil if the flight runs an attempt of this broker.
    func attempt(of flight: Handle<Flight>) -> AttemptID? { adopted[flight] }

    /// Forgets a flight's adopted attempt, which has ended or is being cancelled.
    mutating func attemptEnded(of flight: Handle<Flight>) { adopted.drop(flight) }

    /// Removes and returns the newest flight of those that found a response; nil if there is none.
    mutating func nextMatch() -> FlightName? { matches.popLast() }

    /// Removes the response of an orphan; nil if there is none.
    mutating func takeResponse(_ identity: FlightIdentity) -> Outcome.Response? {
        guard case .responded(let response)? = orphans[identity] else { return nil }
        enter(nil, identity)
        return response
    }

    // MARK: Transitions

    /// Makes a transition of the diagram, and counts the bytes. Traps on any other transition.
    private mutating func enter(_ orphan: Orphan?, _ identity: FlightIdentity) {
        let earlier = orphans[identity]
        precondition(Self.isLegal(from: earlier, to: orphan), "illegal transition of orphan \(identity)")
        orphans[identity] = orphan
        bytes += (orphan?.bytes ?? 0) - (earlier?.bytes ?? 0)
    }

    /// Whether the diagram has this transition. nil is the state `absent`.
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

    /// - Returns: a sentence for each violated invariant.
    func checkInvariants() -> [String] {
        var faults: [String] = []
        let sum = orphans.values.reduce(0) { $0 + $1.bytes }
        if bytes != sum { faults.append("11: responses of orphans have \(sum) bytes, not \(bytes)") }
        if bytes > limits.bytes { faults.append("11: responses of orphans have \(bytes) bytes") }
        if seekers.count > limits.seekers { faults.append("11: \(seekers.count) flights seek orphans") }
        if !isOpen, !orphans.isEmpty || !seekers.isEmpty || !matches.isEmpty {
            faults.append("12: \(orphans.count) orphans remain after the adoption period")
        }
        let running = orphans.values.compactMap { if case .running(_, let attempt) = $0 { attempt } else { nil } }
        let attempts = running + adopted.values
        if Set(attempts).count < attempts.count { faults.append("3: an attempt was adopted twice") }
        return faults
    }
}
