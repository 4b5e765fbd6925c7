internal import EarshotCore
internal import EarshotHTTP
internal import RESP

/// Finds the primary: takes the servers of a list in turn, or queries sentinels and watches for a change.
///
/// The connection to a sentinel:
///
/// ```
/// closed → connecting → querying → watching
///    ↑         │           │          │
///    └─────────┴───────────┴──────────┘   (lost; the next sentinel is tried after a pause)
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
        case quorumReachable(Bool)
        /// The connection to the sentinel must be closed.
        case sentinelFailed(EngineFault)
    }

    private enum Command: Equatable {
        case authentication
        case primaryAddress
        case quorumCheck
        case subscription
        case ping
    }

    private let engineLocation: EngineOptions.EngineLocation
    /// Login of the sentinels.
    var login: EngineOptions.Login?
    private let timeoutMilliseconds: Int
    private(set) var phase = Phase.closed
    /// Index of the next server or sentinel.
    private var nextAddressIndex = 0
    private var pendingReplies = PendingReplies<Command>()
    /// Deadline of the connection attempt.
    private var connectionDeadline: MonotonicTime?
    /// Time of the next PING on the watching connection; nil in other phases. A half-open connection reports no change.
    private var nextPing: MonotonicTime?
    /// Time of the next query to another sentinel about the majority. A connection that watches answers no queries, so
    /// the other sentinel replaces it. Nil in other phases, and with one sentinel.
    private var nextQuorumCheck: MonotonicTime?
    /// Whether the next sentinel is queried about the majority.
    private var isQueryingQuorum = false
    /// Whether the connection replaces one that watched, and does not watch yet. Its first address is no reason to
    /// leave a primary: this sentinel may have missed a change.
    private(set) var isReplacementConnection = false
    /// Sentinels in a row that could not be queried.
    private var consecutiveSentinelFailures = 0

    /// Interval of the queries about the majority.
    static let quorumCheckIntervalMilliseconds = 5_000

    init(_ options: EngineOptions) {
        engineLocation = options.engineLocation
        login = options.sentinelLogin
        timeoutMilliseconds = options.timeoutMilliseconds
    }

    /// Whether there is an address to connect to.
    var hasAddresses: Bool {
        switch engineLocation {
        case .servers(let addresses), .sentinels(let addresses, _): !addresses.isEmpty
        }
    }

    /// Time at which the watching connection needs a call of `duePing` or `mustCheckQuorum`.
    var nextCheck: MonotonicTime? { [nextPing, nextQuorumCheck].compactMap(\.self).min() }

    /// Whether none of the sentinels could be queried since the last one that answered.
    var areAllSentinelsUnreachable: Bool {
        guard case .sentinels(let sentinels, _) = engineLocation else { return false }
        return consecutiveSentinelFailures >= sentinels.count
    }

    /// Time at which an answer is late.
    var replyDeadline: MonotonicTime? { [connectionDeadline, pendingReplies.deadline].compactMap(\.self).min() }

    /// The next server of a list; nil with sentinels.
    mutating func nextServer() -> EngineAddress? {
        guard case .servers(let servers) = engineLocation, !servers.isEmpty else { return nil }
        defer { nextAddressIndex += 1 }
        return servers[nextAddressIndex % servers.count]
    }

    /// Address of the next sentinel, to which the caller opens a connection; nil without sentinels.
    mutating func nextSentinel(now: MonotonicTime) -> EngineAddress? {
        guard case .sentinels(let sentinels, _) = engineLocation, !sentinels.isEmpty else { return nil }
        close()
        enter(.connecting)
        connectionDeadline = now.advanced(byMilliseconds: timeoutMilliseconds)
        defer { nextAddressIndex += 1 }
        return sentinels[nextAddressIndex % sentinels.count]
    }

    mutating func close() {
        // The opening of a connection begins with a close.
        if phase != .closed, phase != .watching { consecutiveSentinelFailures += 1 }
        enter(.closed)
        pendingReplies = PendingReplies()
        connectionDeadline = nil
        (nextPing, nextQuorumCheck) = (nil, nil)
        isReplacementConnection = false
    }

    /// Returns a PING for the watching connection if it is due.
    mutating func duePing(now: MonotonicTime) -> RESP.Command? {
        guard phase == .watching, let due = nextPing, due <= now else { return nil }
        nextPing = now.advanced(byMilliseconds: EngineLimits.heartbeatMilliseconds)
        pendingReplies.append(.ping, until: now.advanced(byMilliseconds: timeoutMilliseconds))
        return RESP.Command("PING")
    }

    /// Returns whether the next sentinel must be queried about the majority, in place of the present one.
    mutating func mustCheckQuorum(now: MonotonicTime) -> Bool {
        guard phase == .watching, let due = nextQuorumCheck, due <= now else { return false }
        isQueryingQuorum = true
        return true
    }

    /// Begins the queries over a connection that exists. Returns the commands to send.
    mutating func connectionOpened(now: MonotonicTime) -> [RESP.Command] {
        guard phase == .connecting, case .sentinels(_, let primary) = engineLocation else { return [] }
        enter(.querying)
        connectionDeadline = nil
        let deadline = now.advanced(byMilliseconds: timeoutMilliseconds)
        var commands: [RESP.Command] = []
        if let login {
            commands.append(login.authenticationCommand)
            pendingReplies.append(.authentication, until: deadline)
        }
        commands.append(RESP.Command("SENTINEL", "get-master-addr-by-name", primary))
        pendingReplies.append(.primaryAddress, until: deadline)
        if isQueryingQuorum {
            commands.append(RESP.Command("SENTINEL", "ckquorum", primary))
            pendingReplies.append(.quorumCheck, until: deadline)
            isQueryingQuorum = false
            isReplacementConnection = true
        }
        // On the same connection after the query, so that no change is missed between the two.
        commands.append(RESP.Command("SUBSCRIBE", "+switch-master"))
        pendingReplies.append(.subscription, until: deadline)
        return commands
    }

    mutating func receivedReply(_ reply: Reply, now: MonotonicTime) -> Finding {
        guard phase == .querying || phase == .watching else { return .nothing }
        if phase == .watching, reply.elements?.first?.text == "message" { return primaryChange(in: reply) }
        guard let command = pendingReplies.takeNext() else { return .sentinelFailed(.malformedReply) }
        if case .error(let text) = reply, command != .quorumCheck {
            return .sentinelFailed(EngineFault(error: text, isAuthentication: command == .authentication))
        }
        switch command {
        case .authentication: return reply == .status("OK") ? .nothing : .sentinelFailed(.malformedReply)
        case .primaryAddress:
            if reply == .null { return .sentinelFailed(.noPrimary) }
            guard let parts = reply.elements, parts.count == 2, let host = parts[0].text,
                let port = parts[1].text.flatMap({ UInt16($0) }), let address = EngineAddress(host: host, port: port)
            else { return .sentinelFailed(.malformedReply) }
            return .primary(address)
        case .quorumCheck: return Self.quorumResult(of: reply)
        case .subscription:
            guard reply.elements?.first?.text == "subscribe" else { return .sentinelFailed(.malformedReply) }
            enter(.watching)
            consecutiveSentinelFailures = 0
            isReplacementConnection = false
            nextPing = now.advanced(byMilliseconds: EngineLimits.heartbeatMilliseconds)
            if case .sentinels(let sentinels, _) = engineLocation, sentinels.count > 1 {
                nextQuorumCheck = now.advanced(byMilliseconds: Self.quorumCheckIntervalMilliseconds)
            }
            return .nothing
        case .ping: return reply.elements?.first?.text == "pong" ? .nothing : .sentinelFailed(.malformedReply)
        }
    }

    /// `OK 3 usable Sentinels. …` or `NOQUORUM …`. A sentinel whose user lacks the permission replies with neither.
    private static func quorumResult(of reply: Reply) -> Finding {
        switch reply {
        case .status(let text) where text.hasPrefix("OK"): .quorumReachable(true)
        case .error(let text) where text.hasPrefix("NOQUORUM"): .quorumReachable(false)
        case .status, .error, .integer, .bulkString, .array, .null: .nothing
        }
    }

    /// `+switch-master`: name, old host and port, new host and port.
    private func primaryChange(in reply: Reply) -> Finding {
        guard case .sentinels(_, let primary) = engineLocation, let parts = reply.elements, parts.count == 3,
            let text = parts[2].text
        else { return .sentinelFailed(.malformedReply) }
        let words = text.split(separator: " ")
        guard words.count == 5 else { return .sentinelFailed(.malformedReply) }
        guard words[0] == primary else { return .nothing }
        guard let port = UInt16(words[4]) else { return .sentinelFailed(.malformedReply) }
        guard let address = EngineAddress(host: String(words[3]), port: port) else {
            return .sentinelFailed(.malformedReply)
        }
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
    var authenticationCommand: Command {
        if let user { Command("AUTH", user, password) } else { Command("AUTH", password) }
    }
}

