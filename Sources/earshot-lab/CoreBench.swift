internal import ArgumentParser
internal import EarshotCore
internal import EarshotQueries
internal import EarshotWire
internal import Glibc

/// Core with a number of queued requests, and the cost of its operations.
struct CoreBench {
    /// Number of timed operations of each kind.
    static let sampleCount = 1_000
    static let rowTitles = [
        "submit, ns", "join, ns", "assign, ns", "complete, ns", "remove a tenth, µs", "99 % of its passes, µs",
        "all its passes, ns each", "a queued request, bytes", "at the peak, bytes",
        "queued a second time",
    ]

    /// Handler of a tenth of all requests.
    private static let crawlHandler = "app0/crawl"

    private let queuedRequests: Int
    private let now = MonotonicTime(nanoseconds: 0)
    private let worker = WorkerID(rawValue: 1)
    private let clients = (1...10).map { ClientID(rawValue: $0) }
    private var core: BrokerCore
    private var completions: [Completion] = []

    init(queuedRequests: Int) {
        self.queuedRequests = queuedRequests
        let limits = WorkerLimits(broker: BrokerInstance(rawValue: 1), spoolPath: "/spool")
        core = BrokerCore(workerLimits: limits, secret: nil, answering: Queries.answer, seed: 1)
        for client in clients {
            core.clientConnected(
                client, token: SessionToken(highBits: 0, lowBits: client.rawValue))
            core.clientMessageReceived(.hello(Hello()), from: client, now: now)
        }
    }

    /// Returns the values of `rowTitles`.
    consuming func run() -> [Int] {
        let before = ResidentMemory.bytes
        ResidentMemory.resetPeak()
        sendRequests()
        let bytes = max(0, ResidentMemory.bytes - before) / queuedRequests
        let peak = max(0, ResidentMemory.peakBytes - before) / queuedRequests
        let submit = processingNanoseconds((0..<Self.sampleCount).map { fetch(queuedRequests + $0) })
        let join = processingNanoseconds((0..<Self.sampleCount).map { fetch($0, handler: "joined/1") })
        _ = core.takeActions()
        connectWorker(slots: Self.sampleCount)
        var jobs: [Job] = []
        let assign = processingNanoseconds { bench in
            bench.core.dispatch(now: bench.now)
            jobs = bench.takeJobs()
        }
        let complete = processingNanoseconds { bench in
            for job in jobs {
                bench.core.workerMessageReceived(
                    .completed(Completion(attempt: job.attempt, status: 200)), body: nil, from: bench.worker,
                    now: bench.now)
            }
        }
        let pending = core.ledger.requests.pending
        let remove = processingNanoseconds { bench in bench.removeCrawl() }
        var passes: [Int] = []
        while core.hasPendingRemovals {
            _ = core.takeActions()
            passes.append(processingNanoseconds { bench in bench.core.dispatch(now: bench.now) })
        }
        let removed = max(1, pending - core.ledger.requests.pending)
        passes.sort()
        let slow = passes.isEmpty ? remove : passes[passes.count * 99 / 100]
        let all = passes.reduce(remove, +)
        let timed = max(1, jobs.count)
        endAllRequests()
        sendRequests()
        let again = max(0, ResidentMemory.bytes - before) / queuedRequests
        return [
            submit / Self.sampleCount, join / Self.sampleCount, assign / timed, complete / timed, remove / 1_000,
            slow / 1_000,
            all / removed, bytes, peak, again,
        ]
    }

    /// Runs a sample of one operation, for a tool that counts only instructions inside `counted`. Returns the number of
    /// operations, which varies because a worker reserves some slots for urgent requests.
    consuming func runCounted(_ operation: CountedOperation) -> Int {
        sendRequests()
        _ = core.takeActions()
        switch operation {
        case .submit: counted((0..<Self.sampleCount).map { fetch(queuedRequests + $0) })
        case .join: counted((0..<Self.sampleCount).map { fetch($0, handler: "joined/1") })
        case .assign:
            connectWorker(slots: Self.sampleCount)
            counted([])
            return takeJobs().count
        case .complete:
            connectWorker(slots: Self.sampleCount)
            core.dispatch(now: now)
            completions = takeJobs().map { Completion(attempt: $0.attempt, status: 200) }
            counted([])
            return completions.count
        case .decode, .encode: preconditionFailure("the core does not \(operation)")
        }
        return Self.sampleCount
    }

