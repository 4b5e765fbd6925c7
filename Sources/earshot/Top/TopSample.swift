internal import EarshotClient

/// State of the broker at one moment, as `earshot top` shows it.
struct TopSample {
    /// Worker in an answer to QUERY status.
    struct Worker {
        let pid: String
        let phase: String
        let slots: Int
        let running: Int
    }

    /// Origin in an answer to QUERY status.
    struct Origin {
        let name: String
        let running: Int
        let limit: Int
        let flights: Int
        /// Remaining cool-down; nil without one.
        let coolingMilliseconds: Int?

        var waiting: Int { max(0, flights - running) }
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
    private let numbers: [String: Int]

    /// Fails if `status` is not an answer to QUERY status.
    init?(_ status: JSONValue, _ handlers: [HandlerRow], seconds: Double) {
        guard let broker = status.member("broker")?.text, let phase = status.member("phase")?.text else { return nil }
        self.broker = broker
        self.phase = phase
        self.seconds = seconds
        self.handlers = handlers
        var numbers: [String: Int] = [:]
        Self.collect(status, "", &numbers)
        self.numbers = numbers
        workers =
            status.member("workers") == nil
            ? nil
            : status.items("workers").map { item in
                Worker(
                    pid: item.member("pid")?.text ?? "-", phase: item.member("phase")?.text ?? "-",
                    slots: item.number("slots") ?? 0, running: item.number("running") ?? 0)
            }
        origins = status.items("origins").map { item in
            Origin(
                name: item.member("origin")?.text ?? "-", running: item.number("running") ?? 0,
                limit: item.number("limit") ?? 0, flights: item.number("flights") ?? 0,
                coolingMilliseconds: item.number("cooling-ms"))
        }
    }

    private static func collect(_ value: JSONValue, _ path: String, _ numbers: inout [String: Int]) {
        switch value {
        case .scalar(let text): numbers[path] = Int(text)
        case .array, .string: break
        case .object(let members):
            for member in members {
                collect(member.value, path.isEmpty ? member.name : "\(path).\(member.name)", &numbers)
            }
        }
    }

    // MARK: Numbers

    /// A number by its path; nil if the answer does not have it, as for a user without access to those of others.
    func count(_ path: String) -> Int? { numbers[path] }

    /// Number of requests that have not ended, without those whose failures are kept on disk.
    var pending: Int? { count("requests.pending").map { $0 - (count("requests.failed-kept") ?? 0) } }

    /// Number of failed requests, of all codes.
    var failed: Int { numbers.reduce(0) { $0 + ($1.key.hasPrefix("requests.failed.") ? $1.value : 0) } }

    /// Number of slots of all workers; nil without the workers.
    var slots: Int? { workers?.reduce(0) { $0 + $1.slots } }

    /// Change of a counter per second; nil without an earlier sample of the same broker.
    func rate(since earlier: TopSample?, _ counter: (TopSample) -> Int?) -> Double? {
        guard let earlier, earlier.broker == broker, seconds > earlier.seconds, let now = counter(self),
            let before = counter(earlier)
        else { return nil }
        return Double(max(0, now - before)) / (seconds - earlier.seconds)
    }

    /// Share of `part` in `whole` as a percentage since an earlier sample of the same broker, or of all; nil if `whole`
    /// is 0.
    func percent(since earlier: TopSample?, _ part: (TopSample) -> Int, of whole: (TopSample) -> Int) -> Int? {
        let base = earlier?.broker == broker ? earlier : nil
        let all = whole(self) - (base.map(whole) ?? 0)
        guard all > 0 else { return nil }
        return min(100, max(0, (part(self) - (base.map(part) ?? 0)) * 100 / all))
    }

    static func cacheUses(_ sample: TopSample) -> Int { sample.count("cache.used") ?? 0 }
    static func cacheLookups(_ sample: TopSample) -> Int { sample.count("cache.asked") ?? 0 }
    static func joinedRequests(_ sample: TopSample) -> Int { sample.count("flights.joined") ?? 0 }
    static func attached(_ sample: TopSample) -> Int { (sample.count("flights.started") ?? 0) + joinedRequests(sample) }

    // MARK: Lines

    /// Names and values of the line of a sample, when the output is no terminal. A missing value is nil.
    func fields(since earlier: TopSample?, time: String) -> [(name: String, value: String?, isText: Bool)] {
        func number(_ name: String, _ value: Int?) -> (name: String, value: String?, isText: Bool) {
            (name, value.map { String($0) }, false)
        }
        func rate(_ name: String, _ counter: (TopSample) -> Int?) -> (name: String, value: String?, isText: Bool) {
            (name, self.rate(since: earlier, counter).map(Self.text), false)
        }
        return [
            ("time", time, true), ("phase", phase, true),
            number("clients", count("clients")), number("handlers", count("handlers")),
            number("pending", pending),
            number("high", count("queue.high")), number("normal", count("queue.normal")),
            number("low", count("queue.low")), number("background", count("queue.background")),
            number("queued", count("flights-now.queued")), number("running", count("flights-now.running")),
            number("backing-off", count("flights-now.backing-off")),
            number("workers", workers?.count), number("slots", slots),
            rate("submitted/s") { $0.count("requests.submitted") },
            rate("answered/s") { $0.count("requests.answered") },
            rate("failed/s") { $0.failed },
            rate("removed/s") { $0.count("requests.removed") },
            rate("bytes/s") { $0.count("flights.bytes") },
            number("cache-percent", percent(since: earlier, Self.cacheUses, of: Self.cacheLookups)),
            number("shared-percent", percent(since: earlier, Self.joinedRequests, of: Self.attached)),
        ]
    }

    /// A rate with one decimal below 100, and without above.
    static func text(_ rate: Double) -> String {
        guard rate < 99.95 else { return String(Int(min(rate, 1e15).rounded())) }
        let tenths = Int((rate * 10).rounded())
        return "\(tenths / 10).\(tenths % 10)"
    }
}
