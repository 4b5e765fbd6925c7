/// A proxy as its URL names it.
public struct ProxyAddress: Hashable, Sendable {
    /// What is spoken to it.
    public enum Kind: String, Sendable {
        case http
        case https
        /// It is told names, which it looks up itself.
        case socks5
    }

    /// What is spoken to it.
    public let kind: Kind
    /// Lower-case, without brackets.
    public let host: String
    /// That of the URL, else curl's default: 1080, for https 443.
    public let port: UInt16
    /// User name and, after a colon, password, as written; nil if there are none.
    public let userinfo: String?

    /// Reads `http://HOST:PORT`, with user information if there is some; nil for other text. `socks5h` is `socks5`.
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

    /// The same for libcurl, complete.
    public var url: String {
        let scheme = kind == .socks5 ? "socks5h" : kind.rawValue
        let name = host.contains(":") ? "[\(host)]" : host
        return "\(scheme)://\(userinfo.map { $0 + "@" } ?? "")\(name):\(port)"
    }
}
