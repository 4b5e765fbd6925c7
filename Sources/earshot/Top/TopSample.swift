internal import EarshotClient

/// State of the broker at one moment, as `earshot top` shows it.
struct TopSample {
    /// Worker in an answer to QUERY status.
    struct Worker {
        let pid: String
        let phase: String
        let slotCount: Int
        let runningTransfers: Int
    }

    /// Origin in an answer to QUERY status.
    struct Origin {
        let name: String
        let runningFlights: Int
        let limit: Int
        let flights: Int
        /// Remaining cool-down; nil without one.
        let coolingMilliseconds: Int?

        var waitingFlights: Int { max(0, flights - runningFlights) }
    }

    /// Instance of the broker. Counters of another instance are not comparable.
    let broker: String
    let phase: String
    /// Time in seconds, on any clock.
    let seconds: Double
    /// Nil for a user without access to those of others.
    let workers: [Worker]?
    let origins: [Origin]
    let handlers: [HandlerRow]
    /// Numbers of the answer by their path, such as `queue.high`.
    private let numbersByPath: [String: Int]

    /// Fails if `status` is not an answer to QUERY status.
    init?(_ status: JSONValue, _ handlers: [HandlerRow], seconds: Double) {
        guard let broker = status.member("broker")?.scalarText, let phase = status.member("phase")?.scalarText else {
            return nil
        }
        self.broker = broker
        self.phase = phase
        self.seconds = seconds
        self.handlers = handlers
        var numbers: [String: Int] = [:]
        Self.collectNumbers(status, "", &numbers)
        self.numbersByPath = numbers
        workers =
            status.member("workers") == nil
            ? nil
            : status.items(ofMember: "workers").map { item in
                Worker(
                    pid: item.member("pid")?.scalarText ?? "-", phase: item.member("phase")?.scalarText ?? "-",
                    slotCount: item.integer(ofMember: "slots") ?? 0,
                    runningTransfers: item.integer(ofMember: "running") ?? 0)
            }
        origins = status.items(ofMember: "origins").map { item in
            Origin(
                name: item.member("origin")?.scalarText ?? "-", runningFlights: item.integer(ofMember: "running") ?? 0,
                limit: item.integer(ofMember: "limit") ?? 0, flights: item.integer(ofMember: "flights") ?? 0,
                coolingMilliseconds: item.integer(ofMember: "cooling-ms"))
        }
    }

    private static func collectNumbers(_ value: JSONValue, _ path: String, _ numbers: inout [String: Int]) {
        switch value {
        case .scalar(let text): numbers[path] = Int(text)
        case .array, .string: break
        case .object(let members):
            for member in members {
                collectNumbers(member.value, path.isEmpty ? member.name : "\(path).\(member.name)", &numbers)
            }
        }
    }

    // MARK: Numbers

    /// Returns a number by its path; nil if the answer does not have it, as for a user without access to those of
    /// others.
    func count(_ path: String) -> Int? { numbersByPath[path] }

    /// Number of requests that have not ended, without those whose failures are kept on disk.
    var pendingCount: Int? { count("requests.pending").map { $0 - (count("requests.failed-kept") ?? 0) } }

    /// Number of failed requests, of all codes.
    var failedCount: Int { numbersByPath.reduce(0) { $0 + ($1.key.hasPrefix("requests.failed.") ? $1.value : 0) } }

    /// Number of slots of all workers; nil without the workers.
    var slotCount: Int? { workers?.reduce(0) { $0 + $1.slotCount } }

    /// Returns the change of a counter per second; nil without an earlier sample of the same broker.
    func rate(since earlier: TopSample?, _ counter: (TopSample) -> Int?) -> Double? {
        guard let earlier, earlier.broker == broker, seconds > earlier.seconds, let now = counter(self),
            let before = counter(earlier)
        else { return nil }
        return Double(max(0, now - before)) / (seconds - earlier.seconds)
    }

    /// Returns the share of `part` in `whole` as a percentage, since an earlier sample of the same broker or in all.
    /// Nil if `whole` is 0.
    func percent(since earlier: TopSample?, _ part: (TopSample) -> Int, of whole: (TopSample) -> Int) -> Int? {
        let base = earlier?.broker == broker ? earlier : nil
        let all = whole(self) - (base.map(whole) ?? 0)
        guard all > 0 else { return nil }
        return min(100, max(0, (part(self) - (base.map(part) ?? 0)) * 100 / all))
    }

    static func cacheUses(_ sample: TopSample) -> Int { sample.count("cache.used") ?? 0 }
    static func cacheLookups(_ sample: TopSample) -> Int { sample.count("cache.lookups") ?? 0 }
    static func joinedRequests(_ sample: TopSample) -> Int { sample.count("flights.joined") ?? 0 }
    static func attachedRequests(_ sample: TopSample) -> Int {
        (sample.count("flights.started") ?? 0) + joinedRequests(sample)
    }

    // MARK: Lines

    /// Returns the names and values of a sample's line, for output to other than a terminal. A missing value is nil.
    func fields(since earlier: TopSample?, time: String) -> [(name: String, value: String?, isText: Bool)] {
        func number(_ name: String, _ value: Int?) -> (name: String, value: String?, isText: Bool) {
            (name, value.map { String($0) }, false)
        }
        func rate(_ name: String, _ counter: (TopSample) -> Int?) -> (name: String, value: String?, isText: Bool) {
            (name, self.rate(since: earlier, counter).map(Self.rateText), false)
        }
        return [
            ("time", time, true), ("phase", phase, true),
            number("clients", count("clients")), number("handlers", count("handlers")),
            number("pending", pendingCount),
            number("high", count("queue.high")), number("normal", count("queue.normal")),
            number("low", count("queue.low")), number("background", count("queue.background")),
            number("queued", count("flights-now.queued")), number("running", count("flights-now.running")),
            number("backing-off", count("flights-now.backing-off")),
            number("workers", workers?.count), number("slots", slotCount),
            rate("submitted/s") { $0.count("requests.submitted") },
            rate("answered/s") { $0.count("requests.answered") },
            rate("failed/s") { $0.failedCount },
            rate("removed/s") { $0.count("requests.removed") },
            rate("bytes/s") { $0.count("flights.bytes") },
            number("cache-percent", percent(since: earlier, Self.cacheUses, of: Self.cacheLookups)),
            number("shared-percent", percent(since: earlier, Self.joinedRequests, of: Self.attachedRequests)),
        ]
    }

    /// Returns a rate with one decimal below 100, and without decimals above.
    static func rateText(_ rate: Double) -> String {
        guard rate < 99.95 else { return String(Int(min(rate, 1e15).rounded())) }
        let tenths = Int((rate * 10).rounded())
        return "\(tenths / 10).\(tenths % 10)"
    }
}
