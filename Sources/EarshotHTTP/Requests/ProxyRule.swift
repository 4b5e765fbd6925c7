internal import EarshotWire

/// Proxy selection by the environment variables that curl uses: `http_proxy`, `https_proxy`, `all_proxy`, `no_proxy`.
/// The first is read only in lower case, because the upper-case one can come from a request to a CGI program.
public struct ProxyRule: Hashable, Sendable {
    private typealias Reading = Result<ProxyAddress, ProxyAddress.ParseError>

    private let proxyByScheme: [String: Reading]
    private let allProxy: Reading?
    private let exceptions: ProxyExceptions

    /// - Parameter variable: Returns the value of a variable; nil if it is not set.
    public init(variable: (String) -> String?) {
        func value(_ name: String) -> String? { variable(name).flatMap { $0.isEmpty ? nil : $0 } }
        func either(_ name: String) -> String? { value(name) ?? value(name.uppercased()) }
        func reading(_ text: String?) -> Reading? {
            text.map { text in
                Result { () throws(ProxyAddress.ParseError) in try ProxyAddress(text) }
            }
        }
        proxyByScheme = ["http": reading(value("http_proxy")), "https": reading(either("https_proxy"))]
            .compactMapValues(\.self)
        allProxy = reading(either("all_proxy"))
        exceptions = ProxyExceptions(either("no_proxy") ?? "")
    }

    /// Entries of `no_proxy` that are neither a name nor an address nor a network, and so have no effect.
    public var unknownExceptions: [String] { exceptions.unrecognizedEntries }

    /// Returns the proxy; nil for a direct connection.
    public func proxy(for url: FetchURL) throws(ProxyAddress.ParseError) -> ProxyAddress? {
        guard let proxy = proxyByScheme[String(url.scheme)] ?? allProxy, !exceptions.contain(url) else { return nil }
        return try proxy.get()
    }
}

/// Hosts that are reached without a proxy: the value of `no_proxy`.
struct ProxyExceptions: Hashable, Sendable {
    private var excludesAllHosts = false
    private var hostNames: [String] = []
    private var networks: [IPNetwork] = []
    /// Entries that are neither a name nor an address nor a network.
    private(set) var unrecognizedEntries: [String] = []

    /// Parses names, addresses, networks and `*`, separated by commas and white space.
    init(_ text: String) {
        for entry in text.split(whereSeparator: { $0 == "," || $0.isWhitespace }) {
            let bare = entry.hasPrefix("[") && entry.hasSuffix("]") ? entry.dropFirst().dropLast() : entry
            if entry == "*" {
                excludesAllHosts = true
            } else if let network = try? IPNetwork(maskingHostBitsOf: String(bare)) {
                networks.append(network)
            } else if let name = Self.withoutOuterDots(entry.lowercased()), Self.isHostName(name) {
                hostNames.append(name)
            } else {
                unrecognizedEntries.append(String(entry))
            }
        }
    }

    /// Returns whether a request of this URL uses no proxy.
    func contain(_ url: FetchURL) -> Bool {
        if excludesAllHosts { return true }
        if let address = url.address { return networks.contains { $0.contains(address) } }
        let host = Self.withoutOuterDots(String(url.host)) ?? ""
        return hostNames.contains { host == $0 || host.hasSuffix("." + $0) }
    }

    /// Removes leading dots and a trailing dot; nil if nothing is left.
    private static func withoutOuterDots(_ text: String) -> String? {
        var name = text[...]
        while name.first == "." { name.removeFirst() }
        if name.last == "." { name.removeLast() }
        return name.isEmpty ? nil : String(name)
    }

    /// Returns whether the host of a URL can have this name or end with it. A host that ends in a number is an address.
    private static func isHostName(_ name: String) -> Bool {
        let last = name.utf8[(name.utf8.lastIndex(of: UInt8(ascii: ".")) ?? name.startIndex)...]
        return name.utf8.allSatisfy { $0.isLetter || $0.isDigit || [0x2d, 0x2e, 0x5f].contains($0) }
            && !last.allSatisfy { $0.isDigit || $0 == UInt8(ascii: ".") }
    }
}

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
            guard let kind = Self.kind(ofScheme: text[..<end.lowerBound].lowercased()) else { throw .unsupportedScheme }
            self.kind = kind
            authority = text[end.upperBound...]
        } else {
            kind = .http
        }
        if authority.last == "/" { authority.removeLast() }
        if let at = authority.lastIndex(of: "@") {
            userinfo = String(authority[..<at])
            guard authority[..<at].utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f }) else { throw .invalidUserinfo }
            authority = authority[authority.index(after: at)...]
        } else {
            userinfo = nil
        }
        let hostEnd = authority.lastIndex(of: "]") ?? authority.startIndex
        if let colon = authority[hostEnd...].lastIndex(of: ":") {
            guard let number: UInt16 = Decimal.parse(authority[authority.index(after: colon)...]), number > 0 else {
                throw .invalidPort
            }
            port = number
            authority = authority[..<colon]
        } else {
            port = kind == .https ? 443 : 1080
        }
        guard let url = try? FetchURL("http://\(authority)/"), !url.host.isEmpty, url.path == "/", url.query == nil,
            !url.hasUserinfo, url.description.utf8.last == UInt8(ascii: "/")
        else { throw .invalidHost }
        host = String(url.host)
    }

    private static func kind(ofScheme scheme: String) -> Kind? {
        switch scheme {
        case "http": .http
        case "https": .https
        case "socks4", "socks4a": .socks4
        case "socks5", "socks5h", "socks": .socks5
        default: nil
        }
    }

    /// Reason why a text is not the address of a proxy. Its description contains no part of the text.
    public enum ParseError: Error, Hashable, Sendable, CustomStringConvertible {
        /// Scheme of no supported protocol.
        case unsupportedScheme
        /// Byte in the user information that is not visible ASCII.
        case invalidUserinfo
        /// Host that is neither a name nor an address, or a path after it.
        case invalidHost
        /// Port that is not a number from 1 to 65535.
        case invalidPort

        /// Forms of a proxy, for messages.
        public static let acceptedForms =
            "SCHEME://[USER:PASSWORD@]HOST[:PORT] with http, https, socks4, socks4a, socks5 or socks5h"

        public var description: String {
            let fault =
                switch self {
                case .unsupportedScheme: "The scheme of the proxy is not supported"
                case .invalidUserinfo: "The proxy's user or password holds a character that must be percent-encoded"
                case .invalidHost: "The host of the proxy is not valid"
                case .invalidPort: "The port of the proxy is not a number from 1 to 65535"
                }
            return "\(fault); give \(Self.acceptedForms)."
        }
    }

    /// Address for messages: `HOST:PORT`, without user information.
    public var hostAndPort: String { "\(host.contains(":") ? "[\(host)]" : host):\(port)" }

    /// Returns the complete proxy URL for libcurl.
    ///
    /// - Parameter target: The URL to request. SOCKS 4 transfers its host as an IPv4 address or, by the extension 4A,
    ///   as a name.
    public func url(for target: FetchURL) -> String {
        let scheme =
            switch kind {
            case .http, .https: kind.rawValue
            case .socks4: if case .v4? = target.address { "socks4" } else { "socks4a" }
            case .socks5: "socks5h"
            }
        return "\(scheme)://\(userinfo.map { Self.escapedUserinfo($0) + "@" } ?? "")\(hostAndPort)"
    }

    /// Percent-encodes the characters that would end the authority of a URL.
    private static func escapedUserinfo(_ userinfo: String) -> String {
        PercentEncoding.encoded(userinfo.utf8) { !"/?#@".utf8.contains($0) }
    }
}
