internal import EarshotClient
internal import EarshotHTTP

/// Messages about proxies in the environment of a command that sends requests.
struct ProxyNotice {
    private let proxyRule: ProxyRule

    init() {
        proxyRule = ProxyRule(variable: Environment.value)
    }

    /// Message that a bus which already runs does not use the proxy of this command; nil if none applies to these URLs.
    func unusedProxyMessage(for urls: some Sequence<String>) -> String? {
        for text in urls {
            guard let url = try? FetchURL(text), let proxy = try? proxyRule.proxy(for: url) else { continue }
            let user = proxy.userinfo == nil ? "" : "USER:PASSWORD@"
            return
                "the proxy of this command's environment is not used: the workers of the running bus have their own; "
                + "give --proxy \(proxy.kind.rawValue)://\(user)\(proxy.hostAndPort) to use it"
        }
        return nil
    }

    /// Messages about entries of `no_proxy` that have no effect.
    var noProxyWarnings: [String] {
        proxyRule.unknownExceptions.map { "no_proxy: ignored '\($0)'; give a host name, an address or a network" }
    }
}
