/// Scheme, host and port of a URL: RFC 6454. Limits, cool-downs, cookies and credentials belong to an origin.
///
/// `example.org` and `example.org.` are two hosts, although both names resolve to the same servers.
public struct Origin: Hashable, Sendable, CustomStringConvertible {
    /// Scheme in lower case.
    public let scheme: String

    /// Host in lower case, without brackets; empty for a URL without one.
    public let host: String

    /// Port, or the scheme's default; nil for a scheme without a default.
    public let port: UInt16?

    /// `https://host:port`, without the scheme's default port; `thumb:` without a host.
    public var description: String {
        guard !host.isEmpty else { return scheme + ":" }
        let name = host.utf8.contains(UInt8(ascii: ":")) ? "[\(host)]" : host
        guard let port, port != URLParts.defaultPort(scheme) else { return "\(scheme)://\(name)" }
        return "\(scheme)://\(name):\(port)"
    }

    /// Parses the `FetchURL.originName` of an origin; nil for other text.
    public init?(named name: String) {
        guard let url = try? FetchURL(name), url.originName == name else { return nil }
        self = url.origin
    }

    /// The origin without the dot at the end of its host, as rules of the configuration name it. A dot must not evade
    /// them.
    public var withoutFinalDot: Origin {
        guard host.utf8.last == UInt8(ascii: ".") else { return self }
        return Origin(scheme: scheme, host: String(host.dropLast()), port: port)
    }

    /// Creates an origin from normalized parts; used by `FetchURL.origin`.
    init(scheme: String, host: String, port: UInt16?) {
        self.scheme = scheme
        self.host = host
        self.port = port
    }
}
