internal import EarshotWire

/// Transfers for a broker that died, and the draws of clients' requests shortly before and after its death.
struct Inheritance {
    /// Generator of these requests alone, so that they change no other draw of a world.
    private var random: SeededGenerator
    /// Jobs that ran when the broker died.
    private var running: [Job] = []
    /// Jobs that ended while their workers had no broker.
    private var ended: [Job] = []
    /// End of the adoption by the next broker.
    private var end: Int64 = 0

    init(seed: UInt64) { random = SeededGenerator(seed: seed) }

    mutating func begin(running: [Job], ended: [Job], until end: Int64) {
        self.running = running.filter(Self.isShared)
        self.ended = ended.filter(Self.isShared)
        self.end = end
    }

    mutating func add(_ job: Job) { if Self.isShared(job) { ended.append(job) } }

    /// Returns the life of the first broker in a world where brokers die more often, or nil in the others.
    mutating func drawShortLife() -> Int64? { random.perMille(400) ? random.around(1_000_000_000) : nil }

    /// Returns the delay with which a client reconnects at once, or nil for one that takes its time.
    mutating func drawReturn() -> Int64? { random.perMille(500) ? random.around(30_000_000) : nil }

    /// Returns the delay of a reconnected client's new requests, or nil for a client that makes none.
    mutating func drawDelay(at now: Int64) -> Int64? {
        guard now < end, random.perMille(800) else { return nil }
        return random.around(30_000_000)
    }

    /// Returns the job whose URL a client requests, mostly one that has ended.
    mutating func drawJob(at now: Int64) -> Job? {
        guard now < end else { return nil }
        let jobs = running.isEmpty || !ended.isEmpty && random.perMille(700) ? ended : running
        return jobs.isEmpty ? nil : jobs[random.below(jobs.count)]
    }

    mutating func below(_ bound: Int) -> Int { random.below(bound) }

    mutating func around(_ mean: Int64) -> Int64 { random.around(mean) }

    /// Whether other requests may join the job's flight.
    private static func isShared(_ job: Job) -> Bool { job.flight != nil }
}
