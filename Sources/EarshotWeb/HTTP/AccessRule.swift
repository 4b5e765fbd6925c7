internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire

/// Rule that admits requests: by the name of the server, and by the page that sends them.
///
/// A page of another site can send a request to a server on loopback, but not choose `Host` and `Origin`. With DNS
/// rebinding the browser treats such a page as one of this server, and `Host` then has the other site's name.
struct AccessRule {
    /// Reason for a rejection.
    enum Refusal: Equatable {
        /// The name in `Host` is not one of this server.
        case unknownHost
        /// A page of another site sent the request.
        case crossSite
    }

    /// Names of the server besides `localhost` and addresses, in lower case.
    var serverNames: Set<String> = []
    /// Origins of further pages that may send requests, in lower case.
    var permittedOrigins: Set<String> = []

    /// Returns the reason to reject a request; nil if it is admitted.
    ///
    /// - Parameter allowsAnyHost: whether the name of the server does not matter.
    func refusal(of head: RequestHead, allowsAnyHost: Bool = false) -> Refusal? {
        let name = Self.hostWithoutPort(head.host)
        guard allowsAnyHost || name == "localhost" || Self.isIPAddress(name) || serverNames.contains(name) else {
            return .unknownHost
        }
        return isSameSite(head) ? nil : .crossSite
    }

    private func isSameSite(_ head: RequestHead) -> Bool {
        let senders = head.fields.values(named: "origin").map { $0.lowercased() }
        if !senders.isEmpty, senders.allSatisfy({ permittedOrigins.contains($0) }) { return true }
        guard senders.allSatisfy({ $0 == "http://\(head.host)" || $0 == "https://\(head.host)" }) else { return false }
        let sites = head.fields.values(named: "sec-fetch-site").map { $0.lowercased() }
        if sites.allSatisfy({ $0 == "same-origin" || $0 == "none" }) { return true }
        // A link on another page may open this one.
        return head.path == "/" && head.fields.values(named: "sec-fetch-mode") == ["navigate"]
    }

    /// Returns the host without its port, and an IPv6 address with its brackets.
    static func hostWithoutPort(_ host: String) -> String {
        if host.hasPrefix("["), let end = host.firstIndex(of: "]") {
            let rest = host[host.index(after: end)...]
            return rest.isEmpty || rest.hasPrefix(":") ? String(host[...end]) : host
        }
        let name = host.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)[0]
        return String(name.hasSuffix(".") ? name.dropLast() : name)
    }

    /// Returns whether a name is an IP address. A rebinding attack needs a name in the DNS.
    private static func isIPAddress(_ name: String) -> Bool { TCPSocket.Address(urlHost: name[...]) != nil }
}

/// Shared secrets of clients, and the bound on guesses.
struct TokenRule {
    enum Verdict {
        case validToken
        case missingToken
        case wrongToken
        /// Not compared, because there were too many wrong ones.
        case tooManyFailures
    }

    /// Maximum number of wrong tokens in a second, of all clients.
    private static let maximumFailuresPerSecond = 10

    let tokens: [[UInt8]]
    /// Times of the last wrong ones.
    private var failureTimes: [LoopTime] = []

    init(tokens: [[UInt8]]) {
        self.tokens = tokens
    }

    /// Compares a token.
    mutating func checkToken(of head: RequestHead, now: LoopTime, field: String = "authorization") -> Verdict {
        let offered = Self.offeredToken(in: head, field: field)
        guard !offered.isEmpty else { return .missingToken }
        failureTimes.removeAll { now.since($0) >= .seconds(1) }
        guard failureTimes.count < Self.maximumFailuresPerSecond else { return .tooManyFailures }
        if tokens.contains(where: { ConstantTime.isEqual(offered, $0) }) { return .validToken }
        failureTimes.append(now)
        return .wrongToken
    }

    /// The response to a request without the right token.
    static func refusal(_ verdict: Verdict, realm: String, isProxy: Bool = false) -> WebResponse? {
        switch verdict {
        case .validToken: return nil
        case .tooManyFailures: return WebResponse(429, text: "too many wrong tokens", fields: [("Retry-After", "1")])
        case .missingToken, .wrongToken:
            let challenge = "Basic realm=\"\(realm)\", charset=\"UTF-8\""
            return WebResponse(
                isProxy ? 407 : 401, text: "a token is required: as bearer token, or as password",
                fields: [(isProxy ? "Proxy-Authenticate" : "WWW-Authenticate", challenge)])
        }
    }

    /// The token that a request offers: a bearer token, or the password of Basic authentication, for which browsers
    /// prompt.
    private static func offeredToken(in head: RequestHead, field: String) -> [UInt8] {
        let words = (head.fields.firstValue(named: field) ?? "").split(separator: " ", maxSplits: 1)
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
}
