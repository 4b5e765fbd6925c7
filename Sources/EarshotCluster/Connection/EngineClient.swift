public import EarshotCore
public import EarshotLoop
internal import LibCrypto

/// Connection of this node to the engine, on the broker's loop.
///
/// In each pass of the loop the owner calls ``pass()``, ``takeEvents()``, and ``submit(_:)`` for the core's calls.
public final class EngineClient {
    private let loop: EventLoop
    private var session: EngineSession
    private var seals: EngineSeals
    private let streams: [EngineStream]
    private var events: [EngineEvent] = []
    private var timer: (id: TimerID, deadline: Tick)?
    /// Description of the node without its settings and its report of the others.
    private let description: String
    private var settings = "-"
    private var unreadable = ""

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
        work()
    }

    /// Maximum number of unreadable nodes that are reported. With more, the fault is at this one.
    private static let mostUnreadable = 64

    /// Reports the digests of this node's settings to the other nodes.
    public func report(settings: String) {
        self.settings = settings
        describe()
    }

    /// Reports the addresses of nodes whose bodies this one cannot read.
    public func report(unreadable: Set<String>) {
        self.unreadable = unreadable.sorted().prefix(Self.mostUnreadable).joined(separator: ",")
        describe()
    }

    private func describe() {
        session.describe("\(description) \(settings) \(unreadable)", now: now)
        work()
    }

    /// Leaves the cluster: the engine returns this node's attempts at once.
    public func stop() {
        session.stop(now: now)
        work()
    }

    /// Uses other logins of servers and sentinels from the next connection on.
    public func use(_ login: EngineOptions.Login?, ofSentinels sentinelLogin: EngineOptions.Login?) {
        session.use(login, ofSentinels: sentinelLogin, now: now)
        work()
    }

    /// Sends the calls of this pass together. Dropped unless the node is a member.
    public func submit(_ calls: [EngineCall]) {
        session.submit(calls.map { seals.sealed($0) }, now: now)
        work()
    }

    /// Whether calls wait for their replies. An owner that leaves its next calls until then sends few large ones under load.
    public var isBusy: Bool { session.batchCount > 0 }

    /// Whether neither replies nor events wait for the next pass.
    public var isQuiet: Bool { events.isEmpty && streams.allSatisfy(\.isQuiet) }

    /// Removes and returns the events since the last call, in order.
    public func takeEvents() -> [EngineEvent] {
        defer { events.removeAll(keepingCapacity: true) }
        return events
    }

    private var now: Tick { Tick(nanoseconds: loop.now.nanoseconds) }

    /// Handles everything that the connections have received.
    public func pass() {
        let connections = session.connections
        for link in EngineLink.allCases {
            for event in streams[link.rawValue].takeEvents()
            where session.connections[link.rawValue] == connections[link.rawValue] {
                switch event {
                case .opened: session.linkOpened(link, now: now)
                case .reply(let reply): session.received(reply, from: link, now: now)
                case .closed(let fault): session.closed(link, fault, now: now)
                }
            }
        }
        if let deadline = session.deadline, deadline <= now { session.timePassed(now: now) }
        work()
    }

    private func work() {
        for action in session.takeActions() {
            switch action {
            case .open(let link, let address): streams[link.rawValue].open(address)
            case .close(let link):
                // A last call, such as that of a node that leaves, goes out first.
                streams[link.rawValue].flush()
                streams[link.rawValue].close()
            case .send(let link, let command): streams[link.rawValue].append(command)
            case .report(let event):
                events.append(seals.unsealed(event))
                if seals.takeForgery() { events.append(.warning(.forgedEntry)) }
            }
        }
        for stream in streams { stream.flush() }
        rearm()
    }

    private func rearm() {
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
