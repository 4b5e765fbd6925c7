internal import EarshotHTTP

/// Limits of origins: defaults, and rules for some origins.
public struct OriginRules: Equatable, Sendable {
    /// Values of one rule; nil where a less specific rule decides.
    public struct Terms: Equatable, Sendable {
        /// Maximum number of concurrent transfers, over all workers.
        public var limit: Int?
        /// Minimum time between two starts, in milliseconds; 0 for none.
        public var spacingMilliseconds: Int?
        /// Whether transfers may use HTTP/2.
        public var allowsHTTP2: Bool?
        /// Maximum rate of all transfers together, in bytes per second; 0 for no maximum.
        public var rate: Int?

        public init(
            limit: Int? = nil, spacingMilliseconds: Int? = nil, allowsHTTP2: Bool? = nil, rate: Int? = nil
        ) {
            self.limit = limit
            self.spacingMilliseconds = spacingMilliseconds
            self.allowsHTTP2 = allowsHTTP2
            self.rate = rate
        }
    }

    /// Maximum number of concurrent transfers to an origin without a rule. 6 is the usual limit of browsers.
    public var limit = 6
    /// Minimum time in milliseconds between two starts at an origin without a rule.
    public var spacingMilliseconds = 0
    /// Whether transfers to an origin without a rule may use HTTP/2.
    public var allowsHTTP2 = true
    public var rules: [OriginPattern: Terms] = [:]

    public init() {}

    /// Terms of an origin in a pool. The slots of users' own workers are the only limit for their origins.
    func terms(for entry: OriginEntry) -> OriginEntry.Terms {
        entry.pool == WorkerPool.web ? terms(for: entry.origin) : (.max, 0, true, 0)
    }

    /// Terms of an origin: each value is that of the most specific rule that sets it. O(labels of the host).
    func terms(for origin: @autoclosure () -> Origin) -> OriginEntry.Terms {
        var found = Terms()
        if !rules.isEmpty {
            for pattern in OriginPattern.candidates(for: origin()) {
                guard let rule = rules[pattern] else { continue }
                found.limit = found.limit ?? rule.limit
                found.spacingMilliseconds = found.spacingMilliseconds ?? rule.spacingMilliseconds
                found.allowsHTTP2 = found.allowsHTTP2 ?? rule.allowsHTTP2
                found.rate = found.rate ?? rule.rate
            }
        }
        return (
            found.limit ?? limit, found.spacingMilliseconds ?? spacingMilliseconds, found.allowsHTTP2 ?? allowsHTTP2,
            found.rate ?? 0
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
            description = isWildcard ? "*." + origin.host : Self.hostName(origin.host)
        }
    }

    private init(normal description: String) {
        self.description = description
    }

    /// Patterns that match an origin, most specific first. O(labels of the host).
    static func candidates(for origin: Origin) -> [OriginPattern] {
        let origin = origin.withoutFinalDot
        var candidates = [OriginPattern(normal: origin.description), OriginPattern(normal: hostName(origin.host))]
        var rest = origin.host[...]
        while let dot = rest.firstIndex(of: ".") {
            rest = rest[rest.index(after: dot)...]
            if !rest.isEmpty { candidates.append(OriginPattern(normal: "*." + rest)) }
        }
        return candidates
    }

    private static func hostName(_ host: String) -> String { host.contains(":") ? "[\(host)]" : host }
}
