internal import EarshotCore
internal import EarshotHTTP
internal import RESP

/// Membership of this node in the cluster: decides about its connections to the engine, without I/O.
///
/// ```
/// stopped → locating → connecting → awaitingLease → joined
/// locating, connecting, awaitingLease, joined → backingOff     (failure)
/// backingOff → locating                                        (exponential backoff with jitter)
/// backingOff, connecting, awaitingLease, joined → connecting   (a sentinel reports another primary)
/// any → stopped                                                (stop)
/// ```
///
/// A failure ends both connections to the server and the membership: the fate of calls without a reply is unknown, so
/// the node joins under another ID and asserts everything again. The engine returns the attempts of the earlier ID
/// when its lease expires, unless they were asserted again.
struct EngineSession {
    enum Phase: Equatable {
        case stopped
        /// Queries a sentinel for the primary's address.
        case locating
        /// Connects, logs in, checks the role, loads scripts and subscribes.
        case connecting
        /// Waits for the lease.
        case awaitingLease
        case joined
        case backingOff(until: MonotonicTime)
    }

    /// Pauses after failures in a row. A failover takes about two seconds, so the first ones are short. The longest is
    /// short as well, because a node that fetches without the engine repeats fetches of the others until it is back.
    static let backoff = Backoff(initialMilliseconds: 50, maximumMilliseconds: 1_000)
    /// Pauses while an operator must correct something.
    static let operatorBackoff = Backoff(initialMilliseconds: 2_000, maximumMilliseconds: 30_000)
    /// Membership after which the pauses restart. Longer than the longest pause and three leases, so that an error that
    /// recurs after each join is retried with growing pauses.
    static let stableMembershipMilliseconds = 10_000
    /// Maximum number of batches of calls without a reply. Beyond it the server is too slow, and the node leaves.
    static let maximumPendingBatches = 1_024

    /// Heartbeats between two queries of the server's role, and of its memory.
    static let roleCheckIntervalHeartbeats = 5

    var options: EngineOptions
    let names: EngineNames
    private(set) var phase = Phase.stopped
    private(set) var nodeID = NodeID(0)
    var finder: PrimaryFinder
    /// Server of the present connections.
    private var server: EngineAddress?
    private var pendingReplies: [PendingReplies<PendingCommand>] = [PendingReplies(), PendingReplies()]
    private var isOpen = [false, false]
    /// Deadline of the connection attempts.
    private var connectionDeadline: MonotonicTime?
    private var scriptDigests: [EngineScript: String] = [:]
    private var nextHeartbeat: MonotonicTime?
    /// Time at which a lost sentinel is replaced.
    private var sentinelReconnectTime: MonotonicTime?
    /// Failures in a row, without a stable membership between them.
    private var consecutiveFailures = 0
    /// Time from which the present membership counts as stable; nil without one.
    private var stableMembershipTime: MonotonicTime?
    private var memberCount = 0
    private var messageCounts = EngineCounts()
    private var generator: SplitMix64Generator
    /// Number of the latest connection of each link. Events of an earlier one are dropped.
    private(set) var connectionNumbers = [0, 0, 0]
    private(set) var actions: [EngineAction] = []

    /// - Parameter seed: random number, from which the node's IDs and the jitter are made.
    init(_ options: EngineOptions, seed: UInt64) {
        self.options = options
        names = EngineNames(cluster: options.cluster)
        finder = PrimaryFinder(options)
        generator = SplitMix64Generator(seed: seed)
    }

    /// Removes and returns the work for the shell.
    mutating func takeActions() -> [EngineAction] {
        defer { actions.removeAll(keepingCapacity: true) }
        return actions
    }

    /// Earliest time at which `timePassed` has work; nil for none.
    var deadline: MonotonicTime? {
        var times = [
            connectionDeadline, pendingReplies[0].deadline, pendingReplies[1].deadline, nextHeartbeat,
            sentinelReconnectTime, finder.replyDeadline, finder.nextCheck,
        ]
        if case .backingOff(let end) = phase { times.append(end) }
        return times.compactMap(\.self).min()
    }

    // MARK: Events

    mutating func start(now: MonotonicTime) {
        guard phase == .stopped else { return }
        locatePrimary(now: now)
    }

    /// Leaves the cluster, and closes all connections after the call is sent.
    mutating func stop(now: MonotonicTime) {
        guard phase != .stopped else { return }
        if phase == .joined { submit([.leaveCluster], now: now) }
        let wasJoined = phase == .joined
        for link in EngineLink.allCases { close(link) }
        connectionDeadline = nil
        nextHeartbeat = nil
        sentinelReconnectTime = nil
        stableMembershipTime = nil
        consecutiveFailures = 0
        enter(.stopped)
        if wasJoined { actions.append(.report(.left(.leftCluster))) }
    }

