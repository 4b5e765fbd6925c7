internal import EarshotCore
internal import EarshotHTTP
internal import RESP

/// Membership of this node in the cluster: decides about its connections to the engine, without I/O.
///
/// ```
/// stopped → locating → greeting → joining → joined
///               ↑          │          │        │
///               └─ resting ←──────────┴────────┘   (failure; exponential backoff with jitter)
/// any → stopped                                    (stop)
/// resting, greeting, joining, joined → greeting    (a sentinel reports another primary)
/// ```
///
/// A failure ends both connections to the server and the membership: the fate of calls without a reply is unknown, so
/// the node joins under another ID and asserts everything again. The engine returns the attempts of the earlier ID
/// when its lease expires, unless they were asserted again.
struct EngineSession {
    enum Phase: Equatable {
        case stopped
        /// Asks a sentinel for the primary's address.
        case locating
        /// Connects, logs in, checks the role, loads scripts and subscribes.
        case greeting
        /// Waits for the lease.
        case joining
        case joined
        case resting(until: Tick)
    }

    /// Pauses after failures in a row. A failover takes about two seconds, so the first ones are short. The longest is short
    /// as well, because a node that fetches without the engine repeats fetches of the others until it is back.
    static let backoff = Backoff(firstMilliseconds: 50, longestMilliseconds: 1_000)
    /// Pauses while an operator must correct something.
    static let longBackoff = Backoff(firstMilliseconds: 2_000, longestMilliseconds: 30_000)
    /// Membership after which the pauses restart. Longer than the longest pause and three leases, so that an error that
    /// recurs after each join is retried with growing pauses.
    static let stableMilliseconds = 10_000
    /// Maximum number of batches of calls without a reply. Beyond it the server is too slow, and the node leaves.
    static let mostBatches = 1_024

    /// Heartbeats between two looks at the server's role, and at its memory.
    static let roleInterval = 5

    var options: EngineOptions
    let names: EngineNames
    private(set) var phase = Phase.stopped
    private(set) var node = NodeID(0)
    var finder: PrimaryFinder
    /// Server of the present connections.
    private var server: EngineAddress?
    private var pendingReplies: [PendingReplies<Pending>] = [PendingReplies(), PendingReplies()]
    private var isOpen = [false, false]
    /// Deadline of the connection attempts.
    private var connectionDeadline: Tick?
    private var scriptDigests: [EngineScript: String] = [:]
    private var nextHeartbeat: Tick?
    /// Time at which a lost sentinel is replaced.
    private var nextWatch: Tick?
    /// Failures in a row, without a settled membership between them.
    private var failures = 0
    /// Time at which the present membership is settled; nil without one.
    private var stableAt: Tick?
    private var members = 0
    private var messageCounts = EngineCounts()
    private var generator: SplitMix
    /// Number of the latest connection of each link. Events of an earlier one are dropped.
    private(set) var connections = [0, 0, 0]
    private(set) var actions: [EngineAction] = []

    /// - Parameter seed: Random number, from which the node's IDs and the jitter are made.
    init(_ options: EngineOptions, seed: UInt64) {
        self.options = options
        names = EngineNames(cluster: options.cluster)
        finder = PrimaryFinder(options)
        generator = SplitMix(seed: seed)
    }

    /// Removes and returns the work for the shell.
    mutating func takeActions() -> [EngineAction] {
        defer { actions.removeAll(keepingCapacity: true) }
        return actions
    }

    /// Earliest time at which `timePassed` has work; nil for none.
    var deadline: Tick? {
        var times = [
            connectionDeadline, pendingReplies[0].deadline, pendingReplies[1].deadline, nextHeartbeat, nextWatch,
            finder.deadline,
            finder.nextCheck,
        ]
        if case .resting(let end) = phase { times.append(end) }
        return times.compactMap(\.self).min()
    }

    // MARK: Events

    mutating func start(now: Tick) {
        guard phase == .stopped else { return }
        locate(now: now)
    }

