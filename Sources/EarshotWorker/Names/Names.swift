internal import Cares
internal import EarshotLoop
internal import EarshotWire

/// Asynchronous name lookups for a worker's jobs. Answers are cached, and concurrent lookups of one name are coalesced.
final class Names {
    /// The answer for a waiting job.
    struct AttemptAnswer {
        let attempt: AttemptID
        let answer: NameAnswer
    }

    /// Time of the next call that c-ares requested; nil without a running lookup.
    private(set) var nextTimerTime: LoopTime?
    private let resolver: Resolver
    private let loop: EventLoop
    private let makeWatch: DescriptorWatch.Maker
    // This object owns the watch, which therefore never calls it after its end.
    private lazy var descriptorWatch = makeWatch { [unowned self] in handleReadiness($0, $1) }
    private var table = NameTable<AttemptID>()
    /// The hosts file that replaced the one of the start; nil if none did.
    var hosts: HostsFile?
    private var answeredLookups: [AttemptAnswer] = []

    /// - Throws: `CaresError` if a name server is not an address.
    init(servers: [String]?, loop: EventLoop, makeWatch: @escaping DescriptorWatch.Maker) throws(CaresError) {
        resolver = try Resolver.make(options: ResolverOptions(servers: servers))
        self.loop = loop
        self.makeWatch = makeWatch
    }

    /// Returns the cached answer; nil if a lookup is needed, whose answer `runPass` returns later.
    ///
    /// - Parameter name: Lower-case name.
    func lookUp(_ name: String, for attempt: AttemptID) -> NameAnswer? {
        if let answer = NameAnswer.specialUseAnswer(forName: name) { return answer }
        if let addresses = hosts?.addresses(of: name) { return .addresses(addresses) }
        switch table.requestLookup(name, by: attempt, now: loop.now) {
        case .cachedAnswer(let answer): return answer
        case .waitForLookup: return nil
        case .startLookup:
            resolver.resolve(name)
            handleResolverEvents()
            return nil
        }
    }

    /// Returns whether a job may end before the answer to its lookup. Too many running lookups of ended jobs would
    /// delay others.
    func mayWithdrawLookup(_ name: String, for attempt: AttemptID) -> Bool {
        table.mayWithdrawWaiter(name, by: attempt)
    }

    /// Withdraws a job's lookup. `runPass` does not return its answer.
    func withdrawLookup(_ name: String, for attempt: AttemptID) {
        table.removeWaiter(name, by: attempt)
        answeredLookups.removeAll { $0.attempt == attempt }
    }

    /// Runs due timers of c-ares and returns the answers that have arrived since the last call.
    func runPass() -> [AttemptAnswer] {
        if let nextTimerTime, nextTimerTime <= loop.now {
            resolver.timerFired()
            handleResolverEvents()
        }
        defer { answeredLookups.removeAll() }
        return answeredLookups
    }

    private func handleReadiness(_ descriptor: Int32, _ readiness: EventLoop.Readiness) {
        let isBroken = !readiness.isDisjoint(with: [.error, .hangUp])
        resolver.descriptorReady(
            descriptor, reads: isBroken || readiness.contains(.readable),
            writes: isBroken || readiness.contains(.writable))
        handleResolverEvents()
    }

    private func handleResolverEvents() {
        collectAnswers()
        nextTimerTime = resolver.timeoutMilliseconds.map { LoopTime.readClock().advanced(by: .milliseconds($0)) }
    }

    private func collectAnswers() {
        for interest in resolver.takeInterests() {
            // c-ares does not report when it opens a descriptor.
            descriptorWatch.setInterest(
                interest.descriptor, reads: interest.wantsReadability, writes: interest.wantsWritability, isNew: true)
        }
        for finished in resolver.takeFinishedLookups() {
            let (answer, lifetime) = Self.nameAnswer(for: finished.result)
            let waiting = table.recordAnswer(for: finished.name, answer: answer, lifetime: lifetime, now: loop.now)
            answeredLookups += waiting.map { AttemptAnswer(attempt: $0, answer: answer) }
        }
    }

    /// Returns the time for which addresses with this time to live are cached.
    static func cacheLifetime(timeToLive: Duration) -> Duration {
        let range = Limits.addressCacheTimeRange
        return min(max(timeToLive, range.lowerBound), range.upperBound)
    }

    private static func nameAnswer(for result: Result<[ResolvedAddress], LookupFailure>) -> (NameAnswer, Duration) {
        switch result {
        case .success(let addresses):
            let shortest = addresses.map(\.timeToLive).min() ?? .zero
            return (.addresses(addresses.map(\.text)), cacheLifetime(timeToLive: shortest))
        case .failure(.notFound): return (.nameNotFound, Limits.unknownNameCacheTime)
        case .failure(.timeout), .failure(.serverFailure), .failure(.other):
            return (.lookupFailed, Limits.failedLookupCacheTime)
        }
    }
}