    /// Uses other logins from the next connection on. Ends a pause, so that the next connection is made at once.
    mutating func useLogin(
        _ login: EngineOptions.Login?, ofSentinels sentinelLogin: EngineOptions.Login?, now: MonotonicTime
    ) {
        guard login != options.login || sentinelLogin != options.sentinelLogin else { return }
        options.login = login
        options.sentinelLogin = sentinelLogin
        finder.login = sentinelLogin
        consecutiveFailures = 0
        if case .backingOff = phase { locatePrimary(now: now) }
    }

    /// Changes the description of the node for the others. A member reports a change at once, with a heartbeat.
    mutating func setDescription(_ description: String, now: MonotonicTime) {
        guard description != options.description else { return }
        options.description = description
        if nextHeartbeat != nil { nextHeartbeat = now }
    }

    mutating func linkOpened(_ link: EngineLink, now: MonotonicTime) {
        guard link != .sentinel else {
            for command in finder.connectionOpened(now: now) { actions.append(.send(.sentinel, command)) }
            return
        }
        guard phase == .connecting else { return }
        isOpen[link.rawValue] = true
        if isOpen == [true, true] { connectionDeadline = nil }
        if let login = options.login {
            send(login.authenticationCommand, expecting: .authentication, over: link, now: now)
        }
        switch link {
        case .scripts:
            send(Command("INFO", "replication"), expecting: .roleQuery, over: .scripts, now: now)
            send(Command("INFO", "memory"), expecting: .memoryQuery, over: .scripts, now: now)
            for script in EngineScript.allCases {
                var command = Command("SCRIPT", "LOAD")
                command.append(script.scriptText)
                send(command, expecting: .scriptLoad(script), over: .scripts, now: now)
            }
        case .notifications:
            let subscribe = Command("SUBSCRIBE", names.channel(of: nodeID))
            send(subscribe, expecting: .subscription, over: .notifications, now: now)
        case .sentinel: break
        }
    }

    mutating func receivedReply(_ reply: Reply, from link: EngineLink, now: MonotonicTime) {
        if link == .sentinel {
            switch finder.receivedReply(reply, now: now) {
            case .nothing: break
            case .primary(let address): primaryFound(address, now: now)
            case .quorumReachable(let isThere): report(quorum: isThere)
            case .sentinelFailed(let fault): sentinelFailed(fault, now: now)
            }
            return
        }
        guard hasServerConnection else { return }
        if link == .notifications, let parts = reply.elements, parts.first?.text == "message" {
            return handleNotification(parts, now: now)
        }
        guard let command = pendingReplies[link.rawValue].takeNext() else {
            return failConnection(.malformedReply, now: now)
        }
        handleReply(reply, to: command, now: now)
    }

    /// Handles a connection that ended, could not be made, or had bytes that are no reply.
    mutating func linkClosed(_ link: EngineLink, fault: EngineFault, now: MonotonicTime) {
        if link == .sentinel { return sentinelFailed(fault, now: now) }
        if hasServerConnection { failConnection(fault, now: now) }
    }

    mutating func timePassed(now: MonotonicTime) {
        if let late = finder.replyDeadline, late <= now { sentinelFailed(.timedOut, now: now) }
        if let command = finder.duePing(now: now) { actions.append(.send(.sentinel, command)) }
        if finder.mustCheckQuorum(now: now) {
            close(.sentinel)
            openSentinel(now: now)
        }
        if case .backingOff(let end) = phase, end <= now { locatePrimary(now: now) }
        if let next = sentinelReconnectTime, next <= now { reconnectSentinel(now: now) }
        let deadlines = [connectionDeadline, pendingReplies[0].deadline, pendingReplies[1].deadline].compactMap(\.self)
        if let late = deadlines.min(), late <= now { return failConnection(.timedOut, now: now) }
        if let next = nextHeartbeat, next <= now {
            nextHeartbeat = now.advanced(byMilliseconds: EngineLimits.heartbeatMilliseconds)
            renew(isJoin: false, now: now)
            send(Command("PING"), expecting: .ping, over: .notifications, now: now)
            messageCounts.recordPing()
            heartbeats += 1
            // Replicas and settings change while the server works.
            guard mayQueryServerInfo else { return }
            switch heartbeats % Self.roleCheckIntervalHeartbeats {
            case 0: send(Command("INFO", "replication"), expecting: .roleQuery, over: .scripts, now: now)
            case 1: send(Command("INFO", "memory"), expecting: .memoryQuery, over: .scripts, now: now)
            default: break
            }
        }
    }