/// Lines `NAME:VALUE` of a server's answer to INFO, for `EngineSession` and `EngineProbe`.
struct ServerInfo {
    private var valuesByKey: [Substring: Substring] = [:]

    /// Nil for a reply of another form.
    init?(_ reply: Reply) {
        guard let text = reply.text else { return nil }
        for line in text.split(whereSeparator: \.isNewline) {
            let parts = line.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
            if parts.count == 2 { valuesByKey[parts[0]] = parts[1] }
        }
    }

    subscript(name: Substring) -> Substring? { valuesByKey[name] }

    /// Replicas that a primary names: host and port of each.
    var replicas: [(host: Substring, port: Substring)] {
        valuesByKey.keys.sorted().filter { $0.hasPrefix("slave") && Int($0.dropFirst(5)) != nil }.compactMap { name in
            let parts = (valuesByKey[name] ?? "").split(separator: ",")
            func value(_ key: String) -> Substring? { parts.first { $0.hasPrefix(key) }?.dropFirst(key.count) }
            guard let host = value("ip="), let port = value("port=") else { return nil }
            return (host, port)
        }
    }

    /// Whether a primary accepts writes without a replica.
    ///
    /// - Parameter expected: whether it should have replicas at present.
    func allowsWritesWithoutReplicas(expected: Bool) -> Bool {
        // The second line is present only while the setting is.
        (valuesByKey["connected_slaves"] != "0" || expected) && valuesByKey["min_slaves_good_slaves"] == nil
    }

    /// Whether the server evicts keys when its memory is full. Without `maxmemory` no policy evicts any.
    var evictsKeys: Bool {
        guard let most = valuesByKey["maxmemory"], let policy = valuesByKey["maxmemory_policy"] else { return false }
        return most != "0" && policy != "noeviction"
    }
}
