internal import DequeModule
internal import EarshotWire

/// Sessions with pulled bodies, and the order in which their READs are answered.
///
/// Principals with READs that can be answered take turns, and so do the sessions of each. A turn answers one READ.
struct PullTable {
    private var windows: [Handle<ClientSession>: PullWindow] = [:]
    /// Sessions whose READs can be answered, each once, by principal in the order of their turns.
    private var turns: [Handle<Principal>: Deque<Handle<ClientSession>>] = [:]
    /// Principals with such sessions, each once, in the order of their turns.
    private var principals: Deque<Handle<Principal>> = []
    /// Sessions with parked READs, by the interest whose body they wait for.
    private var readers: [Handle<Interest>: Set<Handle<ClientSession>>] = [:]

    /// Whether no session pulls bodies.
    var isEmpty: Bool { windows.isEmpty }

    /// Whether READs can be answered.
    var isBehind: Bool { !principals.isEmpty }

    func contains(_ session: Handle<ClientSession>?) -> Bool { session.map { windows[$0] != nil } ?? false }

    /// Number of a session's READs without an answer.
    func count(of session: Handle<ClientSession>) -> Int { windows[session]?.count ?? 0 }

    /// READs of a session without an answer.
    func reads(of session: Handle<ClientSession>) -> [PullWindow.Read] {
        windows[session].map { $0.answerableReads + $0.parked } ?? []
    }

    /// Whether a session may not read the body of this terminal, because it removed the request.
    func isClosed(_ sequence: UInt64, to session: Handle<ClientSession>) -> Bool {
        windows[session]?.closed.contains(sequence) ?? false
    }

    /// The sessions.
    var sessions: some Collection<Handle<ClientSession>> { windows.keys }

    // MARK: Sessions

    /// Adds a session, or keeps it with its closed bodies.
    mutating func open(_ session: Handle<ClientSession>, of principal: Handle<Principal>) {
        // A resumed session has no READs.
        if windows[session] == nil { windows[session] = PullWindow(principal: principal) }
    }

    /// Session whose bodies a session reads; nil if it reads its own.
    func source(of session: Handle<ClientSession>) -> SessionToken? { windows[session]?.source }

    /// Lets a session read the bodies of another one. A session that is resumed can read its own again.
    mutating func setSource(_ source: SessionToken?, of session: Handle<ClientSession>) {
        windows[session]?.source = source
    }

    mutating func remove(_ session: Handle<ClientSession>) {
        detach(session)
        windows[session] = nil
    }

    /// Drops the READs of a session whose connection is lost.
    mutating func detach(_ session: Handle<ClientSession>) {
        change(session) { $0.detach() }
    }

    // MARK: READs

    mutating func add(_ read: PullWindow.Read, of session: Handle<ClientSession>) { change(session) { $0.add(read) } }

    /// Takes the READ whose turn it is.
    mutating func take() -> (session: Handle<ClientSession>, read: PullWindow.Read)? {
        guard let principal = principals.popFirst() else { return nil }
        guard let session = turns[principal]?.popFirst(), let read = windows[session]?.take() else {
            preconditionFailure("principal \(principal) has no READ")
        }
        if windows[session]?.isReady == true { turns[principal]?.append(session) }
        if turns[principal]?.isEmpty == true { turns[principal] = nil } else { principals.append(principal) }
        return (session, read)
    }

    /// Keeps a READ until more bytes of the growing body arrive.
    mutating func park(_ read: PullWindow.Read, of session: Handle<ClientSession>) {
        guard let stream = read.stream else { preconditionFailure("the body of a terminal does not grow") }
        change(session) { $0.park(read) }
        readers[stream.record, default: []].insert(session)
    }

    /// Makes the READs of a growing body ready.
    mutating func bodyGrew(_ interest: Handle<Interest>) {
        guard let sessions = readers.removeValue(forKey: interest) else { return }
        for session in sessions.sorted() { change(session) { $0.wake(interest) } }
    }

    /// Puts a READ back whose answer the socket did not take, until `unblock`.
    mutating func refuse(_ read: PullWindow.Read, of session: Handle<ClientSession>) {
        change(session) { $0.refuse(read) }
    }

    mutating func unblock(_ session: Handle<ClientSession>) { change(session) { $0.unblock() } }

    mutating func drop(of session: Handle<ClientSession>, where isVoid: (PullWindow.Read) -> Bool) {
        change(session) { $0.drop(where: isVoid) }
    }

    // MARK: Terminals

    mutating func close(_ sequences: some Sequence<UInt64>, to session: Handle<ClientSession>) {
        windows[session]?.close(sequences)
    }

    /// Forgets the closed bodies of terminals that were withdrawn, after the last one that was sent.
    mutating func reopen(after sequence: UInt64, to session: Handle<ClientSession>) {
        windows[session]?.reopen(after: sequence)
    }

    mutating func acknowledged(_ sequence: UInt64, by session: Handle<ClientSession>) {
        windows[session]?.acknowledged(sequence)
    }

    /// Records that another connection has read a body of a session.
    mutating func noteActivity(of session: Handle<ClientSession>) { windows[session]?.noteActivity() }

    /// Whether a session has read anything since the last call.
    mutating func takeActivity(of session: Handle<ClientSession>) -> Bool { windows[session]?.takeActivity() ?? false }

    // MARK: Steps

    /// Changes the READs of a session, and keeps turns and readers in accordance with them.
    private mutating func change(_ session: Handle<ClientSession>, _ change: (inout PullWindow) -> Void) {
        guard var window = windows.removeValue(forKey: session) else { return }
        let wasReady = window.isReady
        let before = Set(window.parked.compactMap { $0.stream?.record })
        change(&window)
        let after = Set(window.parked.compactMap { $0.stream?.record })
        for interest in before.subtracting(after) {
            readers[interest]?.remove(session)
            if readers[interest]?.isEmpty == true { readers[interest] = nil }
        }
        if window.isReady != wasReady { setTurn(of: session, window.principal, isReady: window.isReady) }
        windows[session] = window
    }

    private mutating func setTurn(
        of session: Handle<ClientSession>, _ principal: Handle<Principal>, isReady: Bool
    ) {
        if isReady {
            if turns[principal] == nil { principals.append(principal) }
            turns[principal, default: []].append(session)
        } else {
            turns[principal]?.removeAll { $0 == session }
            guard turns[principal]?.isEmpty == true else { return }
            turns[principal] = nil
            principals.removeAll { $0 == principal }
        }
    }

    /// - Returns: a sentence for each violated invariant.
    func checkInvariants() -> [String] {
        var faults = windows.values.flatMap { $0.checkInvariants() }
        func check(_ holds: Bool, _ fault: @autoclosure () -> String) { if !holds { faults.append(fault()) } }
        let sessions = turns.values.flatMap(\.self)
        check(Set(sessions).count == sessions.count, "11: a session has two turns")
        check(
            Set(sessions) == Set(windows.filter { $0.value.isReady }.keys), "1: a READ that can be answered has no turn"
        )
        check(
            principals.count == turns.count && Set(principals) == Set(turns.keys),
            "1: a principal with READs has no turn")
        var parked: [Handle<Interest>: Set<Handle<ClientSession>>] = [:]
        for (session, window) in windows {
            for read in window.parked {
                check(read.stream != nil, "12: a parked READ waits for no body")
                if let stream = read.stream { parked[stream.record, default: []].insert(session) }
            }
        }
        check(parked == readers, "12: READs wait for other bodies than noted")
        return faults
    }
}
