internal import DequeModule
internal import EarshotWire

/// Sessions with pulled bodies, and the order in which their READs are answered.
///
/// Principals with READs that can be answered take turns, and so do the sessions of each. A turn answers one READ.
struct PullTable {
    private var windows: [Handle<ClientSession>: PullWindow] = [:]
    /// Sessions whose READs can be answered, each once, by principal in the order of their turns.
    private var readySessionsByPrincipal: [Handle<Principal>: Deque<Handle<ClientSession>>] = [:]
    /// Principals with such sessions, each once, in the order of their turns.
    private var readyPrincipals: Deque<Handle<Principal>> = []
    /// Sessions with parked READs, by the interest whose body they wait for.
    private var parkedSessionsByInterest: [Handle<Interest>: Set<Handle<ClientSession>>] = [:]

    /// Whether no session pulls bodies.
    var isEmpty: Bool { windows.isEmpty }

    /// Whether READs can be answered.
    var hasAnswerableReads: Bool { !readyPrincipals.isEmpty }

    func contains(_ session: Handle<ClientSession>?) -> Bool { session.map { windows[$0] != nil } ?? false }

    /// Number of a session's READs without an answer.
    func pendingReadCount(of session: Handle<ClientSession>) -> Int { windows[session]?.pendingReadCount ?? 0 }

    /// READs of a session without an answer.
    func reads(of session: Handle<ClientSession>) -> [PullWindow.Read] {
        windows[session].map { $0.answerableReads + $0.parkedReads } ?? []
    }

    /// Whether a session may not read the body of this terminal, because it removed the request.
    func isBodyClosed(_ sequence: UInt64, to session: Handle<ClientSession>) -> Bool {
        windows[session]?.closedBodySequences.contains(sequence) ?? false
    }

    /// The sessions.
    var sessions: some Collection<Handle<ClientSession>> { windows.keys }

    // MARK: Sessions

    /// Adds a session, or keeps it with its closed bodies.
    mutating func addSession(_ session: Handle<ClientSession>, of principal: Handle<Principal>) {
        // A resumed session has no READs.
        if windows[session] == nil { windows[session] = PullWindow(principal: principal) }
    }

    /// Session whose bodies a session reads; nil if it reads its own.
    func sourceSession(of session: Handle<ClientSession>) -> SessionToken? { windows[session]?.sourceSession }

    /// Lets a session read the bodies of another one. A session that is resumed can read its own again.
    mutating func setSourceSession(_ source: SessionToken?, of session: Handle<ClientSession>) {
        windows[session]?.sourceSession = source
    }

    mutating func removeSession(_ session: Handle<ClientSession>) {
        detachSession(session)
        windows[session] = nil
    }

    /// Drops the READs of a session whose connection is lost.
    mutating func detachSession(_ session: Handle<ClientSession>) {
        updateWindow(session) { $0.detach() }
    }

    // MARK: READs

    mutating func addRead(_ read: PullWindow.Read, of session: Handle<ClientSession>) {
        updateWindow(session) { $0.addRead(read) }
    }

    /// Takes the READ whose turn it is.
    mutating func popNextRead() -> (session: Handle<ClientSession>, read: PullWindow.Read)? {
        guard let principal = readyPrincipals.popFirst() else { return nil }
        guard let session = readySessionsByPrincipal[principal]?.popFirst(),
            let read = windows[session]?.popAnswerableRead()
        else {
            preconditionFailure("principal \(principal) has no READ")
        }
        if windows[session]?.isReady == true { readySessionsByPrincipal[principal]?.append(session) }
        if readySessionsByPrincipal[principal]?.isEmpty == true {
            readySessionsByPrincipal[principal] = nil
        } else {
            readyPrincipals.append(principal)
        }
        return (session, read)
    }

    /// Keeps a READ until more bytes of the growing body arrive.
    mutating func parkRead(_ read: PullWindow.Read, of session: Handle<ClientSession>) {
        guard let stream = read.growingBodyInterest else { preconditionFailure("the body of a terminal does not grow") }
        updateWindow(session) { $0.parkRead(read) }
        parkedSessionsByInterest[stream.record, default: []].insert(session)
    }

    /// Makes the READs of a growing body ready.
    mutating func bodyGrew(_ interest: Handle<Interest>) {
        guard let sessions = parkedSessionsByInterest.removeValue(forKey: interest) else { return }
        for session in sessions.sorted() { updateWindow(session) { $0.wakeParkedReads(interest) } }
    }

