/// Proxy selection by the environment variables that curl uses: `http_proxy`, `https_proxy`, `all_proxy`, `no_proxy`.
/// The first is read only in lower case, because the upper-case one can come from a request to a CGI program.
public struct ProxyRule: Hashable, Sendable {
    private let proxies: [String: String]
    private let all: String?
    private let isOff: Bool
    private let names: [String]
    private let networks: [IPNetwork]

    /// - Parameter variable: Returns the value of a variable; nil if it is not set.
    public init(variable: (String) -> String?) {
        func either(_ name: String) -> String? {
            Self.filled(variable(name)) ?? Self.filled(variable(name.uppercased()))
        }
        proxies = ["http": Self.filled(variable("http_proxy")), "https": either("https_proxy")].compactMapValues(\.self)
        all = either("all_proxy")
        let exceptions = (either("no_proxy") ?? "").split { $0 == "," || $0 == " " }.map { $0.lowercased() }
        isOff = exceptions == ["*"]
        networks = exceptions.compactMap { try? IPNetwork($0) }
        names = exceptions.compactMap { Self.name($0) }
    }

    /// Returns the proxy's URL; nil for a direct connection. A value without a scheme is an http proxy.
    public func proxy(for url: FetchURL) -> String? {
        guard let proxy = proxies[String(url.scheme)] ?? all, !isExcepted(url) else { return nil }
        return proxy.contains("://") ? proxy : "http://" + proxy
    }

    private func isExcepted(_ url: FetchURL) -> Bool {
        if isOff { return true }
        let host = Self.name(String(url.host)) ?? ""
        if let address = url.address { return networks.contains { $0.contains(address) } }
        return names.contains { host == $0 || host.hasSuffix("." + $0) }
    }

    /// Removes leading dots and a trailing dot; nil if nothing is left.
    private static func name(_ text: String) -> String? {
        var name = text[...]
        while name.first == "." { name.removeFirst() }
        if name.last == "." { name.removeLast() }
        return name.isEmpty ? nil : String(name)
    }

    private static func filled(_ text: String?) -> String? { text.flatMap { $0.isEmpty ? nil : $0 } }
}
