internal import EarshotWire

/// Proxy selection by the environment variables that curl uses: `http_proxy`, `https_proxy`, `all_proxy`, `no_proxy`.
/// The first is read only in lower case, because the upper-case one can come from a request to a CGI program.
public struct ProxyRule: Hashable, Sendable {
    private typealias Reading = Result<ProxyAddress, ProxyAddress.ParseError>

    private let proxies: [String: Reading]
    private let all: Reading?
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
        proxies = ["http": reading(value("http_proxy")), "https": reading(either("https_proxy"))]
            .compactMapValues(\.self)
        all = reading(either("all_proxy"))
        exceptions = ProxyExceptions(either("no_proxy") ?? "")
    }

    /// Entries of `no_proxy` that are neither a name nor an address nor a network, and so have no effect.
    public var unknownExceptions: [String] { exceptions.unknown }

    /// Returns the proxy; nil for a direct connection.
    public func proxy(for url: FetchURL) throws(ProxyAddress.ParseError) -> ProxyAddress? {
        guard let proxy = proxies[String(url.scheme)] ?? all, !exceptions.contain(url) else { return nil }
        return try proxy.get()
    }
}

/// Hosts that are reached without a proxy: the value of `no_proxy`.
struct ProxyExceptions: Hashable, Sendable {
    private var isOff = false
    private var names: [String] = []
    private var networks: [IPNetwork] = []
    /// Entries that are neither a name nor an address nor a network.
    private(set) var unknown: [String] = []

    /// Parses names, addresses, networks and `*`, separated by commas and white space.
    init(_ text: String) {
        for entry in text.split(whereSeparator: { $0 == "," || $0.isWhitespace }) {
            let bare = entry.hasPrefix("[") && entry.hasSuffix("]") ? entry.dropFirst().dropLast() : entry
            if entry == "*" {
                isOff = true
            } else if let network = try? IPNetwork(masking: String(bare)) {
                networks.append(network)
            } else if let name = Self.name(entry.lowercased()), Self.isHostName(name) {
                names.append(name)
            } else {
                unknown.append(String(entry))
            }
        }
    }

    /// Whether a request of this URL uses no proxy.
    func contain(_ url: FetchURL) -> Bool {
        if isOff { return true }
        if let address = url.address { return networks.contains { $0.contains(address) } }
        let host = Self.name(String(url.host)) ?? ""
        return names.contains { host == $0 || host.hasSuffix("." + $0) }
    }

    /// Removes leading dots and a trailing dot; nil if nothing is left.
    private static func name(_ text: String) -> String? {
        var name = text[...]
        while name.first == "." { name.removeFirst() }
        if name.last == "." { name.removeLast() }
        return name.isEmpty ? nil : String(name)
    }

    /// Whether the host of a URL can have this name or end with it. A host that ends in a number is an address.
    private static func isHostName(_ name: String) -> Bool {
        let last = name.utf8[(name.utf8.lastIndex(of: UInt8(ascii: ".")) ?? name.startIndex)...]
        return name.utf8.allSatisfy { $0.isLetter || $0.isDigit || [0x2d, 0x2e, 0x5f].contains($0) }
            && !last.allSatisfy { $0.isDigit || $0 == UInt8(ascii: ".") }
    }
}
