internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire

/// Shared secrets of clients, and the bound on guesses.
struct TokenRule {
    enum Verdict {
        case right
        case absent
        case wrong
        /// Not compared, because there were too many wrong ones.
        case tooMany
    }

    /// Maximum number of wrong tokens in a second, of all clients.
    private static let guesses = 10

    let tokens: [[UInt8]]
    /// Times of the last wrong ones.
    private var failureTimes: [LoopTime] = []

    init(tokens: [[UInt8]]) {
        self.tokens = tokens
    }

    /// Compares a token.
    mutating func verdict(on head: RequestHead, now: LoopTime, field: String = "authorization") -> Verdict {
        let offered = Self.offeredToken(head, field)
        guard !offered.isEmpty else { return .absent }
        failureTimes.removeAll { now.since($0) >= .seconds(1) }
        guard failureTimes.count < Self.guesses else { return .tooMany }
        if tokens.contains(where: { ConstantTime.isEqual(offered, $0) }) { return .right }
        failureTimes.append(now)
        return .wrong
    }

    /// The response to a request without the right token.
    static func refusal(_ verdict: Verdict, realm: String, isProxy: Bool = false) -> WebResponse? {
        switch verdict {
        case .right: return nil
        case .tooMany: return WebResponse(429, text: "too many wrong tokens", fields: [("Retry-After", "1")])
        case .absent, .wrong:
            let challenge = "Basic realm=\"\(realm)\", charset=\"UTF-8\""
            return WebResponse(
                isProxy ? 407 : 401, text: "a token is required: as bearer token, or as password",
                fields: [(isProxy ? "Proxy-Authenticate" : "WWW-Authenticate", challenge)])
        }
    }

    /// The token that a request offers: a bearer token, or the password of Basic authentication, which browsers ask for.
    private static func offeredToken(_ head: RequestHead, _ field: String) -> [UInt8] {
        let words = (head.fields.first(field) ?? "").split(separator: " ", maxSplits: 1)
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