    /// Leaves the cluster, and closes all connections after the call is sent.
    mutating func stop(now: Tick) {
        guard phase != .stopped else { return }
        if phase == .joined { submit([.leave], now: now) }
        let wasJoined = phase == .joined
        for link in EngineLink.allCases { close(link) }
        connectionDeadline = nil
        nextHeartbeat = nil
        nextWatch = nil
        stableAt = nil
        failures = 0
        enter(.stopped)
        if wasJoined { actions.append(.report(.left(.left))) }
    }

    /// Uses other logins from the next connection on. One that is due only later is made at once.
    mutating func use(_ login: EngineOptions.Login?, ofSentinels sentinelLogin: EngineOptions.Login?, now: Tick) {
        guard login != options.login || sentinelLogin != options.sentinelLogin else { return }
        options.login = login
        options.sentinelLogin = sentinelLogin
        finder.login = sentinelLogin
        failures = 0
        if case .resting = phase { locate(now: now) }
    }

    /// Changes the description of the node for the others. A member reports a change at once, with a heartbeat.
    mutating func describe(_ description: String, now: Tick) {
        guard description != options.description else { return }
        options.description = description
        if nextHeartbeat != nil { nextHeartbeat = now }
    }

    mutating func linkOpened(_ link: EngineLink, now: Tick) {
        guard link != .sentinel else {
            for command in finder.opened(now: now) { actions.append(.send(.sentinel, command)) }
            return
        }
        guard phase == .greeting else { return }
        isOpen[link.rawValue] = true
        if isOpen == [true, true] { connectionDeadline = nil }
        if let login = options.login { send(login.command, .authentication, link, now: now) }
        switch link {
        case .calls:
            send(Command("INFO", "replication"), .role, .calls, now: now)
            send(Command("INFO", "memory"), .memory, .calls, now: now)
            for script in EngineScript.allCases {
                var command = Command("SCRIPT", "LOAD")
                command.append(script.text)
                send(command, .load(script), .calls, now: now)
            }
        case .notices:
            send(Command("SUBSCRIBE", names.channel(of: node)), .subscription, .notices, now: now)
        case .sentinel: break
        }
    }

    mutating func received(_ reply: Reply, from link: EngineLink, now: Tick) {
        if link == .sentinel {
            switch finder.received(reply, now: now) {
            case .nothing: break
            case .primary(let address): primaryFound(address, now: now)
            case .quorum(let isThere): report(quorum: isThere)
            case .failed(let fault): sentinelFailed(fault, now: now)
            }
            return
        }
        guard isServing else { return }
        if link == .notices, let parts = reply.elements, parts.first?.text == "message" {
            return notified(parts, now: now)
        }
        guard let command = pendingReplies[link.rawValue].takeNext() else { return fail(.malformed, now: now) }
        handle(reply, to: command, now: now)
    }

    /// A connection ended, could not be made, or had bytes that are no reply.
    mutating func closed(_ link: EngineLink, _ fault: EngineFault, now: Tick) {
        if link == .sentinel { return sentinelFailed(fault, now: now) }
        if isServing { fail(fault, now: now) }
    }

    mutating func timePassed(now: Tick) {
        if let late = finder.deadline, late <= now { sentinelFailed(.timedOut, now: now) }
        if let command = finder.check(now: now) { actions.append(.send(.sentinel, command)) }
        if finder.queriesQuorum(now: now) {
            close(.sentinel)
            openSentinel(now: now)
        }
        if case .resting(let end) = phase, end <= now { locate(now: now) }
        if let next = nextWatch, next <= now { watch(now: now) }
        let deadlines = [connectionDeadline, pendingReplies[0].deadline, pendingReplies[1].deadline].compactMap(\.self)
        if let late = deadlines.min(), late <= now { return fail(.timedOut, now: now) }
        if let next = nextHeartbeat, next <= now {
            nextHeartbeat = now.advanced(byMilliseconds: EngineLimits.heartbeatMilliseconds)
            renew(isJoin: false, now: now)
            send(Command("PING"), .ping, .notices, now: now)
            messageCounts.pinged()
            heartbeats += 1
            // Replicas and settings change while the server works.
            guard mayQueryRole else { return }
            switch heartbeats % Self.roleInterval {
            case 0: send(Command("INFO", "replication"), .role, .calls, now: now)
            case 1: send(Command("INFO", "memory"), .memory, .calls, now: now)
            default: break
            }
        }
    }

