internal import EarshotCore

/// Model's state of one origin: invariant 9. Never deleted, because there are few.
struct OriginRecord {
    /// `scheme://host:port`, as in URLs.
    let name: Substring
    /// Number of transfers, including cancelled ones until they are confirmed.
    private(set) var runningTransfers = 0
    /// Number of transfers of classes below `high`.
    private(set) var transfersBelowHigh = 0
    /// Number of open flights.
    private(set) var flights = 0
    private(set) var limit = 0
    private(set) var spacingMilliseconds = 0
    private var lastStart = MonotonicTime(nanoseconds: .min)
    /// Whether the origin was idle at some time since the last start when spacing permitted another start. The core may
    /// then have forgotten it, and a later increase of the spacing need not count from that start.
    private var mayBeForgotten = false

    init(_ name: Substring, _ rules: OriginRules) {
        self.name = name
        setLimitAndSpacing(rules)
    }

    /// Earliest time of the next start according to the spacing.
    var spacingEnd: MonotonicTime { lastStart.advanced(byMilliseconds: spacingMilliseconds) }

    /// Returns whether the limit permits another transfer. Of four or more slots, one is reserved for `high`.
    func hasRoom(_ isHigh: Bool) -> Bool {
        runningTransfers < limit && (isHigh || limit < 4 || transfersBelowHigh < limit - 1)
    }

    func mayStart(now: MonotonicTime) -> Bool { mayBeForgotten || now >= spacingEnd }

    /// Returns whether the spacing has elapsed, so that its timer must have fired.
    func hasSpacingElapsed(now: MonotonicTime) -> Bool { now >= spacingEnd }

    // MARK: Events

    mutating func rulesChanged(_ rules: OriginRules, now: MonotonicTime) {
        recordIdleness(now: now)
        setLimitAndSpacing(rules)
        recordIdleness(now: now)
    }

    mutating func flightOpened(now: MonotonicTime) {
        recordIdleness(now: now)
        flights += 1
    }

    mutating func flightClosed() { flights -= 1 }

    mutating func transferStarted(isHigh: Bool, now: MonotonicTime) {
        runningTransfers += 1
        if !isHigh { transfersBelowHigh += 1 }
        lastStart = max(lastStart, now)
        mayBeForgotten = false
    }

    mutating func transferEnded(isHigh: Bool) {
        runningTransfers -= 1
        if !isHigh { transfersBelowHigh -= 1 }
    }

    private mutating func recordIdleness(now: MonotonicTime) {
        if runningTransfers == 0, flights == 0, now >= spacingEnd { mayBeForgotten = true }
    }

    // MARK: Rules

    /// Sets limit and spacing by the most specific rule for each: the origin's own name, its host, the longest parent
    /// domain, the default.
    private mutating func setLimitAndSpacing(_ rules: OriginRules) {
        // Workers of users are limited only by their slots.
        guard name.starts(with: "http") else {
            limit = .max
            return
        }
        let matching = rules.rules.compactMap { pattern, terms in
            specificity(of: pattern.description).map { ($0, terms) }
        }
        .sorted { $0.0 > $1.0 }
        .map { $0.1 }
        limit = matching.lazy.compactMap(\.maximumTransfers).first ?? rules.defaultMaximumTransfers
        spacingMilliseconds = matching.lazy.compactMap(\.spacingMilliseconds).first ?? rules.defaultSpacingMilliseconds
    }

    /// Returns how specific a pattern is; nil if it does not match.
    private func specificity(of pattern: String) -> Int? {
        // The simulated origins have no ports.
        let host = name.drop { $0 != "/" }.drop { $0 == "/" }
        if pattern == name { return 2_000 }
        if pattern == host { return 1_000 }
        return pattern.hasPrefix("*.") && host.hasSuffix(pattern.dropFirst()) ? pattern.count : nil
    }
}
