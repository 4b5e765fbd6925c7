internal import EarshotCore
internal import EarshotHTTP
internal import RESP

/// Finds the primary: takes the servers of a list in turn, or asks sentinels and watches for a change.
///
/// The connection to a sentinel:
///
/// ```
/// closed → connecting → asking → watching
///    ↑         │           │        │
///    └─────────┴───────────┴────────┘   (lost; the next sentinel is tried after a pause)
/// ```
struct PrimaryFinder {
    /// State of the connection to a sentinel.
    enum Phase: Equatable {
        case closed
        case connecting
        case querying
        case watching
    }

    /// Result of an event.
    enum Finding: Equatable {
        case nothing
        case primary(EngineAddress)
        /// Whether a majority of the sentinels can promote a replica.
        case quorum(Bool)
        /// The connection to the sentinel must be closed.
        case failed(EngineFault)
    }

    private enum Command: Equatable {
        case authentication
        case address
        case quorum
        case subscription
        case ping
    }

    private let place: EngineOptions.EngineLocation
    /// Login of the sentinels.
    var login: EngineOptions.Login?
    private let patience: Int
    private(set) var phase = Phase.closed
    /// Index of the next server or sentinel.
    private var turn = 0
    private var pendingReplies = PendingReplies<Command>()
    /// Deadline of the connection attempt.
    private var connectionDeadline: Tick?
    /// Time of the next PING on the watching connection; nil in other phases. A half-open connection reports no change.
    private var nextPing: Tick?
    /// Time at which another sentinel is asked whether a majority of them is left. A connection that watches answers no
    /// questions, so that sentinel replaces it. Nil in other phases, and with one sentinel.
    private var nextQuery: Tick?
    /// Whether the next sentinel is asked about the majority.
    private var isQueryingQuorum = false
    /// Whether the connection replaces one that watched, and does not watch yet. Its first address is no reason to leave
    /// a primary: this sentinel may have missed a change.
    private(set) var isQuery = false
    /// Sentinels in a row that could not be asked.
    private var losses = 0

    /// Interval of the questions about the majority.
    static let quorumMilliseconds = 5_000

    init(_ options: EngineOptions) {
        place = options.place
        login = options.sentinelLogin
        patience = options.patienceMilliseconds
    }

    /// Whether there is an address to connect to.
    var hasAddresses: Bool {
        switch place {
        case .servers(let addresses), .sentinels(let addresses, _): !addresses.isEmpty
        }
    }

    /// Time at which the watching connection needs a call of `check` or `queriesQuorum`.
    var nextCheck: Tick? { [nextPing, nextQuery].compactMap(\.self).min() }

    /// Whether none of the sentinels could be asked since the last one that answered.
    var areAllLost: Bool {
        guard case .sentinels(let sentinels, _) = place else { return false }
        return losses >= sentinels.count
    }

    /// Time at which an answer is late.
    var deadline: Tick? { [connectionDeadline, pendingReplies.deadline].compactMap(\.self).min() }

    /// The next server of a list; nil with sentinels.
    mutating func nextServer() -> EngineAddress? {
        guard case .servers(let servers) = place, !servers.isEmpty else { return nil }
        defer { turn += 1 }
        return servers[turn % servers.count]
    }

    /// Address of the next sentinel, to which the caller opens a connection; nil without sentinels.
    mutating func nextSentinel(now: Tick) -> EngineAddress? {
        guard case .sentinels(let sentinels, _) = place, !sentinels.isEmpty else { return nil }
        close()
        enter(.connecting)
        connectionDeadline = now.advanced(byMilliseconds: patience)
        defer { turn += 1 }
        return sentinels[turn % sentinels.count]
    }

    mutating func close() {
        // The opening of a connection begins with a close.
        if phase != .closed, phase != .watching { losses += 1 }
        enter(.closed)
        pendingReplies = PendingReplies()
        connectionDeadline = nil
        (nextPing, nextQuery) = (nil, nil)
        isQuery = false
    }

    /// Returns a PING for the watching connection if it is due.
    mutating func check(now: Tick) -> RESP.Command? {
        guard phase == .watching, let due = nextPing, due <= now else { return nil }
        nextPing = now.advanced(byMilliseconds: EngineLimits.heartbeatMilliseconds)
        pendingReplies.append(.ping, until: now.advanced(byMilliseconds: patience))
        return RESP.Command("PING")
    }