    /// Sends calls in as few batches as possible. Dropped unless the node is a member: they then have no meaning.
    mutating func submit(_ calls: [EngineCall], now: Tick) {
        for batch in EngineBatch.batches(of: calls) where phase == .joined {
            guard batchCount < Self.mostBatches else { return fail(.timedOut, now: now) }
            send(batch, isText: false, now: now)
        }
    }

    private mutating func send(_ batch: EngineBatch, isText: Bool, now: Tick) {
        batchCount += 1
        var command = script(batch.script, isText: isText)
        batch.append(to: &command, node: node)
        send(command, .batch(batch, isText: isText), .calls, now: now)
    }

    // MARK: Finding the server

    private var isServing: Bool {
        switch phase {
        case .greeting, .joining, .joined: true
        case .stopped, .locating, .resting: false
        }
    }

    private mutating func locate(now: Tick) {
        enter(.locating)
        if let server = finder.nextServer() { return greet(server, now: now) }
        guard finder.hasAddresses else { return fail(.noAddress, now: now) }
        nextWatch = nil
        openSentinel(now: now)
    }

    private mutating func openSentinel(now: Tick) {
        guard let sentinel = finder.nextSentinel(now: now) else { return }
        connections[EngineLink.sentinel.rawValue] += 1
        actions.append(.open(.sentinel, sentinel))
    }

    /// Replaces a sentinel's connection that was lost while the server worked.
    private mutating func watch(now: Tick) {
        nextWatch = nil
        if finder.phase == .closed { openSentinel(now: now) }
    }

    private mutating func primaryFound(_ address: EngineAddress, now: Tick) {
        // A sentinel that was asked about the majority may have missed a change of the primary.
        guard phase == .locating || !finder.isQuery else { return }
        switch phase {
        case .stopped: break
        case .locating, .resting: greet(address, now: now)
        case .greeting, .joining, .joined:
            guard address != server else { return }
            end(.notPrimary)
            greet(address, now: now)
        }
    }

    private mutating func sentinelFailed(_ fault: EngineFault, now: Tick) {
        guard finder.phase != .closed else { return }
        close(.sentinel)
        if phase == .locating {
            fail(fault.needsOperator ? fault : .noPrimary, now: now)
        } else if phase != .stopped {
            if finder.areAllLost { report(quorum: false) }
            nextWatch = now.advanced(byMilliseconds: EngineLimits.heartbeatMilliseconds)
        }
    }

    private mutating func report(quorum isThere: Bool) {
        actions.append(.report(isThere ? .remedied(.noQuorum) : .warning(.noQuorum)))
    }

    private mutating func greet(_ server: EngineAddress, now: Tick) {
        enter(.greeting)
        node = NodeID(generator.next())
        self.server = server
        scriptDigests = [:]
        members = 0
        messageCounts = EngineCounts()
        writesWithoutReplicas = false
        mayQueryRole = true
        connectionDeadline = now.advanced(byMilliseconds: options.patienceMilliseconds)
        actions.append(.open(.calls, server))
        actions.append(.open(.notices, server))
    }

    // MARK: Replies