    /// Puts a READ back whose answer the socket did not take, until `unblock`.
    mutating func restoreUnsentRead(_ read: PullWindow.Read, of session: Handle<ClientSession>) {
        updateWindow(session) { $0.restoreUnsentRead(read) }
    }

    mutating func unblock(_ session: Handle<ClientSession>) { updateWindow(session) { $0.unblock() } }

    mutating func removeReads(of session: Handle<ClientSession>, where isVoid: (PullWindow.Read) -> Bool) {
        updateWindow(session) { $0.removeReads(where: isVoid) }
    }

    // MARK: Terminals

    mutating func closeBodies(_ sequences: some Sequence<UInt64>, to session: Handle<ClientSession>) {
        windows[session]?.closeBodies(sequences)
    }

    /// Forgets the closed bodies of terminals that were withdrawn, after the last one that was sent.
    mutating func reopenBodies(after sequence: UInt64, to session: Handle<ClientSession>) {
        windows[session]?.reopenBodies(after: sequence)
    }

    mutating func terminalAcknowledged(_ sequence: UInt64, by session: Handle<ClientSession>) {
        windows[session]?.terminalAcknowledged(sequence)
    }

    /// Records that another connection has read a body of a session.
    mutating func recordActivity(of session: Handle<ClientSession>) { windows[session]?.recordActivity() }

    /// Whether a session has read anything since the last call.
    mutating func consumeActivityFlag(of session: Handle<ClientSession>) -> Bool {
        windows[session]?.consumeActivityFlag() ?? false
    }

    // MARK: Steps

    /// Changes the READs of a session, and keeps turns and readers in accordance with them.
    private mutating func updateWindow(_ session: Handle<ClientSession>, _ change: (inout PullWindow) -> Void) {
        guard var window = windows.removeValue(forKey: session) else { return }
        let wasReady = window.isReady
        let before = Set(window.parkedReads.compactMap { $0.growingBodyInterest?.record })
        change(&window)
        let after = Set(window.parkedReads.compactMap { $0.growingBodyInterest?.record })
        for interest in before.subtracting(after) {
            parkedSessionsByInterest[interest]?.remove(session)
            if parkedSessionsByInterest[interest]?.isEmpty == true { parkedSessionsByInterest[interest] = nil }
        }
        if window.isReady != wasReady { scheduleSession(of: session, window.principal, isReady: window.isReady) }
        windows[session] = window
    }

    private mutating func scheduleSession(
        of session: Handle<ClientSession>, _ principal: Handle<Principal>, isReady: Bool
    ) {
        if isReady {
            if readySessionsByPrincipal[principal] == nil { readyPrincipals.append(principal) }
            readySessionsByPrincipal[principal, default: []].append(session)
        } else {
            readySessionsByPrincipal[principal]?.removeAll { $0 == session }
            guard readySessionsByPrincipal[principal]?.isEmpty == true else { return }
            readySessionsByPrincipal[principal] = nil
            readyPrincipals.removeAll { $0 == principal }
        }
    }

    /// - Returns: a sentence for each violated invariant.
    func checkInvariants() -> [String] {
        var faults = windows.values.flatMap { $0.checkInvariants() }
        func check(_ holds: Bool, _ fault: @autoclosure () -> String) { if !holds { faults.append(fault()) } }
        let sessions = readySessionsByPrincipal.values.flatMap(\.self)
        check(Set(sessions).count == sessions.count, "11: a session has two turns")
        check(
            Set(sessions) == Set(windows.filter { $0.value.isReady }.keys),
            "1: a READ that can be answered has no turn")
        check(
            readyPrincipals.count == readySessionsByPrincipal.count
                && Set(readyPrincipals) == Set(readySessionsByPrincipal.keys),
            "1: a principal with READs has no turn")
        var parked: [Handle<Interest>: Set<Handle<ClientSession>>] = [:]
        for (session, window) in windows {
            for read in window.parkedReads {
                check(read.growingBodyInterest != nil, "12: a parked READ waits for no body")
                if let stream = read.growingBodyInterest { parked[stream.record, default: []].insert(session) }
            }
        }
        check(parked == parkedSessionsByInterest, "12: READs wait for other bodies than noted")
        return faults
    }
}
