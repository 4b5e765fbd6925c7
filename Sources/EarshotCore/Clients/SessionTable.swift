internal import DequeModule
internal import EarshotWire
package import OrderedCollections

/// Sessions of clients by handle, by connection and by token.
///
/// `ClientSession.Phase` documents the phases of a session; only this type changes them. A session that has ended keeps
/// its handle, without connection and token, until it is removed.
package struct SessionTable {
    private var sessions = Slab<ClientSession>()
    /// Connected sessions.
    private var handlesByID: [ClientID: Handle<ClientSession>] = [:]
    /// Sessions with a lease, connected or away.
    private var handlesByToken: [SessionToken: Handle<ClientSession>] = [:]
    /// Sessions that are away, longest absence first.
    package private(set) var awaySessions: OrderedSet<Handle<ClientSession>> = []
    /// Sessions that have ended and are not removed yet, in this order.
    private(set) var endedSessions: Deque<Handle<ClientSession>> = []

    // MARK: Queries

    /// Accesses a session in place. Its phase, connection and lease change only through the other methods.
    package subscript(session: Handle<ClientSession>) -> ClientSession {
        _read { yield sessions[session] }
        _modify { yield &sessions[session] }
    }

    /// Copy of the records that shares their storage, for a closure that runs while the core changes.
    var snapshot: Slab<ClientSession> { sessions }

    /// Returns these sessions without those that have ended.
    func excludingEnded(_ numbers: [Handle<ClientSession>]) -> [Handle<ClientSession>] {
        numbers.filter { !sessions[$0].hasEnded }
    }

    var count: Int { sessions.count }

    /// Handles of all sessions. O(sessions).
    package var handles: [Handle<ClientSession>] { sessions.indices }

    package var connectedCount: Int { handlesByID.count }

    /// Number of sessions that a token can resume.
    var resumableCount: Int { handlesByToken.count }

    /// Returns a reference to a session, which may outlive it.
    func reference(to session: Handle<ClientSession>) -> GenerationalHandle<ClientSession> {
        sessions.reference(to: session)
    }

    /// Returns the session of a reference; nil if it is gone.
    func resolve(_ reference: GenerationalHandle<ClientSession>) -> Handle<ClientSession>? {
        sessions.resolve(reference)
    }

    func contains(_ session: Handle<ClientSession>) -> Bool { sessions.contains(session) }

    /// The session over this connection.
    func handle(of id: ClientID) -> Handle<ClientSession>? { handlesByID[id] }

    /// The session that this token resumes.
    func handle(of token: SessionToken) -> Handle<ClientSession>? { handlesByToken[token] }

    // MARK: Life

    /// Adds a session in phase `joining` over a new connection.
    ///
    /// - Parameters:
    ///   - user: principal of the local user at the other end.
    ///   - isGateway: whether its process is a gateway.
    mutating func addConnectedSession(
        _ id: ClientID, token: SessionToken, generation: UInt64,
        user: Handle<Principal> = PrincipalTable.administrator, isGateway: Bool = false
    ) {
        precondition(handlesByID[id] == nil, "connection \(id.rawValue) has a session")
        handlesByID[id] = sessions.insert(
            ClientSession(id: id, token: token, generation: generation, user: user, isGateway: isGateway))
    }

    /// Separates a session from its connection. The caller ends or suspends the session.
    mutating func removeConnection(_ id: ClientID) -> Handle<ClientSession>? { handlesByID.removeValue(forKey: id) }

    /// Opens a session after its HELLO, or after a connection has resumed it.
    mutating func open(_ session: Handle<ClientSession>, leaseMilliseconds: Int) {
        sessions[session].transition(to: .open)
        sessions[session].leaseMilliseconds = leaseMilliseconds
        let token = sessions[session].token
        if leaseMilliseconds > 0 { handlesByToken[token] = session } else { handlesByToken[token] = nil }
    }

    /// Moves the connection of a joining session to a session that is away, and removes the joining one. The caller
    /// opens the session next.
    mutating func resume(_ session: Handle<ClientSession>, over joining: Handle<ClientSession>) {
        precondition(awaySessions.contains(session), "session \(session) is not away")
        let (id, user, isGateway) = (sessions[joining].id, sessions[joining].user, sessions[joining].isGateway)
        sessions.destroy(joining)
        handlesByID[id] = session
        sessions[session].id = id
        sessions[session].user = user
        sessions[session].isGateway = isGateway
        sessions[session].disconnectEpoch = nil
        awaySessions.remove(session)
    }

    /// Keeps a session without a connection for the time of its lease.
    ///
    /// - Parameter absence: serial that its lease timer names.
    mutating func suspend(_ session: Handle<ClientSession>, absence: UInt64) {
        sessions[session].transition(to: .away)
        sessions[session].disconnectEpoch = absence
        awaySessions.append(session)
    }

    /// Ends the lease of a session, so that no connection can resume it.
    mutating func endLease(of session: Handle<ClientSession>) {
        awaySessions.remove(session)
        sessions[session].disconnectEpoch = nil
        let token = sessions[session].token
        if handlesByToken[token] == session { handlesByToken[token] = nil }
    }

    /// Adds an ended session to those that are removed later.
    mutating func enqueueForRemoval(_ session: Handle<ClientSession>) {
        precondition(sessions[session].hasEnded, "session \(session) has not ended")
        endedSessions.append(session)
    }

    /// Frees the ended session that is removed first.
    mutating func removeFirstEndedSession() { remove(endedSessions.removeFirst()) }

    /// Frees an ended session.
    mutating func remove(_ session: Handle<ClientSession>) {
        precondition(sessions[session].hasEnded, "session \(session) has not ended")
        sessions.destroy(session)
    }

    // MARK: Memory

    mutating func releaseSpareCapacity(retaining least: Int) {
        sessions.releaseSpareCapacity(retaining: least)
        handlesByID.releaseSpareCapacity(retaining: least)
        handlesByToken.releaseSpareCapacity(retaining: least)
        endedSessions.releaseSpareCapacityIfEmpty()
        for session in sessions.indices {
            sessions[session].missedProgress.releaseSpareCapacity(retaining: least)
            sessions[session].deliveries.releaseSpareCapacity()
        }
    }

    /// Returns a sentence for each violated invariant. O(sessions).
    func checkInvariants() -> [String] {
        var faults: [String] = []
        func check(_ holds: Bool, _ fault: @autoclosure () -> String) { if !holds { faults.append(fault()) } }
        for number in sessions.indices {
            let session = sessions[number]
            let isAway = session.isAway && !session.hasEnded
            check(awaySessions.contains(number) == isAway, "12: session \(number) is away")
            check((session.disconnectEpoch != nil) == isAway, "12: session \(number) has a wrong absence")
            check(
                session.hasEnded || session.isAway != (handlesByID[session.id] == number),
                "12: session \(number) is both connected and away, or neither")
            check(
                session.hasEnded || (handlesByToken[session.token] == number) == (session.leaseMilliseconds > 0),
                "12: session \(number) can be taken over without a lease, or not with one")
            check(
                session.hasEnded || (session.phase == .open) == (session.deliveries.phase != .detached),
                "1: the window of session \(number) is \(session.deliveries.phase)")
        }
        let known = Array(handlesByID.values) + Array(handlesByToken.values) + Array(endedSessions)
        check(known.allSatisfy { sessions.contains($0) }, "12: a connection or a token has no session")
        check(Set(handlesByID.values).count == handlesByID.count, "12: a session has two connections")
        check(
            Set(endedSessions) == Set(sessions.indices.filter { sessions[$0].hasEnded })
                && Set(endedSessions).count == endedSessions.count,
            "12: \(endedSessions.count) ended sessions are being removed")
        return faults
    }
}
