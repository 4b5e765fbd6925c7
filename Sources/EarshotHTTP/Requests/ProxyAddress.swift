internal import EarshotWire

/// Address of a proxy, parsed from its URL: the only reader of proxy URLs, for options, fields and the environment.
public struct ProxyAddress: Hashable, Sendable {
    /// Protocol of a proxy.
    public enum Kind: String, Sendable {
        case http
        case https
        case socks4
        case socks5
    }

    /// Protocol of the proxy. A proxy of any kind resolves host names itself.
    public let kind: Kind
    /// Host in lower case, without brackets.
    public let host: String
    /// Port of the URL, or curl's default: 1080, for https 443.
    public let port: UInt16
    /// User name and, after a colon, password, as written; nil if absent.
    public let userinfo: String?

    /// Parses `[SCHEME://][USER:PASSWORD@]HOST[:PORT]`. A text without a scheme is an http proxy, as for curl. `socks`
    /// is equivalent to `socks5`.
    public init(_ text: String) throws(ParseError) {
        var authority = text[...]
        if let end = text.firstRange(of: "://") {
            guard let kind = Self.kind(text[..<end.lowerBound].lowercased()) else { throw .scheme }
            self.kind = kind
            authority = text[end.upperBound...]
        } else {
            kind = .http
        }
        if authority.last == "/" { authority.removeLast() }
        if let at = authority.lastIndex(of: "@") {
            userinfo = String(authority[..<at])
            guard authority[..<at].utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f }) else { throw .userinfo }
            authority = authority[authority.index(after: at)...]
        } else {
            userinfo = nil
        }
        let hostEnd = authority.lastIndex(of: "]") ?? authority.startIndex
        if let colon = authority[hostEnd...].lastIndex(of: ":") {
            guard let number: UInt16 = Decimal.number(authority[authority.index(after: colon)...]), number > 0 else {
                throw .port
            }
            port = number
            authority = authority[..<colon]
        } else {
            port = kind == .https ? 443 : 1080
        }
        guard let url = try? FetchURL("http://\(authority)/"), !url.host.isEmpty, url.path == "/", url.query == nil,
            !url.hasUserinfo, url.description.utf8.last == UInt8(ascii: "/")
        else { throw .host }
        host = String(url.host)
    }

    private static func kind(_ scheme: String) -> Kind? {
        switch scheme {
        case "http": .http
        case "https": .https
        case "socks4", "socks4a": .socks4
        case "socks5", "socks5h", "socks": .socks5
        default: nil
        }
    }

    /// Reason why a text is no address of a proxy. Its description contains no part of the text.
    public enum ParseError: Error, Hashable, Sendable, CustomStringConvertible {
        /// Scheme of no supported protocol.
        case scheme
        /// Byte in the user information that is not visible ASCII.
        case userinfo
        /// Host that is neither a name nor an address, or a path after it.
        case host
        /// Port that is not a number from 1 to 65535.
        case port

        /// Forms of a proxy, for messages.
        public static let form =
            "SCHEME://[USER:PASSWORD@]HOST[:PORT] with http, https, socks4, socks4a, socks5 or socks5h"

        public var description: String {
            let fault =
                switch self {
                case .scheme: "The scheme of the proxy is not supported"
                case .userinfo: "The proxy's user or password holds a character that must be percent-encoded"
                case .host: "The host of the proxy is not valid"
                case .port: "The port of the proxy is not a number from 1 to 65535"
                }
            return "\(fault); give \(Self.form)."
        }
    }

    /// Address for messages: `HOST:PORT`, without user information.
    public var name: String { "\(host.contains(":") ? "[\(host)]" : host):\(port)" }

    /// Complete proxy URL for libcurl.
    ///
    /// - Parameter target: the URL to request. SOCKS 4 transfers its host as an IPv4 address or, by the extension 4A, as a name.
    public func url(for target: FetchURL) -> String {
        let scheme =
            switch kind {
            case .http, .https: kind.rawValue
            case .socks4: if case .v4? = target.address { "socks4" } else { "socks4a" }
            case .socks5: "socks5h"
            }
        return "\(scheme)://\(userinfo.map { Self.escaped($0) + "@" } ?? "")\(name)"
    }

    /// Percent-encodes the characters that would end the authority of a URL.
    private static func escaped(_ userinfo: String) -> String {
        PercentEncoding.encoded(userinfo.utf8) { !"/?#@".utf8.contains($0) }
    }
}
