internal import EarshotHTTP
public import EarshotLoop
internal import EarshotWire
internal import Logging

/// Jobs of the puller: bodies of the other nodes of a cluster.
final class Pulls: JobKind {
    let jobs: RunTable<PullRun>
    let traits: WorkerTraits
    let network: any NodeNetwork
    /// Attempts with events.
    private var attemptsWithEvents: Set<AttemptID> = []

    init(_ options: PullerOptions, _ network: any NodeNetwork, loop: EventLoop, logger: Logger) throws(SystemError) {
        self.network = network
        jobs = try RunTable(
            BrokerLink(.unixSocket(options.workPath), loop: loop, logger: logger), loop: loop, logger: logger)
        var ready = Ready(slots: PullerOptions.slots)
        ready.schemes = [NodeAddress.scheme]
        ready.supervisorSecret = options.secret
        ready.acceptsDrain = true
        // LIMITS, and so the sandbox, come before the first connection, with which libzmq starts its threads.
        traits = WorkerTraits(
            readyMessage: ready, readableFiles: [],
            refusalSentence: { code, detail in "the broker refuses the puller: \(detail) (\(code))" })
    }

    func start(_ job: Job, body: [UInt8]?, terms: Terms) throws(Refusal) {
        guard let node = NodeAddress(url: job.url) else { throw Refusal(.malformedURL) }
        let run = PullRun(job, at: node, terms: terms, pulls: self)
        jobs.add(run)
        jobs.scheduleDeadlineCheck(of: run)
        network.requestBody(run.request, for: run)
    }

    /// Records an event, which may come from the hook of a connection after that of the worker.
    func noteEvent(_ attempt: AttemptID) {
        attemptsWithEvents.insert(attempt)
        jobs.loop.requestAnotherPass()
    }

    func handlePassEvents() -> Bool {
        let ready = attemptsWithEvents
        attemptsWithEvents = []
        for attempt in ready {
            guard let run = jobs.runs[attempt] else { continue }
            if let refusal = run.refusal { jobs.fail(run, refusal: refusal) } else { jobs.continueHashing(run) }
        }
        return !attemptsWithEvents.isEmpty
    }

    func closeConnections() { network.closeConnections() }
}

/// Start options of a puller.
public struct PullerOptions: Sendable {
    /// Number of concurrent pulls. Each large body needs two descriptors, and a small one none.
    public static let slots = 256

    /// Path of the broker's socket `work`.
    public var workPath: String
    /// Hexadecimal secret of the supervisor; nil without one.
    public var secret: String?
    /// Process ID of the parent, with which this process ends; nil for none.
    public var parentPid: Int32?
    /// Makes the connections to the other nodes. Called once, on the main thread.
    public var makeNetwork: @Sendable (EventLoop) throws -> any NodeNetwork = { _ in
        preconditionFailure("a puller without a network")
    }

    public init(workPath: String) { self.workPath = workPath }
}