    /// Sends calls in as few batches as possible. Drops them unless the node is a member, since they would have no
    /// meaning.
    mutating func submit(_ calls: [EngineCall], now: MonotonicTime) {
        for batch in EngineBatch.batches(of: calls) where phase == .joined {
            guard pendingBatchCount < Self.maximumPendingBatches else { return failConnection(.timedOut, now: now) }
            sendBatch(batch, isText: false, now: now)
        }
    }

    private mutating func sendBatch(_ batch: EngineBatch, isText: Bool, now: MonotonicTime) {
        pendingBatchCount += 1
        var command = scriptCommand(batch.script, isText: isText)
        batch.appendArguments(to: &command, node: nodeID)
        send(command, expecting: .batch(batch, isText: isText), over: .scripts, now: now)
    }

    // MARK: Finding the server

    private var hasServerConnection: Bool {
        switch phase {
        case .connecting, .awaitingLease, .joined: true
        case .stopped, .locating, .backingOff: false
        }
    }

    private mutating func locatePrimary(now: MonotonicTime) {
        enter(.locating)
        if let server = finder.nextServer() { return connectToServer(server, now: now) }
        guard finder.hasAddresses else { return failConnection(.noServerAddress, now: now) }
        sentinelReconnectTime = nil
        openSentinel(now: now)
    }

    private mutating func openSentinel(now: MonotonicTime) {
        guard let sentinel = finder.nextSentinel(now: now) else { return }
        connectionNumbers[EngineLink.sentinel.rawValue] += 1
        actions.append(.open(.sentinel, sentinel))
    }

    /// Replaces a sentinel's connection that was lost while the server worked.
    private mutating func reconnectSentinel(now: MonotonicTime) {
        sentinelReconnectTime = nil
        if finder.phase == .closed { openSentinel(now: now) }
    }

    private mutating func primaryFound(_ address: EngineAddress, now: MonotonicTime) {
        // A sentinel that replaces another one for the query of the quorum may have missed a change of the primary.
        guard phase == .locating || !finder.isReplacementConnection else { return }
        switch phase {
        case .stopped: break
        case .locating, .backingOff: connectToServer(address, now: now)
        case .connecting, .awaitingLease, .joined:
            guard address != server else { return }
            endConnections(.notPrimary)
            connectToServer(address, now: now)
        }
    }

    private mutating func sentinelFailed(_ fault: EngineFault, now: MonotonicTime) {
        guard finder.phase != .closed else { return }
        close(.sentinel)
        if phase == .locating {
            failConnection(fault.needsOperator ? fault : .noPrimary, now: now)
        } else if phase != .stopped {
            if finder.areAllSentinelsUnreachable { report(quorum: false) }
            sentinelReconnectTime = now.advanced(byMilliseconds: EngineLimits.heartbeatMilliseconds)
        }
    }

    private mutating func report(quorum isThere: Bool) {
        actions.append(.report(isThere ? .remedied(.noQuorum) : .warning(.noQuorum)))
    }

    private mutating func connectToServer(_ server: EngineAddress, now: MonotonicTime) {
        enter(.connecting)
        nodeID = NodeID(generator.next())
        self.server = server
        scriptDigests = [:]
        memberCount = 0
        messageCounts = EngineCounts()
        allowsWritesWithoutReplicas = false
        mayQueryServerInfo = true
        connectionDeadline = now.advanced(byMilliseconds: options.timeoutMilliseconds)
        actions.append(.open(.scripts, server))
        actions.append(.open(.notifications, server))
    }

    // MARK: Replies

