internal import EarshotHTTP
internal import EarshotLoop

/// Rule that admits requests: by the name of the server, and by the page that sends them.
///
/// A page of another site can send a request to a server on loopback, but not choose `Host` and `Origin`. With DNS rebinding
/// the browser treats such a page as one of this server, and `Host` then has the other site's name.
struct AccessRule {
    /// Reason for a rejection.
    enum Refusal: Equatable {
        /// The name in `Host` is not one of this server.
        case unknownHost
        /// A page of another site sent the request.
        case crossSite
    }

    /// Names of the server besides `localhost` and addresses, in lower case.
    var hosts: Set<String> = []
    /// Origins of further pages that may send requests, in lower case.
    var origins: Set<String> = []

    /// Returns the reason to reject a request; nil if it is admitted.
    ///
    /// - Parameter anyHost: whether the name of the server does not matter.
    func refusal(of head: RequestHead, anyHost: Bool = false) -> Refusal? {
        let name = Self.name(ofHost: head.host)
        guard anyHost || name == "localhost" || Self.isAddress(name) || hosts.contains(name) else {
            return .unknownHost
        }
        return isSameSite(head) ? nil : .crossSite
    }

    private func isSameSite(_ head: RequestHead) -> Bool {
        let senders = head.fields.values("origin").map { $0.lowercased() }
        if !senders.isEmpty, senders.allSatisfy({ origins.contains($0) }) { return true }
        guard senders.allSatisfy({ $0 == "http://\(head.host)" || $0 == "https://\(head.host)" }) else { return false }
        let sites = head.fields.values("sec-fetch-site").map { $0.lowercased() }
        if sites.allSatisfy({ $0 == "same-origin" || $0 == "none" }) { return true }
        // A link on another page may open this one.
        return head.path == "/" && head.fields.values("sec-fetch-mode") == ["navigate"]
    }

    /// Returns the host without its port, and an IPv6 address with its brackets.
    static func name(ofHost host: String) -> String {
        if host.hasPrefix("["), let end = host.firstIndex(of: "]") {
            let rest = host[host.index(after: end)...]
            return rest.isEmpty || rest.hasPrefix(":") ? String(host[...end]) : host
        }
        let name = host.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)[0]
        return String(name.hasSuffix(".") ? name.dropLast() : name)
    }

    /// Returns whether a name is an IP address. A rebinding attack needs a name in the DNS.
    private static func isAddress(_ name: String) -> Bool { TCPSocket.Address(urlHost: name[...]) != nil }
}
