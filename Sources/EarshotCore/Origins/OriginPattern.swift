internal import EarshotHTTP

/// Whom a rule is for: `https://example.org:8443`, one origin; `example.org`, one host by any scheme and port;
/// `*.example.org`, all hosts below a name.
public struct OriginPattern: Hashable, Sendable, CustomStringConvertible {
    /// In normal form.
    public let description: String

    /// - Returns: nil for text that is none of the three.
    public init?(_ text: String) {
        let isWildcard = text.hasPrefix("*.")
        let isOrigin = text.contains("://")
        let name = isWildcard ? String(text.dropFirst(2)) : text
        guard let url = try? FetchURL(isOrigin ? name : "http://\(name)"), !url.host.isEmpty, !url.hasUserinfo,
            url.path == "/", url.query == nil
        else { return nil }
        let origin = url.origin
        if isOrigin {
            guard !isWildcard else { return nil }
            description = origin.description
        } else {
            // A port is of an origin, and an address has nothing below it.
            guard origin.port == 80, !name.hasSuffix(":80"), !isWildcard || url.address == nil else { return nil }
            description = isWildcard ? "*." + origin.host : Self.hostName(origin.host)
        }
    }

    private init(normal description: String) {
        self.description = description
    }

    /// The patterns that match an origin, most specific first. O(labels of the host).
    static func candidates(for origin: Origin) -> [OriginPattern] {
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