    private mutating func handleReply(_ reply: Reply, to command: PendingCommand, now: MonotonicTime) {
        if case .batch = command { pendingBatchCount -= 1 }
        if case .error(let text) = reply { return handleErrorReply(text, to: command, now: now) }
        switch command {
        case .authentication:
            if reply != .status("OK") { failConnection(.malformedReply, now: now) }
        case .roleQuery: checkRole(reply, now: now)
        case .memoryQuery: checkMemory(reply, now: now)
        case .scriptLoad(let script):
            guard case .bulkString(let digest) = reply else { return failConnection(.malformedReply, now: now) }
            scriptDigests[script] = String(decoding: digest, as: UTF8.self)
            joinIfReady(now: now)
        case .subscription:
            guard reply.elements?.first?.text == "subscribe" else { return failConnection(.malformedReply, now: now) }
            isSubscribed = true
            joinIfReady(now: now)
        case .ping:
            guard reply.elements?.first?.text == "pong" else { return failConnection(.malformedReply, now: now) }
            if messageCounts.recordPong() { actions.append(.report(.messagesLost)) }
        case .join, .renewal: handleRenewal(reply, isJoin: command == .join, now: now)
        case .reapDeadNodes:
            guard let values = reply.elements, values.count == 2, let more = values[1].number else {
                return failConnection(.malformedReply, now: now)
            }
            if more == 1, phase == .joined { reapDeadNodes(now: now) }
        case .batch(let batch, _):
            guard let events = batch.events(forReply: reply) else { return failConnection(.malformedReply, now: now) }
            if batch.script == .pass { messageCounts.recordAnsweredCall() }
            for event in events {
                if case .surveyed(var survey) = event {
                    survey.latencyMicroseconds = pendingReplies[EngineLink.scripts.rawValue].latencyMicroseconds(
                        now: now, timeoutMilliseconds: options.timeoutMilliseconds)
                    actions.append(.report(.surveyed(survey)))
                } else {
                    actions.append(.report(event))
                }
            }
        }
    }

    private mutating func handleErrorReply(_ text: String, to command: PendingCommand, now: MonotonicTime) {
        if text.hasPrefix("NOSCRIPT"), resendScriptText(of: command, now: now) { return }
        if text.hasPrefix("VERSION ") {
            let version = text.dropFirst("VERSION ".count).prefix { $0 != " " }
            return failConnection(
                version == String(EngineScript.scriptVersion) ? .secretMismatch : .scriptVersionMismatch, now: now)
        }
        let fault = EngineFault(error: text, isAuthentication: command == .authentication)
        if case .notPermitted = fault {
            switch command {
            case .roleQuery:
                // A replica refuses the first write anyway.
                mayQueryServerInfo = false
                actions.append(.report(.warning(.roleUnknown)))
                return
            // INFO has been reported already.
            case .memoryQuery: return
            case .authentication, .scriptLoad, .subscription, .ping, .join, .renewal, .reapDeadNodes, .batch: break
            }
        }
        failConnection(fault, now: now)
    }

    /// Sends the text of a script that the server does not know: after SCRIPT FLUSH, or on a replica that was promoted.
    private mutating func resendScriptText(of command: PendingCommand, now: MonotonicTime) -> Bool {
        switch command {
        case .batch(let batch, false): sendBatch(batch, isText: true, now: now)
        case .join, .renewal: renew(isJoin: command == .join, isText: true, now: now)
        case .reapDeadNodes: reapDeadNodes(isText: true, now: now)
        case .batch, .authentication, .roleQuery, .memoryQuery, .scriptLoad, .subscription, .ping: return false
        }
        return true
    }

    private mutating func checkRole(_ reply: Reply, now: MonotonicTime) {
        guard let info = ServerInfo(reply), let role = info["role"] else {
            return failConnection(.malformedReply, now: now)
        }
        guard role == "master" else { return failConnection(.notPrimary, now: now) }
        let isUnsafe = info.allowsWritesWithoutReplicas(expected: options.expectsReplicas)
        guard isUnsafe != allowsWritesWithoutReplicas else { return }
        allowsWritesWithoutReplicas = isUnsafe
        let warning = EngineWarning.writesWithoutReplicas
        actions.append(.report(isUnsafe ? .warning(warning) : .remedied(warning)))
    }

    /// Refuses a server that may evict keys: a lost claim or attempt would be fetched again.
    private mutating func checkMemory(_ reply: Reply, now: MonotonicTime) {
        guard let info = ServerInfo(reply) else { return failConnection(.malformedReply, now: now) }
        if info.evictsKeys { failConnection(.evictionEnabled, now: now) }
    }

    private mutating func joinIfReady(now: MonotonicTime) {
        guard phase == .connecting, isSubscribed, scriptDigests.count == EngineScript.allCases.count else { return }
        enter(.awaitingLease)
        renew(isJoin: true, now: now)
    }

