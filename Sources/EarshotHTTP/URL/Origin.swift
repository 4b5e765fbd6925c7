/// Scheme, host and port of a URL: what limits, cool-downs and credentials belong to.
///
/// A dot at the end of a host name is no difference here: both names lead to the same servers.
public struct Origin: Hashable, Sendable, CustomStringConvertible {
    /// The scheme, lower-case.
    public let scheme: String

    /// The host, lower-case, without brackets and without a dot at its end; empty for a URL without one.
    public let host: String

    /// The port, or the scheme's default; nil for a scheme without one.
    public let port: UInt16?

    /// `https://host:port`, the port only where it is not the scheme's default; `thumb:` without a host.
    public var description: String {
        guard !host.isEmpty else { return scheme + ":" }
        let name = host.utf8.contains(UInt8(ascii: ":")) ? "[\(host)]" : host
        guard let port, port != URLParts.defaultPort(scheme) else { return "\(scheme)://\(name)" }
        return "\(scheme)://\(name):\(port)"
    }

    /// The origin of the URLs whose `FetchURL.originName` this is; nil for another text.
    public init?(named name: String) {
        guard let url = try? FetchURL(name), url.originName == name else { return nil }
        self = url.origin
    }

    /// Called by `FetchURL.origin`, whose parts are in normal form.
    init(scheme: String, host: String, port: UInt16?) {
        self.scheme = scheme
        self.host = host
        self.port = port
    }
}
