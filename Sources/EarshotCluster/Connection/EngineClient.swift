public import EarshotCore
public import EarshotLoop
internal import LibCrypto

/// Connection of this node to the engine, on the broker's loop.
///
/// In each pass of the loop the owner calls ``runPass()``, ``takeEvents()``, and ``submit(_:)`` for the core's calls.
public final class EngineClient {
    private let loop: EventLoop
    private var session: EngineSession
    private var seals: EngineSeals
    private let streams: [EngineStream]
    private var events: [EngineEvent] = []
    private var timer: (id: TimerID, deadline: MonotonicTime)?
    /// Description of the node, without the reported settings and unreadable nodes.
    private let description: String
    private var reportedSettings = "-"
    private var reportedUnreadableNodes = ""

    public init(_ options: EngineOptions, on loop: EventLoop) {
        self.loop = loop
        description = options.description
        let seed = Secret.randomBytes(8).reduce(0 as UInt64) { $0 << 8 | UInt64($1) }
        session = EngineSession(options, seed: seed)
        seals = EngineSeals(options.keys)
        streams = EngineLink.allCases.map { _ in EngineStream(loop) }
    }

    deinit {
        if let timer { loop.cancelTimer(timer.id) }
    }

    /// Connects, and keeps the node a member until ``stop()``.
    public func start() {
        session.start(now: now)
        performActions()
    }

    /// Maximum number of unreadable nodes that are reported. With more, the fault is at this one.
    private static let maximumUnreadableNodes = 64

    /// Reports the digests of this node's settings to the other nodes.
    public func report(settings: String) {
        reportedSettings = settings
        updateDescription()
    }

    /// Reports the addresses of nodes whose bodies this one cannot read.
    public func report(unreadable: Set<String>) {
        reportedUnreadableNodes = unreadable.sorted().prefix(Self.maximumUnreadableNodes).joined(separator: ",")
        updateDescription()
    }

    private func updateDescription() {
        session.setDescription("\(description) \(reportedSettings) \(reportedUnreadableNodes)", now: now)
        performActions()
    }

    /// Leaves the cluster: the engine returns this node's attempts at once.
    public func stop() {
        session.stop(now: now)
        performActions()
    }

    /// Uses other logins of servers and sentinels from the next connection on.
    public func useLogin(_ login: EngineOptions.Login?, ofSentinels sentinelLogin: EngineOptions.Login?) {
        session.useLogin(login, ofSentinels: sentinelLogin, now: now)
        performActions()
    }

    /// Sends the calls of this pass together. Dropped unless the node is a member.
    public func submit(_ calls: [EngineCall]) {
        session.submit(calls.map { seals.sealedCall($0) }, now: now)
        performActions()
    }

    /// Whether calls wait for their replies. An owner that leaves its next calls until then sends few large ones under
    /// load.
    public var hasPendingCalls: Bool { session.pendingBatchCount > 0 }

    /// Whether neither replies nor events wait for the next pass.
    public var hasNoPendingEvents: Bool { events.isEmpty && streams.allSatisfy(\.hasNoPendingEvents) }

    /// Removes and returns the events since the last call, in order.
    public func takeEvents() -> [EngineEvent] {
        defer { events.removeAll(keepingCapacity: true) }
        return events
    }

    private var now: MonotonicTime { MonotonicTime(nanoseconds: loop.now.nanoseconds) }

    /// Handles everything that the connections have received.
    public func runPass() {
        let connections = session.connectionNumbers
        for link in EngineLink.allCases {
            for event in streams[link.rawValue].takeEvents()
            where session.connectionNumbers[link.rawValue] == connections[link.rawValue] {
                switch event {
                case .opened: session.linkOpened(link, now: now)
                case .reply(let reply): session.receivedReply(reply, from: link, now: now)
                case .closed(let fault): session.linkClosed(link, fault: fault, now: now)
                }
            }
        }
        if let deadline = session.deadline, deadline <= now { session.timePassed(now: now) }
        performActions()
    }

    private func performActions() {
        for action in session.takeActions() {
            switch action {
            case .open(let link, let address): streams[link.rawValue].open(address)
            case .close(let link):
                // A last call, such as that of a node that leaves, goes out first.
                streams[link.rawValue].flush()
                streams[link.rawValue].close()
            case .send(let link, let command): streams[link.rawValue].append(command)
            case .report(let event):
                events.append(seals.unsealedEvent(event))
                if seals.takeForgeryFlag() { events.append(.warning(.forgedRecord)) }
            }
        }
        for stream in streams { stream.flush() }
        rescheduleTimer()
    }

    private func rescheduleTimer() {
        let deadline = session.deadline
        guard deadline != timer?.deadline else { return }
        if let timer { loop.cancelTimer(timer.id) }
        // The hook of that pass does the work.
        timer = deadline.map { deadline in
            let id = loop.setTimer(at: LoopTime(nanoseconds: deadline.nanoseconds)) { [unowned self] in timer = nil }
            return (id, deadline)
        }
    }
}

/// Calls and messages of a membership, as this node counts them. The engine counts them as well, and heartbeats
/// compare.
///
/// An engine with another number of calls has lost data, although the connection lasts: an older copy took its place.
/// If it has more messages, some did not arrive, although their connection lasts.
struct EngineCounts {
    /// Numbers that an engine may name: -1 for a lost one, and those that its scripts count exactly.
    static let validRange = -1...(1 << 53)

    /// Calls with an answer. A connection keeps the order of answers, so the engine has as many at each heartbeat.
    private var answeredCalls = 0
    /// Messages that arrived, and those that were lost.
    private var countedMessages = 0
    /// Messages that the engine had sent by the latest heartbeat.
    private var messagesSentByEngine = 0
    /// Messages that must arrive before the reply to the PING on their connection; nil without one.
    private var messagesBeforePong: Int?

    mutating func recordAnsweredCall() { answeredCalls += 1 }

    mutating func recordReceivedMessage() { countedMessages += 1 }

    /// Records the numbers of the engine, from the reply to a heartbeat.
    ///
    /// - Returns: whether the engine knows all calls.
    mutating func recordHeartbeat(calls: Int, messages: Int) -> Bool {
        messagesSentByEngine = messages
        return calls == answeredCalls
    }

    /// Records a PING on the connection of messages. All messages that the engine had sent by the latest heartbeat
    /// arrive before its reply.
    mutating func recordPing() { if messagesBeforePong == nil { messagesBeforePong = messagesSentByEngine } }

    /// Records the reply to a PING.
    ///
    /// - Returns: whether messages were lost. Each loss is reported once.
    mutating func recordPong() -> Bool {
        guard let messagesBeforePong else { return false }
        self.messagesBeforePong = nil
        guard countedMessages < messagesBeforePong else { return false }
        countedMessages = messagesBeforePong
        return true
    }
}