    /// Returns whether the next sentinel must be asked about the majority, in place of the present one.
    mutating func queriesQuorum(now: Tick) -> Bool {
        guard phase == .watching, let due = nextQuery, due <= now else { return false }
        isQueryingQuorum = true
        return true
    }

    /// The connection exists. Returns the commands to send.
    mutating func opened(now: Tick) -> [RESP.Command] {
        guard phase == .connecting, case .sentinels(_, let primary) = place else { return [] }
        enter(.querying)
        connectionDeadline = nil
        let deadline = now.advanced(byMilliseconds: patience)
        var commands: [RESP.Command] = []
        if let login {
            commands.append(login.command)
            pendingReplies.append(.authentication, until: deadline)
        }
        commands.append(RESP.Command("SENTINEL", "get-master-addr-by-name", primary))
        pendingReplies.append(.address, until: deadline)
        if isQueryingQuorum {
            commands.append(RESP.Command("SENTINEL", "ckquorum", primary))
            pendingReplies.append(.quorum, until: deadline)
            isQueryingQuorum = false
            isQuery = true
        }
        // On the same connection after the question, so that no change is missed between the two.
        commands.append(RESP.Command("SUBSCRIBE", "+switch-master"))
        pendingReplies.append(.subscription, until: deadline)
        return commands
    }

    mutating func received(_ reply: Reply, now: Tick) -> Finding {
        guard phase == .querying || phase == .watching else { return .nothing }
        if phase == .watching, reply.elements?.first?.text == "message" { return changed(reply) }
        guard let command = pendingReplies.takeNext() else { return .failed(.malformed) }
        if case .error(let text) = reply, command != .quorum {
            return .failed(EngineFault(error: text, isAuthentication: command == .authentication))
        }
        switch command {
        case .authentication: return reply == .status("OK") ? .nothing : .failed(.malformed)
        case .address:
            if reply == .null { return .failed(.noPrimary) }
            guard let parts = reply.elements, parts.count == 2, let host = parts[0].text,
                let port = parts[1].text.flatMap({ UInt16($0) })
            else { return .failed(.malformed) }
            guard let address = EngineAddress(host: host, port: port) else { return .failed(.malformed) }
            return .primary(address)
        case .quorum: return Self.quorum(reply)
        case .subscription:
            guard reply.elements?.first?.text == "subscribe" else { return .failed(.malformed) }
            enter(.watching)
            losses = 0
            isQuery = false
            nextPing = now.advanced(byMilliseconds: EngineLimits.heartbeatMilliseconds)
            if case .sentinels(let sentinels, _) = place, sentinels.count > 1 {
                nextQuery = now.advanced(byMilliseconds: Self.quorumMilliseconds)
            }
            return .nothing
        case .ping: return reply.elements?.first?.text == "pong" ? .nothing : .failed(.malformed)
        }
    }

    /// `OK 3 usable Sentinels. …` or `NOQUORUM …`. A sentinel whose user lacks the permission says nothing about it.
    private static func quorum(_ reply: Reply) -> Finding {
        switch reply {
        case .status(let text) where text.hasPrefix("OK"): .quorum(true)
        case .error(let text) where text.hasPrefix("NOQUORUM"): .quorum(false)
        case .status, .error, .integer, .bytes, .array, .null: .nothing
        }
    }

    /// `+switch-master`: name, old host and port, new host and port.
    private func changed(_ reply: Reply) -> Finding {
        guard case .sentinels(_, let primary) = place, let parts = reply.elements, parts.count == 3,
            let text = parts[2].text
        else { return .failed(.malformed) }
        let words = text.split(separator: " ")
        guard words.count == 5 else { return .failed(.malformed) }
        guard words[0] == primary else { return .nothing }
        guard let port = UInt16(words[4]) else { return .failed(.malformed) }
        guard let address = EngineAddress(host: String(words[3]), port: port) else { return .failed(.malformed) }
        return .primary(address)
    }

    private mutating func enter(_ next: Phase) {
        let isLegal =
            switch (phase, next) {
            case (_, .closed), (.closed, .connecting), (.connecting, .querying), (.querying, .watching): true
            case (_, .connecting), (_, .querying), (_, .watching): false
            }
        precondition(isLegal, "a sentinel's connection goes from \(phase) to \(next)")
        phase = next
    }
}

extension EngineOptions.Login {
    /// Command that logs in.
    var command: Command {
        if let user { Command("AUTH", user, password) } else { Command("AUTH", password) }
    }
}
