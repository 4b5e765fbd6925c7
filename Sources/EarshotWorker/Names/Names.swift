internal import Cares
internal import EarshotLoop
internal import EarshotWire

/// Asynchronous name lookups for a worker's jobs. Answers are cached, and concurrent lookups of one name are coalesced.
final class Names {
    /// The answer for a waiting job.
    struct Answered {
        let attempt: AttemptID
        let answer: NameAnswer
    }

    /// Time of the next call that c-ares requested; nil without a running lookup.
    private(set) var dueTime: LoopTime?
    private let resolver: Resolver
    private let loop: EventLoop
    private let makeWatch: DescriptorWatch.Maker
    // This object owns the watch, which therefore never calls it after its end.
    private lazy var watch = makeWatch { [unowned self] in ready($0, $1) }
    private var table = NameTable<AttemptID>()
    /// The hosts file that replaced the one of the start; nil if none did.
    var hosts: HostsFile?
    private var answeredLookups: [Answered] = []

    /// - Throws: `CaresError` if a name server is not an address.
    init(servers: [String]?, loop: EventLoop, makeWatch: @escaping DescriptorWatch.Maker) throws(CaresError) {
        resolver = try Resolver.make(ResolverOptions(servers: servers))
        self.loop = loop
        self.makeWatch = makeWatch
    }

    /// Returns the cached answer; nil if a lookup is needed, whose answer `runPass` returns later.
    ///
    /// - Parameter name: Lower-case name.
    func lookUp(_ name: String, for attempt: AttemptID) -> NameAnswer? {
        if let answer = NameAnswer.special(name) { return answer }
        if let addresses = hosts?.addresses(of: name) { return .addresses(addresses) }
        switch table.requested(name, by: attempt, now: loop.now) {
        case .known(let answer): return answer
        case .wait: return nil
        case .lookUp:
            resolver.resolve(name)
            take()
            return nil
        }
    }

    /// Whether a job may end before the answer to its lookup. Too many running lookups of ended jobs would delay others.
    func mayWithdraw(_ name: String, for attempt: AttemptID) -> Bool { table.mayWithdraw(name, by: attempt) }

    /// Withdraws a job's lookup. `runPass` does not return its answer.
    func withdraw(_ name: String, for attempt: AttemptID) {
        table.withdrawn(name, by: attempt)
        answeredLookups.removeAll { $0.attempt == attempt }
    }

    /// Runs due timers of c-ares and returns the answers that have arrived since the last call.
    func runPass() -> [Answered] {
        if let dueTime, dueTime <= loop.now {
            resolver.timerFired()
            take()
        }
        defer { answeredLookups.removeAll() }
        return answeredLookups
    }

    private func ready(_ descriptor: Int32, _ readiness: EventLoop.Readiness) {
        let isBroken = !readiness.isDisjoint(with: [.error, .hangUp])
        resolver.descriptorReady(
            descriptor, reads: isBroken || readiness.contains(.readable),
            writes: isBroken || readiness.contains(.writable))
        take()
    }

    private func take() {
        takeAnswers()
        dueTime = resolver.timeoutMilliseconds.map { LoopTime.read().advanced(by: .milliseconds($0)) }
    }

    private func takeAnswers() {
        for interest in resolver.takeInterests() {
            // c-ares does not report when it opens a descriptor.
            watch.set(interest.descriptor, reads: interest.reads, writes: interest.writes, isNew: true)
        }
        for finished in resolver.takeFinished() {
            let (answer, lifetime) = Self.judge(finished.result)
            let waiting = table.answered(finished.name, answer, lifetime: lifetime, now: loop.now)
            answeredLookups += waiting.map { Answered(attempt: $0, answer: answer) }
        }
    }

    /// Time for which addresses with this time to live are kept.
    static func lifetime(_ timeToLive: Duration) -> Duration {
        let range = Limits.positiveNameLifetime
        return min(max(timeToLive, range.lowerBound), range.upperBound)
    }

    private static func judge(_ result: Result<[ResolvedAddress], LookupFailure>) -> (NameAnswer, Duration) {
        switch result {
        case .success(let addresses):
            return (.addresses(addresses.map(\.text)), lifetime(addresses.map(\.timeToLive).min() ?? .zero))
        case .failure(.notFound): return (.unknown, Limits.unknownNameLifetime)
        case .failure(.timeout), .failure(.serverFailure), .failure(.other):
            return (.failed, Limits.failedNameLifetime)
        }
    }
}
