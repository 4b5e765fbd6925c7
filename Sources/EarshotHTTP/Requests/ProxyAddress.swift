/// Address of a proxy, parsed from its URL.
public struct ProxyAddress: Hashable, Sendable {
    /// Protocol of a proxy.
    public enum Kind: String, Sendable {
        case http
        case https
        /// The proxy resolves host names itself.
        case socks5
    }

    /// Protocol of the proxy.
    public let kind: Kind
    /// Host in lower case, without brackets.
    public let host: String
    /// Port of the URL, or curl's default: 1080, for https 443.
    public let port: UInt16
    /// User name and, after a colon, password, as written; nil if absent.
    public let userinfo: String?

    /// Parses `http://HOST:PORT`, optionally with user information; nil for other text. `socks5h` is equivalent to
    /// `socks5`.
    public init?(_ text: String) {
        guard let end = text.firstRange(of: "://") else { return nil }
        switch text[..<end.lowerBound].lowercased() {
        case "http": kind = .http
        case "https": kind = .https
        case "socks5", "socks5h": kind = .socks5
        default: return nil
        }
        var authority = text[end.upperBound...]
        if authority.last == "/" { authority.removeLast() }
        if let at = authority.lastIndex(of: "@") {
            userinfo = String(authority[..<at])
            authority = authority[authority.index(after: at)...]
        } else {
            userinfo = nil
        }
        let hostEnd = authority.lastIndex(of: "]") ?? authority.startIndex
        if let colon = authority[hostEnd...].lastIndex(of: ":") {
            guard let number = UInt16(authority[authority.index(after: colon)...]), number > 0 else { return nil }
            port = number
            authority = authority[..<colon]
        } else {
            port = kind == .https ? 443 : 1080
        }
        guard let url = try? FetchURL("http://\(authority)/"), !url.host.isEmpty, url.path == "/", url.query == nil,
            !url.hasUserinfo
        else { return nil }
        host = String(url.host)
    }

    /// Complete proxy URL for libcurl.
    public var url: String {
        let scheme = kind == .socks5 ? "socks5h" : kind.rawValue
        let name = host.contains(":") ? "[\(host)]" : host
        return "\(scheme)://\(userinfo.map { $0 + "@" } ?? "")\(name):\(port)"
    }
}