    private mutating func handleRenewal(_ reply: Reply, isJoin: Bool, now: MonotonicTime) {
        guard let values = reply.elements?.map(\.number), values.count == 4, let live = values[0],
            let expired = values[1], let calls = values[2], let messages = values[3], live > 0,
            EngineCounts.validRange.contains(calls), EngineCounts.validRange.contains(messages)
        else { return failConnection(.malformedReply, now: now) }
        guard messageCounts.recordHeartbeat(calls: calls, messages: messages) else {
            return failConnection(.leaseLost, now: now)
        }
        if isJoin {
            enter(.joined)
            stableMembershipTime = now.advanced(byMilliseconds: Self.stableMembershipMilliseconds)
            memberCount = live
            nextHeartbeat = now.advanced(byMilliseconds: EngineLimits.heartbeatMilliseconds)
            actions.append(.report(.joined(nodeID, members: live)))
        } else if live != memberCount {
            memberCount = live
            actions.append(.report(.members(live)))
        }
        if expired > 0 { reapDeadNodes(now: now) }
    }

    private mutating func handleNotification(_ parts: [Reply], now: MonotonicTime) {
        guard parts.count == 3, case .bulkString(let message) = parts[2],
            let events = EngineNotification.events(message)
        else { return failConnection(.malformedReply, now: now) }
        messageCounts.recordReceivedMessage()
        // A message before the join belongs to no want of this node.
        if phase == .joined { for event in events { actions.append(.report(event)) } }
    }

    // MARK: Commands

    private func scriptCommand(_ script: EngineScript, isText: Bool = false) -> Command {
        var command = Command(isText ? "EVAL" : "EVALSHA")
        if isText { command.append(script.scriptText) } else { command.append(scriptDigests[script] ?? "") }
        command.append("2")
        command.append(names.prefix)
        command.append(names.version)
        return command
    }

    private mutating func renew(isJoin: Bool, isText: Bool = false, now: MonotonicTime) {
        var command = scriptCommand(.renew, isText: isText)
        command.append(nodeID.description)
        command.append(String(EngineLimits.leaseMilliseconds))
        command.append(isJoin ? "1" : "0")
        command.append(EngineScript.compatibilityText(options))
        command.append(options.description)
        command.append(String(EngineLimits.resultRetentionMilliseconds))
        command.append(String(EngineLimits.shortenedRetentionMilliseconds))
        command.append(String(EngineLimits.shortenedRetentionThreshold))
        send(command, expecting: isJoin ? .join : .renewal, over: .scripts, now: now)
    }

    private mutating func reapDeadNodes(isText: Bool = false, now: MonotonicTime) {
        var command = scriptCommand(.reap, isText: isText)
        command.append("")
        command.append(String(EngineLimits.maximumFlightsPerCall))
        send(command, expecting: .reapDeadNodes, over: .scripts, now: now)
    }

    private mutating func send(
        _ command: Command, expecting kind: PendingCommand, over link: EngineLink, now: MonotonicTime
    ) {
        pendingReplies[link.rawValue].append(kind, until: now.advanced(byMilliseconds: options.timeoutMilliseconds))
        actions.append(.send(link, command))
    }

    // MARK: Failures

    private mutating func failConnection(_ fault: EngineFault, now: MonotonicTime) {
        if let stableMembershipTime, stableMembershipTime <= now { consecutiveFailures = 0 }
        endConnections(fault)
        consecutiveFailures += 1
        let backoff = fault.needsOperator ? Self.operatorBackoff : Self.backoff
        let pause = backoff.delayNanoseconds(afterFailures: consecutiveFailures, random: generator.next())
        enter(.backingOff(until: now.advanced(byNanoseconds: pause)))
    }

    /// Closes the connections to the server, and reports the reason. Each failed attempt has a report.
    private mutating func endConnections(_ fault: EngineFault) {
        close(.scripts)
        close(.notifications)
        connectionDeadline = nil
        nextHeartbeat = nil
        stableMembershipTime = nil
        actions.append(.report(.left(fault)))
    }

    private mutating func close(_ link: EngineLink) {
        actions.append(.close(link))
        connectionNumbers[link.rawValue] += 1
        guard link != .sentinel else { return finder.close() }
        pendingReplies[link.rawValue] = PendingReplies()
        isOpen[link.rawValue] = false
        if link == .scripts { pendingBatchCount = 0 } else { isSubscribed = false }
    }

    private mutating func enter(_ next: Phase) {
        precondition(phase.mayBecome(next), "the engine's session goes from \(phase) to \(next)")
        phase = next
    }

    /// Batches of calls without a reply.
    private(set) var pendingBatchCount = 0
    private var isSubscribed = false
    /// Heartbeats of all memberships.
    private var heartbeats = 0
    /// Whether the server permits INFO.
    private var mayQueryServerInfo = true
    /// Whether the primary accepts writes without a replica, as last reported.
    private var allowsWritesWithoutReplicas = false
}
