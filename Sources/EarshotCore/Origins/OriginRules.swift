internal import EarshotHTTP

/// How much an origin is given: limits for all, and rules for some.
public struct OriginRules: Equatable, Sendable {
    /// What a rule says; nil for what it leaves to a less specific one.
    public struct Terms: Equatable, Sendable {
        /// Transfers at once, over all workers.
        public var limit: Int?
        /// The least time between two starts; 0 for none.
        public var spacingMilliseconds: Int?
        /// Whether HTTP/2 may be spoken.
        public var allowsHTTP2: Bool?

        public init(limit: Int? = nil, spacingMilliseconds: Int? = nil, allowsHTTP2: Bool? = nil) {
            self.limit = limit
            self.spacingMilliseconds = spacingMilliseconds
            self.allowsHTTP2 = allowsHTTP2
        }
    }

    /// Transfers at once to an origin without a rule: what browsers settled on.
    public var limit = 6
    /// The least time between two starts at an origin without a rule.
    public var spacingMilliseconds = 0
    /// Whether HTTP/2 may be spoken with an origin without a rule.
    public var allowsHTTP2 = true
    public var rules: [OriginPattern: Terms] = [:]

    public init() {}

    /// What holds for an origin: the most specific word on each term.
    func terms(for origin: @autoclosure () -> Origin) -> (limit: Int, spacingMilliseconds: Int, allowsHTTP2: Bool) {
        var found = Terms()
        if !rules.isEmpty {
            for pattern in OriginPattern.candidates(for: origin()) {
                guard let rule = rules[pattern] else { continue }
                found.limit = found.limit ?? rule.limit
                found.spacingMilliseconds = found.spacingMilliseconds ?? rule.spacingMilliseconds
                found.allowsHTTP2 = found.allowsHTTP2 ?? rule.allowsHTTP2
            }
        }
        return (
            found.limit ?? limit, found.spacingMilliseconds ?? spacingMilliseconds, found.allowsHTTP2 ?? allowsHTTP2
        )
    }
}
