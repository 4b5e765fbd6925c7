internal import EarshotCore

/// What the model knows of one origin: invariant 9. It is kept for good; there are few.
struct OriginRecord {
    /// `scheme://host:port`, as in URLs.
    let name: Substring
    /// Transfers, cancelled ones included until confirmed.
    private(set) var running = 0
    /// Those of lower classes than `high`.
    private(set) var lower = 0
    /// Flights that are open.
    private(set) var flights = 0
    private(set) var limit = 0
    private(set) var spacingMilliseconds = 0
    private var lastStart = Tick(nanoseconds: .min)
    /// Whether there was a time since the last start when nobody wanted anything there and another start would have
    /// been right: then a longer spacing that comes later need not count from it.
    private var mayBeForgotten = false

    init(_ name: Substring, _ rules: OriginRules) {
        self.name = name
        setTerms(rules)
    }

    /// When one more may start, as far as spacing goes.
    var spacedUntil: Tick { lastStart.advanced(byMilliseconds: spacingMilliseconds) }

    /// Whether the limit has room for one more; one slot of four or more is for `high`.
    func hasRoom(_ isHigh: Bool) -> Bool { running < limit && (isHigh || limit < 4 || lower < limit - 1) }

    func mayStart(now: Tick) -> Bool { mayBeForgotten || now >= spacedUntil }

    /// Whether the spacing is over. Its timer must have fired by then.
    func mustStart(now: Tick) -> Bool { now >= spacedUntil }

    // MARK: Events

    mutating func rulesChanged(_ rules: OriginRules, now: Tick) {
        noteIdleness(now: now)
        setTerms(rules)
        noteIdleness(now: now)
    }

    mutating func flightOpened(now: Tick) {
        noteIdleness(now: now)
        flights += 1
    }

    mutating func flightClosed() { flights -= 1 }

    mutating func started(isHigh: Bool, now: Tick) {
        running += 1
        if !isHigh { lower += 1 }
        lastStart = max(lastStart, now)
        mayBeForgotten = false
    }

    mutating func ended(isHigh: Bool) {
        running -= 1
        if !isHigh { lower -= 1 }
    }

    private mutating func noteIdleness(now: Tick) {
        if running == 0, flights == 0, now >= spacedUntil { mayBeForgotten = true }
    }

    // MARK: Rules

    /// The most specific rule's word on each of the two: its own name, its host, the longest name above it, all others.
    private mutating func setTerms(_ rules: OriginRules) {
        // For users' own workers their slots are the only limit.
        guard name.starts(with: "http") else {
            limit = .max
            return
        }
        let matching = rules.rules.compactMap { pattern, terms in rank(of: pattern.description).map { ($0, terms) } }
            .sorted { $0.0 > $1.0 }
            .map { $0.1 }
        limit = matching.lazy.compactMap(\.limit).first ?? rules.limit
        spacingMilliseconds = matching.lazy.compactMap(\.spacingMilliseconds).first ?? rules.spacingMilliseconds
    }

    /// How specific a pattern is; nil if it is of others.
    private func rank(of pattern: String) -> Int? {
        // The simulated origins have no ports.
        let host = name.drop { $0 != "/" }.drop { $0 == "/" }
        if pattern == name { return 2_000 }
        if pattern == host { return 1_000 }
        return pattern.hasPrefix("*.") && host.hasSuffix(pattern.dropFirst()) ? pattern.count : nil
    }
}
