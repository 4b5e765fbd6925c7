internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire
internal import Logging

/// Jobs of the puller: bodies of the other nodes of a cluster.
final class Pulls: JobKind {
    let jobs: RunTable<PullRun>
    let traits: WorkerTraits
    let network: any NodeNetwork
    /// Attempts with events.
    private var noted: Set<AttemptID> = []

    init(_ options: PullerOptions, _ network: any NodeNetwork, loop: EventLoop, logger: Logger) throws(SystemError) {
        self.network = network
        jobs = try RunTable(
            BrokerLink(.socket(options.workPath), loop: loop, logger: logger), loop: loop, logger: logger)
        var ready = Ready(slots: PullerOptions.slots)
        ready.schemes = [NodeAddress.scheme]
        ready.secret = options.secret
        ready.acceptsDrain = true
        // LIMITS, and so the sandbox, come before the first connection, with which libzmq starts its threads.
        traits = WorkerTraits(
            ready: ready, readableFiles: [],
            refusal: { code, detail in "the broker refuses the puller: \(detail) (\(code))" })
    }

    func start(_ job: Job, _ body: [UInt8]?, _ terms: Terms) throws(Refusal) {
        guard let node = NodeAddress(url: job.url) else { throw Refusal(.malformedURL) }
        let run = PullRun(job, at: node, terms, self)
        jobs.add(run)
        jobs.watchOver(run)
        network.request(run.request, for: run)
    }

    /// Records an event, which may come from the hook of a connection after that of the worker.
    func note(_ attempt: AttemptID) {
        noted.insert(attempt)
        jobs.loop.passAgain()
    }

    func work() -> Bool {
        let ready = noted
        noted = []
        for attempt in ready {
            guard let run = jobs.runs[attempt] else { continue }
            if let refusal = run.refusal { jobs.fail(run, refusal) } else { jobs.hashOn(run) }
        }
        return !noted.isEmpty
    }

    func close() { network.close() }
}