    private mutating func handle(_ reply: Reply, to command: Pending, now: Tick) {
        if case .batch = command { batchCount -= 1 }
        if case .error(let text) = reply { return handle(error: text, to: command, now: now) }
        switch command {
        case .authentication:
            if reply != .status("OK") { fail(.malformed, now: now) }
        case .role: checkRole(reply, now: now)
        case .memory: checkMemory(reply, now: now)
        case .load(let script):
            guard case .bytes(let digest) = reply else { return fail(.malformed, now: now) }
            scriptDigests[script] = String(decoding: digest, as: UTF8.self)
            joinIfReady(now: now)
        case .subscription:
            guard reply.elements?.first?.text == "subscribe" else { return fail(.malformed, now: now) }
            isSubscribed = true
            joinIfReady(now: now)
        case .ping:
            guard reply.elements?.first?.text == "pong" else { return fail(.malformed, now: now) }
            if messageCounts.ponged() { actions.append(.report(.messagesLost)) }
        case .join, .renewal: renewed(reply, isJoin: command == .join, now: now)
        case .reap:
            guard let values = reply.elements, values.count == 2, let more = values[1].number else {
                return fail(.malformed, now: now)
            }
            if more == 1, phase == .joined { reapDeadNodes(now: now) }
        case .batch(let batch, _):
            guard let events = batch.answers(reply) else { return fail(.malformed, now: now) }
            if batch.script == .pass { messageCounts.answered() }
            for event in events {
                if case .surveyed(var survey) = event {
                    survey.latencyMicroseconds = pendingReplies[EngineLink.calls.rawValue].latency(
                        now: now, patienceMilliseconds: options.patienceMilliseconds)
                    actions.append(.report(.surveyed(survey)))
                } else {
                    actions.append(.report(event))
                }
            }
        }
    }

    private mutating func handle(error text: String, to command: Pending, now: Tick) {
        if text.hasPrefix("NOSCRIPT"), resend(command, now: now) { return }
        if text.hasPrefix("VERSION ") {
            let version = text.dropFirst("VERSION ".count).prefix { $0 != " " }
            return fail(version == String(EngineScript.version) ? .otherSecret : .otherVersion, now: now)
        }
        let fault = EngineFault(error: text, isAuthentication: command == .authentication)
        if case .notPermitted = fault {
            switch command {
            case .role:
                // A replica refuses the first write anyway.
                mayQueryRole = false
                actions.append(.report(.warning(.roleUnknown)))
                return
            // INFO has been reported already.
            case .memory: return
            case .authentication, .load, .subscription, .ping, .join, .renewal, .reap, .batch: break
            }
        }
        fail(fault, now: now)
    }

    /// Sends the text of a script that the server does not know: after SCRIPT FLUSH, or on a replica that was promoted.
    private mutating func resend(_ command: Pending, now: Tick) -> Bool {
        switch command {
        case .batch(let batch, false): send(batch, isText: true, now: now)
        case .join, .renewal: renew(isJoin: command == .join, isText: true, now: now)
        case .reap: reapDeadNodes(isText: true, now: now)
        case .batch, .authentication, .role, .memory, .load, .subscription, .ping: return false
        }
        return true
    }

    private mutating func checkRole(_ reply: Reply, now: Tick) {
        guard let info = ServerInfo(reply), let role = info["role"] else { return fail(.malformed, now: now) }
        guard role == "master" else { return fail(.notPrimary, now: now) }
        let isUnsafe = info.writesWithoutReplicas(expected: options.expectsReplicas)
        guard isUnsafe != writesWithoutReplicas else { return }
        writesWithoutReplicas = isUnsafe
        let warning = EngineWarning.writesWithoutReplicas
        actions.append(.report(isUnsafe ? .warning(warning) : .remedied(warning)))
    }

    /// Refuses a server that may evict keys: a lost claim or attempt would be fetched again.
    private mutating func checkMemory(_ reply: Reply, now: Tick) {
        guard let info = ServerInfo(reply) else { return fail(.malformed, now: now) }
        if info.evicts { fail(.evicts, now: now) }
    }

    private mutating func joinIfReady(now: Tick) {
        guard phase == .greeting, isSubscribed, scriptDigests.count == EngineScript.allCases.count else { return }
        enter(.joining)
        renew(isJoin: true, now: now)
    }

