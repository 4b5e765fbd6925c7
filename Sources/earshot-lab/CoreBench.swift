internal import EarshotCore
internal import EarshotWire
internal import Glibc

/// One core with so many requests queued, and what its operations cost there.
struct CoreBench {
    /// Operations of each kind that are timed.
    static let sample = 1_000
    static let rows = [
        "submit, ns", "join, ns", "assign, ns", "complete, ns", "remove a tenth, µs", "its longest pass, µs",
        "all its passes, ns each", "queued request, bytes",
    ]

    /// The handler of a tenth of all.
    private static let crawl = "app0/crawl"

    private let queued: Int
    private let now = Tick(nanoseconds: 0)
    private let clock = ContinuousClock()
    private let worker = WorkerID(rawValue: 1)
    private let clients = (1...10).map { ClientID(rawValue: $0) }
    private var core: BrokerCore

    init(queued: Int) {
        self.queued = queued
        let limits = WorkerLimits(broker: BrokerInstance(rawValue: 1), spool: "/spool")
        core = BrokerCore(workerLimits: limits, secret: nil, seed: 1)
        for client in clients {
            core.clientConnected(client, isRequestReply: false)
            core.clientSaid(.hello(Hello(client: nil)), by: client, now: now)
        }
    }

    /// The figures of `rows`.
    consuming func run() -> [Int] {
        let before = residentBytes()
        for number in 0..<queued { fetch(number) }
        let bytes = max(0, residentBytes() - before) / queued
        let submit = nanoseconds { bench in for number in 0..<Self.sample { bench.fetch(bench.queued + number) } }
        let join = nanoseconds { bench in for number in 0..<Self.sample { bench.fetch(number, handler: "joined/1") } }
        _ = core.takeActions()
        offer(slots: Self.sample)
        var jobs: [Job] = []
        let assign = nanoseconds { bench in
            bench.core.dispatch(now: bench.now)
            for case .sendWorker(_, .job(let job)) in bench.core.takeActions() { jobs.append(job) }
        }
        let complete = nanoseconds { bench in
            for job in jobs {
                bench.core.workerSaid(
                    .done(Completion(attempt: job.attempt, status: 200)), body: nil, by: bench.worker, now: bench.now)
            }
        }
        let pending = core.ledger.requests.pending
        let remove = nanoseconds { bench in bench.removeCrawl() }
        let removed = max(1, pending - core.ledger.requests.pending)
        var (longest, all) = (remove, remove)
        while core.isPurging {
            _ = core.takeActions()
            let pass = nanoseconds { bench in bench.core.dispatch(now: bench.now) }
            longest = max(longest, pass)
            all += pass
        }
        let timed = max(1, jobs.count)
        return [
            submit / Self.sample, join / Self.sample, assign / timed, complete / timed, remove / 1_000, longest / 1_000,
            all / removed, bytes,
        ]
    }

    private mutating func nanoseconds(_ body: (inout CoreBench) -> Void) -> Int {
        let began = clock.now
        body(&self)
        return Int((clock.now - began) / .nanoseconds(1))
    }

    private mutating func fetch(_ number: Int, handler: String? = nil) {
        let tail = String(1_000_000_000 + number)
        let host = "http://host\(1_000 + number % 5_000).example/"
        let url = host + String(repeating: "x", count: 80 - host.utf8.count - tail.utf8.count) + tail
        let usual = number % 10 == 0 ? Self.crawl : "app\(number % 10)/h\(number % 1_000)"
        guard let handler = HandlerID(handler ?? usual),
            let request = RequestID("\(number)")
        else { preconditionFailure("the names of request \(number) are not names") }
        say(.fetch(Fetch(handler: handler, request: request, url: url)), by: number % clients.count)
    }

    private mutating func say(_ message: ClientMessage, by client: Int) {
        core.clientSaid(message, by: clients[client], now: now)
    }

    private mutating func offer(slots: Int) {
        core.workerConnected(worker, now: now)
        core.workerSaid(.ready(Ready(slots: slots)), body: nil, by: worker, now: now)
    }

    private mutating func removeCrawl() {
        guard let pattern = HandlerPattern(Self.crawl) else { preconditionFailure("\(Self.crawl) is not a name") }
        say(.remove(pattern), by: 0)
    }

    /// Resident memory of this process: proc(5), statm.
    private func residentBytes() -> Int {
        guard let file = unsafe fopen("/proc/self/statm", "r") else { return 0 }
        defer { unsafe fclose(file) }
        var line = [CChar](repeating: 0, count: 128)
        guard unsafe fgets(&line, Int32(line.count), file) != nil else { return 0 }
        let words = String(decoding: line.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
            .split(separator: " ")
        return (words.count > 1 ? Int(words[1]) ?? 0 : 0) * Int(sysconf(Int32(_SC_PAGESIZE)))
    }
}
