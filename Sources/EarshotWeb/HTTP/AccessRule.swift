internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire

/// Rule that admits requests: by the name of the server, by the page that sends them, and by the token.
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
        /// The token is missing or wrong.
        case noToken
    }

    /// Shared secret of the clients; nil if none is required.
    let token: [UInt8]?
    /// Names of the server besides `localhost` and addresses, in lower case.
    let hosts: Set<String>

    /// Returns the reason to reject a request; nil if it is admitted.
    ///
    /// - Parameter needsToken: whether the resource is for holders of the token.
    func refusal(of head: RequestHead, needsToken: Bool) -> Refusal? {
        let name = Self.name(ofHost: head.host)
        guard name == "localhost" || Self.isAddress(name) || hosts.contains(name) else { return .unknownHost }
        guard isSameSite(head) else { return .crossSite }
        guard needsToken, let token else { return nil }
        return ConstantTime.isEqual(offered(head), token) ? nil : .noToken
    }

    private func isSameSite(_ head: RequestHead) -> Bool {
        let origins = head.fields.values("origin").map { $0.lowercased() }
        guard origins.allSatisfy({ $0 == "http://\(head.host)" || $0 == "https://\(head.host)" }) else { return false }
        let sites = head.fields.values("sec-fetch-site").map { $0.lowercased() }
        if sites.allSatisfy({ $0 == "same-origin" || $0 == "none" }) { return true }
        // A link on another page may open this one.
        return head.path == "/" && head.fields.values("sec-fetch-mode") == ["navigate"]
    }

    /// The token that a request offers: a bearer token, or the password of Basic authentication, which browsers ask for.
    private func offered(_ head: RequestHead) -> [UInt8] {
        let words = (head.fields.first("authorization") ?? "").split(separator: " ", maxSplits: 1)
        guard words.count == 2 else { return [] }
        let text = String(words[1])
        switch words[0].lowercased() {
        case "bearer": return Array(text.utf8)
        case "basic":
            guard let pair = Base64.decoded(text), let colon = pair.firstIndex(of: UInt8(ascii: ":")) else { return [] }
            return Array(pair[(colon + 1)...])
        default: return []
        }
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
