internal import DequeModule
internal import EarshotWire

/// READs of one session with pulled bodies, and the bodies that it may not read any more.
///
/// ```
///            addRead         popAnswerableRead
/// (absent) ──────────→ ready ───────────────────→ (absent)    answered, or void
///                      ↑ │  ↑ restoreUnsentRead │
///                      │ │  └───────────────────┘             the socket is full
///      wakeParkedReads │ │ popAnswerableRead, parkRead
///                      │ ↓
///                     parked                                  waits for more bytes of a growing body
/// ```
///
/// A READ is void if its body can no longer be read. A void READ has no answer and is dropped when its turn comes, or
/// when it is in the way of another one.
struct PullWindow {
    /// A READ without an answer.
    struct Read: Equatable, Sendable {
        let message: BodyRead
        /// Open request with the growing body; nil for the body of a terminal.
        let growingBodyInterest: GenerationalHandle<Interest>?
        /// Generation of the bytes that the client expects; nil until the first one is known.
        var generation: Generation?

        init(_ message: BodyRead, of stream: GenerationalHandle<Interest>? = nil) {
            self.message = message
            self.growingBodyInterest = stream
            generation = message.generation
        }
    }

    /// Principal of the session, which takes turns with others.
    let principal: Handle<Principal>
    /// Session whose bodies are read; nil for the session's own.
    var sourceSession: SessionToken?
    /// READs that can be answered, in order.
    private(set) var answerableReads: Deque<Read> = []
    /// READs of growing bodies that lack the first requested byte.
    private(set) var parkedReads: [Read] = []
    /// Sequence numbers of sent terminals whose requests the client has removed.
    private(set) var closedBodySequences: Set<UInt64> = []
    /// Whether the socket refused a DATA and has not become writable since.
    private(set) var isBlocked = false
    /// Whether the bodies of the session were read since the last call of `consumeActivityFlag`.
    private(set) var isActive = false

    init(principal: Handle<Principal>) { self.principal = principal }

    /// Number of READs without an answer.
    var pendingReadCount: Int { answerableReads.count + parkedReads.count }

    /// Whether the session awaits its turn.
    var isReady: Bool { !answerableReads.isEmpty && !isBlocked }

    mutating func addRead(_ read: Read) {
        precondition(pendingReadCount < WireLimits.openReadsPerSession, "a session has \(pendingReadCount) open READs")
        answerableReads.append(read)
    }

    mutating func popAnswerableRead() -> Read? {
        guard isReady else { return nil }
        isActive = true
        return answerableReads.popFirst()
    }

    mutating func parkRead(_ read: Read) { parkedReads.append(read) }

    /// Makes the READs of a growing body ready.
    mutating func wakeParkedReads(_ interest: Handle<Interest>) {
        answerableReads.append(contentsOf: parkedReads.filter { $0.growingBodyInterest?.record == interest })
        parkedReads.removeAll { $0.growingBodyInterest?.record == interest }
    }

    /// Puts a READ back whose answer the socket did not take.
    mutating func restoreUnsentRead(_ read: Read) {
        answerableReads.prepend(read)
        isBlocked = true
    }

    mutating func unblock() { isBlocked = false }

    /// Drops void READs.
    mutating func removeReads(where isVoid: (Read) -> Bool) {
        answerableReads.removeAll(where: isVoid)
        parkedReads.removeAll(where: isVoid)
    }

    /// Drops all READs at the loss of the connection.
    mutating func detach() {
        answerableReads = []
        parkedReads = []
        isBlocked = false
    }

    /// Forbids reading the bodies of these terminals.
    mutating func closeBodies(_ sequences: some Sequence<UInt64>) { closedBodySequences.formUnion(sequences) }

    mutating func terminalAcknowledged(_ sequence: UInt64) {
        guard !closedBodySequences.isEmpty else { return }
        closedBodySequences = closedBodySequences.filter { $0 > sequence }
    }

    /// Forgets the closed bodies of terminals after this one, whose numbers other terminals will have.
    mutating func reopenBodies(after sequence: UInt64) {
        guard !closedBodySequences.isEmpty else { return }
        closedBodySequences = closedBodySequences.filter { $0 <= sequence }
    }

    mutating func recordActivity() { isActive = true }

    /// Whether the bodies of the session were read since the last call.
    mutating func consumeActivityFlag() -> Bool {
        defer { isActive = false }
        return isActive
    }

    /// - Returns: a sentence for each violated invariant.
    func checkInvariants() -> [String] {
        var faults: [String] = []
        if pendingReadCount > WireLimits.openReadsPerSession {
            faults.append("11: a session has \(pendingReadCount) open READs")
        }
        if closedBodySequences.count > WireLimits.maximumWindow {
            faults.append("11: \(closedBodySequences.count) bodies are closed")
        }
        if parkedReads.contains(where: { $0.growingBodyInterest == nil }) {
            faults.append("1: a READ of a complete body waits")
        }
        return faults
    }
}