    private mutating func renewed(_ reply: Reply, isJoin: Bool, now: Tick) {
        guard let values = reply.elements?.map(\.number), values.count == 4, let live = values[0],
            let expired = values[1], let calls = values[2], let messages = values[3], live > 0,
            EngineCounts.range.contains(calls), EngineCounts.range.contains(messages)
        else { return fail(.malformed, now: now) }
        guard messageCounts.renewed(calls: calls, messages: messages) else { return fail(.leaseLost, now: now) }
        if isJoin {
            enter(.joined)
            stableAt = now.advanced(byMilliseconds: Self.stableMilliseconds)
            members = live
            nextHeartbeat = now.advanced(byMilliseconds: EngineLimits.heartbeatMilliseconds)
            actions.append(.report(.joined(node, members: live)))
        } else if live != members {
            members = live
            actions.append(.report(.members(live)))
        }
        if expired > 0 { reapDeadNodes(now: now) }
    }

    private mutating func notified(_ parts: [Reply], now: Tick) {
        guard parts.count == 3, case .bytes(let message) = parts[2], let events = EngineNotification.events(message)
        else { return fail(.malformed, now: now) }
        messageCounts.received()
        // A message before the join belongs to no want of this node.
        if phase == .joined { for event in events { actions.append(.report(event)) } }
    }

    // MARK: Commands

    private func script(_ script: EngineScript, isText: Bool = false) -> Command {
        var command = Command(isText ? "EVAL" : "EVALSHA")
        if isText { command.append(script.text) } else { command.append(scriptDigests[script] ?? "") }
        command.append("2")
        command.append(names.prefix)
        command.append(names.version)
        return command
    }

    private mutating func renew(isJoin: Bool, isText: Bool = false, now: Tick) {
        var command = script(.renew, isText: isText)
        command.append(node.description)
        command.append(String(EngineLimits.leaseMilliseconds))
        command.append(isJoin ? "1" : "0")
        command.append(EngineScript.check(options))
        command.append(options.description)
        command.append(String(EngineLimits.resultMilliseconds))
        command.append(String(EngineLimits.crowdedResultMilliseconds))
        command.append(String(EngineLimits.mostResults))
        send(command, isJoin ? .join : .renewal, .calls, now: now)
    }

    private mutating func reapDeadNodes(isText: Bool = false, now: Tick) {
        var command = script(.reap, isText: isText)
        command.append("")
        command.append(String(EngineLimits.batch))
        send(command, .reap, .calls, now: now)
    }

    private mutating func send(_ command: Command, _ kind: Pending, _ link: EngineLink, now: Tick) {
        pendingReplies[link.rawValue].append(kind, until: now.advanced(byMilliseconds: options.patienceMilliseconds))
        actions.append(.send(link, command))
    }

    // MARK: Failures

    private mutating func fail(_ fault: EngineFault, now: Tick) {
        if let stableAt, stableAt <= now { failures = 0 }
        end(fault)
        failures += 1
        let backoff = fault.needsOperator ? Self.longBackoff : Self.backoff
        let pause = backoff.pause(afterFailures: failures, random: generator.next())
        enter(.resting(until: now.advanced(byNanoseconds: pause)))
    }

    /// Closes the connections to the server, and reports the reason. Each failed attempt has a report.
    private mutating func end(_ fault: EngineFault) {
        close(.calls)
        close(.notices)
        connectionDeadline = nil
        nextHeartbeat = nil
        stableAt = nil
        actions.append(.report(.left(fault)))
    }

    private mutating func close(_ link: EngineLink) {
        actions.append(.close(link))
        connections[link.rawValue] += 1
        guard link != .sentinel else { return finder.close() }
        pendingReplies[link.rawValue] = PendingReplies()
        isOpen[link.rawValue] = false
        if link == .calls { batchCount = 0 } else { isSubscribed = false }
    }

    private mutating func enter(_ next: Phase) {
        precondition(phase.mayBecome(next), "the engine's session goes from \(phase) to \(next)")
        phase = next
    }

    /// Batches of calls without a reply.
    private(set) var batchCount = 0
    private var isSubscribed = false
    /// Heartbeats of all memberships.
    private var heartbeats = 0
    /// Whether the server permits INFO.
    private var mayQueryRole = true
    /// Whether the primary accepts writes without a replica, as last reported.
    private var writesWithoutReplicas = false
}
