internal import EarshotHTTP

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
