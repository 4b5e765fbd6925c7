package import EarshotHTTP

/// Limits of origins: defaults, and rules for some origins.
public struct OriginRules: Equatable, Sendable {
    /// Values of one rule; nil where a less specific rule decides.
    public struct RuleTerms: Equatable, Sendable {
        /// Maximum number of concurrent transfers, over all workers.
        public var maximumTransfers: Int?
        /// Minimum time between two starts, in milliseconds; 0 for none.
        public var spacingMilliseconds: Int?
        /// Whether transfers may use HTTP/2.
        public var allowsHTTP2: Bool?
        /// Maximum rate of all transfers together, in bytes per second; 0 for no maximum.
        public var maximumBytesPerSecond: Int?

        public init(
            maximumTransfers: Int? = nil, spacingMilliseconds: Int? = nil, allowsHTTP2: Bool? = nil,
            maximumBytesPerSecond: Int? = nil
        ) {
            self.maximumTransfers = maximumTransfers
            self.spacingMilliseconds = spacingMilliseconds
            self.allowsHTTP2 = allowsHTTP2
            self.maximumBytesPerSecond = maximumBytesPerSecond
        }
    }

    /// Maximum number of concurrent transfers to an origin without a rule. 6 is the usual limit of browsers.
    public var defaultMaximumTransfers = 6
    /// Minimum time in milliseconds between two starts at an origin without a rule.
    public var defaultSpacingMilliseconds = 0
    /// Whether transfers to an origin without a rule may use HTTP/2.
    public var defaultAllowsHTTP2 = true
    public var rules: [OriginPattern: RuleTerms] = [:]

    public init() {}

    /// Returns the terms of an origin in a pool. The slots of users' own workers are the only limit for their origins.
    func terms(for entry: OriginEntry) -> OriginEntry.Terms {
        entry.workerPool == WorkerPool.webPoolHandle ? terms(for: entry.origin) : (.max, 0, true, 0)
    }

    /// Returns the terms of an origin: each value is that of the most specific rule that sets it. O(labels of the
    /// host).
    func terms(for origin: @autoclosure () -> Origin) -> OriginEntry.Terms {
        var found = RuleTerms()
        if !rules.isEmpty {
            for pattern in OriginPattern.matchingPatterns(for: origin()) {
                guard let rule = rules[pattern] else { continue }
                found.maximumTransfers = found.maximumTransfers ?? rule.maximumTransfers
                found.spacingMilliseconds = found.spacingMilliseconds ?? rule.spacingMilliseconds
                found.allowsHTTP2 = found.allowsHTTP2 ?? rule.allowsHTTP2
                found.maximumBytesPerSecond = found.maximumBytesPerSecond ?? rule.maximumBytesPerSecond
            }
        }
        return (
            found.maximumTransfers ?? defaultMaximumTransfers, found.spacingMilliseconds ?? defaultSpacingMilliseconds,
            found.allowsHTTP2 ?? defaultAllowsHTTP2, found.maximumBytesPerSecond ?? 0
        )
    }
}

/// Scope of a rule: `https://example.org:8443` is one origin, `example.org` one host with any scheme and port, and
/// `*.example.org` all hosts below a name.
public struct OriginPattern: Hashable, Sendable, CustomStringConvertible {
    /// The pattern in normal form.
    public let description: String

    /// - Returns: nil for text in none of the three forms.
    public init?(_ text: String) {
        let isWildcard = text.hasPrefix("*.")
        let isOrigin = text.contains("://")
        let name = isWildcard ? String(text.dropFirst(2)) : text
        guard let url = try? FetchURL(isOrigin ? name : "http://\(name)"), !url.host.isEmpty, !url.hasUserinfo,
            url.path == "/", url.query == nil
        else { return nil }
        let origin = url.origin.withoutFinalDot
        if isOrigin {
            guard !isWildcard else { return nil }
            description = origin.description
        } else {
            // Only an origin has a port, and an IP address has no hosts below it.
            guard origin.port == 80, !name.hasSuffix(":80"), !isWildcard || url.address == nil else { return nil }
            description = isWildcard ? "*." + origin.host : Self.bracketedHostName(origin.host)
        }
    }

    private init(normalizedDescription description: String) {
        self.description = description
    }

    /// Returns the patterns that match an origin, most specific first. O(labels of the host).
    static func matchingPatterns(for origin: Origin) -> [OriginPattern] {
        let origin = origin.withoutFinalDot
        var candidates = [
            OriginPattern(normalizedDescription: origin.description),
            OriginPattern(normalizedDescription: bracketedHostName(origin.host)),
        ]
        var rest = origin.host[...]
        while let dot = rest.firstIndex(of: ".") {
            rest = rest[rest.index(after: dot)...]
            if !rest.isEmpty { candidates.append(OriginPattern(normalizedDescription: "*." + rest)) }
        }
        return candidates
    }

    private static func bracketedHostName(_ host: String) -> String { host.contains(":") ? "[\(host)]" : host }
}

/// State of one origin for requests with the same credentials. A refusal of one such scope does not slow the others.
package struct OriginScope {
    package var origin: Handle<OriginEntry>
    package var trustScope: TrustScope
    /// Number of flights in this scope.
    package var flightCount = 0
    /// Whether the scope is kept only until its cool-down ends.
    var isKeptForCoolDownOnly = false
    /// nil while the origin accepts requests.
    package var coolDown: CoolDown?

    /// Whether a request may be taken from the queue, to start or to be refused. False while a probe runs.
    package var canTakeRequest: Bool {
        switch coolDown?.phase {
        case nil, .due, .refusing: true
        case .cooling, .probing: false
        }
    }

    /// Whether a request taken from the queue fails.
    var isRefusing: Bool {
        if case .refusing = coolDown?.phase { true } else { false }
    }
}

/// Identity of an origin's scope.
struct OriginScopeKey: Hashable {
    var origin: Handle<OriginEntry>
    var scope: TrustScope
}