    private mutating func takeJobs() -> [Job] {
        core.takeActions().compactMap { if case .worker(.send(_, .job(let job))) = $0 { job } else { nil } }
    }

    @inline(never)
    private mutating func counted(_ messages: [ClientMessage]) {
        for (index, message) in messages.enumerated() { send(message, by: index % clients.count) }
        for completion in completions {
            core.workerMessageReceived(.completed(completion), body: nil, from: worker, now: now)
        }
        if messages.isEmpty, completions.isEmpty { core.dispatch(now: now) }
    }

    private mutating func sendRequests() {
        for number in 0..<queuedRequests { send(fetch(number), by: number % clients.count) }
    }

    /// Ends all requests, and the worker with its transfers.
    private mutating func endAllRequests() {
        core.workerLost(worker, now: now)
        for client in 0..<clients.count {
            send(.bye, by: client)
            send(.hello(Hello()), by: client)
        }
        while core.hasPendingRemovals {
            core.dispatch(now: now)
            _ = core.takeActions()
        }
        precondition(core.ledger.requests.pending == 0, "\(core.ledger)")
    }

    /// Returns the core's processing time of all messages.
    private mutating func processingNanoseconds(_ messages: [ClientMessage]) -> Int {
        processingNanoseconds { bench in
            for (index, message) in messages.enumerated() { bench.send(message, by: index % bench.clients.count) }
        }
    }

    private mutating func processingNanoseconds(_ body: (inout CoreBench) -> Void) -> Int {
        let began = ProcessorTime.threadNanoseconds()
        body(&self)
        return ProcessorTime.threadNanoseconds() - began
    }

    /// Returns a request decoded from the wire, whose strings have no spare capacity.
    private func fetch(_ number: Int, handler: String? = nil) -> ClientMessage {
        let tail = String(1_000_000_000 + number)
        let host = "http://host\(1_000 + number % 5_000).example/"
        let url = host + String(repeating: "x", count: 80 - host.utf8.count - tail.utf8.count) + tail
        let usual = number % 10 == 0 ? Self.crawlHandler : "app\(number % 10)/h\(number % 1_000)"
        let head = Array("FETCH \(handler ?? usual) \(number) \(url)\n".utf8)
        guard let message = try? ClientMessage(head: head) else { preconditionFailure("\(number) is not a request") }
        return message
    }

    private mutating func send(_ message: ClientMessage, by client: Int) {
        core.clientMessageReceived(message, from: clients[client], now: now)
    }

    private mutating func connectWorker(slots: Int) {
        core.workerConnected(worker, now: now)
        core.workerMessageReceived(.ready(Ready(slots: slots)), body: nil, from: worker, now: now)
    }

    private mutating func removeCrawl() {
        guard let pattern = HandlerPattern(Self.crawlHandler) else {
            preconditionFailure("\(Self.crawlHandler) is not a name")
        }
        send(.removeHandlers(pattern), by: 0)
    }
}

/// Operation for which instructions are counted.
enum CountedOperation: String, CaseIterable, ExpressibleByArgument {
    /// Decodes the head of a client's FETCH.
    case decode
    case submit
    case join
    case assign
    case complete
    /// Encodes a RESULT.
    case encode
}

/// Processor time of this thread in nanoseconds: clock_gettime(2). Excludes the time of other threads.
enum ProcessorTime {
    static func threadNanoseconds() -> Int {
        var time = timespec()
        unsafe clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return time.tv_sec * 1_000_000_000 + time.tv_nsec
    }
}

/// Memory usage of this process: proc_pid_status(5).
enum ResidentMemory {
    static var bytes: Int { statusBytes("VmRSS:") }

    /// Peak since the last `resetPeak`.
    static var peakBytes: Int { statusBytes("VmHWM:") }

    /// Resets the peak: proc_pid_clear_refs(5), 5.
    static func resetPeak() {
        guard let file = unsafe fopen("/proc/self/clear_refs", "w") else { return }
        unsafe fputs("5", file)
        unsafe fclose(file)
    }

    private static func statusBytes(_ name: String) -> Int {
        guard let file = unsafe fopen("/proc/self/status", "r") else { return 0 }
        defer { unsafe fclose(file) }
        var line = [CChar](repeating: 0, count: 256)
        while unsafe fgets(&line, Int32(line.count), file) != nil {
            let words = String(decoding: line.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
                .split { $0.isWhitespace }
            if words.first == name[...], words.count > 1 { return (Int(words[1]) ?? 0) * 1_024 }
        }
        return 0
    }
}
