internal import DequeModule
internal import EarshotWire

/// READs of one session with pulled bodies, and the bodies that it may not read any more.
///
/// ```
///            add            take
/// (absent) ──────→ ready ──────────→ (absent)    answered, or void
///                  ↑ │  ↑  refuse │
///                  │ │  └─────────┘              the socket is full
///             wake │ │ take, park
///                  │ ↓
///                 parked                         waits for more bytes of a growing body
/// ```
///
/// A READ is void if its body can no longer be read. A void READ has no answer and is dropped when its turn comes, or
/// when it is in the way of another one.
struct PullWindow {
    /// A READ without an answer.
    struct Read: Equatable, Sendable {
        let message: BodyRead
        /// Open request with the growing body; nil for the body of a terminal.
        let stream: GenerationalHandle<Interest>?
        /// Generation of the bytes that the client expects; nil until the first one is known.
        var generation: Generation?

        init(_ message: BodyRead, of stream: GenerationalHandle<Interest>? = nil) {
            self.message = message
            self.stream = stream
            generation = message.generation
        }
    }

    /// Principal of the session, which takes turns with others.
    let principal: Handle<Principal>
    /// Session whose bodies are read; nil for the session's own.
    var source: SessionToken?
    /// READs that can be answered, in order.
    private(set) var answerableReads: Deque<Read> = []
    /// READs of growing bodies that lack the first requested byte.
    private(set) var parked: [Read] = []
    /// Sequence numbers of sent terminals whose requests the client has removed.
    private(set) var closed: Set<UInt64> = []
    /// Whether the socket refused a DATA and has not become writable since.
    private(set) var isBlocked = false
    /// Whether the bodies of the session were read since the last call of `takeActivity`.
    private(set) var isActive = false

    init(principal: Handle<Principal>) { self.principal = principal }

    /// Number of READs without an answer.
    var count: Int { answerableReads.count + parked.count }

    /// Whether the session awaits its turn.
    var isReady: Bool { !answerableReads.isEmpty && !isBlocked }

    mutating func add(_ read: Read) {
        precondition(count < WireLimits.openReads, "a session has \(count) open READs")
        answerableReads.append(read)
    }

    mutating func take() -> Read? {
        guard isReady else { return nil }
        isActive = true
        return answerableReads.popFirst()
    }

    mutating func park(_ read: Read) { parked.append(read) }

    /// Makes the READs of a growing body ready.
    mutating func wake(_ interest: Handle<Interest>) {
        answerableReads.append(contentsOf: parked.filter { $0.stream?.record == interest })
        parked.removeAll { $0.stream?.record == interest }
    }

    /// Puts a READ back whose answer the socket did not take.
    mutating func refuse(_ read: Read) {
        answerableReads.prepend(read)
        isBlocked = true
    }

    mutating func unblock() { isBlocked = false }

    /// Drops void READs.
    mutating func drop(where isVoid: (Read) -> Bool) {
        answerableReads.removeAll(where: isVoid)
        parked.removeAll(where: isVoid)
    }

    /// Drops all READs at the loss of the connection.
    mutating func detach() {
        answerableReads = []
        parked = []
        isBlocked = false
    }

    /// Forbids reading the bodies of these terminals.
    mutating func close(_ sequences: some Sequence<UInt64>) { closed.formUnion(sequences) }

    mutating func acknowledged(_ sequence: UInt64) {
        guard !closed.isEmpty else { return }
        closed = closed.filter { $0 > sequence }
    }

    /// Forgets the closed bodies of terminals after this one, whose numbers other terminals will have.
    mutating func reopen(after sequence: UInt64) {
        guard !closed.isEmpty else { return }
        closed = closed.filter { $0 <= sequence }
    }

    mutating func noteActivity() { isActive = true }

    /// Whether the bodies of the session were read since the last call.
    mutating func takeActivity() -> Bool {
        defer { isActive = false }
        return isActive
    }

    /// - Returns: a sentence for each violated invariant.
    func checkInvariants() -> [String] {
        var faults: [String] = []
        if count > WireLimits.openReads { faults.append("11: a session has \(count) open READs") }
        if closed.count > WireLimits.window { faults.append("11: \(closed.count) bodies are closed") }
        if parked.contains(where: { $0.stream == nil }) { faults.append("1: a READ of a complete body waits") }
        return faults
    }
}
