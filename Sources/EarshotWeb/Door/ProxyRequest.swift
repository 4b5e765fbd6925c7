internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire

/// Translation of a request to the forward proxy into a FETCH: RFC 9110, section 7.6.
struct ProxyRequest {
    enum Reading {
        case fetchRequest(Fetch)
        /// The proxy answers by itself.
        case ownAnswer(WebResponse)
    }

    /// Name of this bus in `Via`, random for each door.
    let pseudonym: String
    /// Ports of the door's own listeners.
    var ports: Set<UInt16> = []
    /// Hosts whose indexes are rewritten below the prefix.
    var rewrittenHosts: Set<String> = []
    /// Maximum wait for a cool-down of the origin.
    var maximumWaitMilliseconds: Int

    /// Fields about the connection between client and proxy, besides those that `Connection` names: RFC 9110, section
    /// 7.6.1.
    static let connectionFields: Set<String> = [
        "connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
    ]
    /// Further fields of a request that are not passed on.
    private static let consumedFields: Set<String> = ["content-length", "expect", "host", "max-forwards"]
    /// Fields that clients send to the door as if all sites under the prefix were one: not passed on.
    private static let siteSpecificFields: Set<String> = ["authorization", "cookie", "origin", "referer"]
    private let accessRule = AccessRule()
    private static let allowField = [("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")]

    /// - Parameter isProved: whether the request has a token. Then the name of the server does not matter.
    func read(
        _ head: RequestHead, body: [UInt8], handler: HandlerID, id: RequestID, isProved: Bool = false
    ) -> Reading {
        switch head.method {
        case "CONNECT":
            return refusalAnswer(
                status: 405,
                sentence:
                    "tunnels are not supported, because they share and cache nothing; request /https://HOST/PATH at this address",
                fields: Self.allowField)
        case "TRACE", "TRACK":
            return refusalAnswer(
                status: 405, sentence: "the method \(head.method) is not supported", fields: Self.allowField)
        case "OPTIONS" where head.target == "*" || head.fields.firstValue(named: "max-forwards") == "0":
            return .ownAnswer(WebResponse(200, text: "a proxy for http URLs", fields: Self.allowField))
        case "GET" where !body.isEmpty, "HEAD" where !body.isEmpty:
            return refusalAnswer(status: 400, sentence: "\(head.method) has no body")
        default: break
        }
        let isPrefixed = head.target.hasPrefix("/")
        if isPrefixed, let refusal = refusalUnderPrefix(head, isProved: isProved) { return .ownAnswer(refusal) }
        guard let target = isPrefixed ? Self.urlBelowPrefix(head.target) : head.target, target != "*" else {
            return refusalAnswer(
                status: 404, sentence: "set http_proxy to this address, or request /https://HOST/PATH here")
        }
        guard target.utf8.count <= WireLimits.urlBytes else {
            return refusalAnswer(status: 414, sentence: "the URL has more than \(WireLimits.urlBytes) bytes")
        }
        guard !target.utf8.contains(UInt8(ascii: "#")), let url = try? FetchURL(target), url.isHTTP else {
            return refusalAnswer(status: 400, sentence: "the target is no http URL")
        }
        guard isPrefixed || url.scheme == "http" else {
            return refusalAnswer(
                status: 501,
                sentence: "the proxy fetches http URLs only; request /https://HOST/PATH at its own address")
        }
        guard !url.hasUserinfo else {
            return refusalAnswer(status: 400, sentence: "user and password belong to the field Authorization")
        }
        guard !isProxyLoop(url: url, fields: head.fields) else {
            return refusalAnswer(status: 508, sentence: "the request came from this proxy, or aims at it")
        }
        var fetch = Fetch(handler: handler, request: id, url: target)
        let isRewritten = isPrefixed && rewrittenHosts.contains(String(url.host))
        fetch.httpFields = forwardedFields(of: head, isPrefixed: isPrefixed, isRewritten: isRewritten)
        fetch.body = body.isEmpty ? nil : body
        fetch.options = fetchOptions(from: head)
        if isRewritten {
            // The whole text is read. No other request of the proxy is decoded.
            fetch.options.route.decodesBody = true
            fetch.options.streams = false
        }
        let values: [(String, String?)] = [
            ("method", head.method), ("priority", head.fields.firstValue(named: "earshot-priority")),
            ("deadline", head.fields.firstValue(named: "earshot-deadline")),
        ]
        do throws(WireError) {
            for case (let option, let value?) in values { try fetch.options.setOption(option, to: value) }
        } catch {
            return refusalAnswer(status: 400, sentence: error.detail)
        }
        return .fetchRequest(fetch)
    }

    private func refusalAnswer(status: Int, sentence: String, fields: [(String, String)] = []) -> Reading {
        .ownAnswer(WebResponse(status, text: sentence, fields: fields))
    }

    private func fetchOptions(from head: RequestHead) -> Fetch.Options {
        var options = Fetch.Options()
        options.coalesces = head.method == "GET" || head.isHEADMethod
        options.redirectMode = .manual
        options.retries = 0
        options.streams = !head.isHEADMethod
        options.coolDownWaitMilliseconds = maximumWaitMilliseconds
        options.route.decodesBody = false
        options.route.deliversErrorResponses = true
        return options
    }

    /// Returns the URL of a target such as `/https://host/path`; nil for another one. Intermediaries fold the slashes,
    /// and pip escapes the colons.
    private static func urlBelowPrefix(_ target: String) -> String? {
        let parts = target.dropFirst().split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
        guard parts.count == 2, case let scheme = unescapedColons(parts[0]), scheme == "https:" || scheme == "http:"
        else {
            return nil
        }
        let rest = parts[1].drop { $0 == "/" }
        let authority = rest.prefix { $0 != "/" && $0 != "?" }
        return scheme + "//" + unescapedColons(authority) + rest[authority.endIndex...]
    }

    private static func unescapedColons(_ text: Substring) -> String {
        // Few targets have one, and `replacing` costs more than all else that is read here.
        guard text.utf8.contains(UInt8(ascii: "%")) else { return String(text) }
        return String(text).replacing("%3A", with: ":").replacing("%3a", with: ":")
    }

    /// Returns the refusal of a request in origin form that a page of another site may have caused, or whose
    /// method is neither GET nor HEAD.
    private func refusalUnderPrefix(_ head: RequestHead, isProved: Bool) -> WebResponse? {
        switch accessRule.refusal(of: head, allowsAnyHost: isProved) {
        case .unknownHost?: return WebResponse(421, text: "unknown host name; use localhost or an address")
        case .crossSite?: return WebResponse(403, text: "requests from pages of other sites are rejected")
        case nil: break
        }
        guard head.method == "GET" || head.isHEADMethod else {
            return WebResponse(405, text: "only GET and HEAD are supported here", fields: [("Allow", "GET, HEAD")])
        }
        return nil
    }

    private func forwardedFields(of head: RequestHead, isPrefixed: Bool, isRewritten: Bool) -> [UInt8] {
        let named = Set(head.fields.connectionOptions)
        var lines: [UInt8] = []
        for field in head.fields {
            let name = String(decoding: field.name, as: UTF8.self).lowercased()
            guard !Self.connectionFields.contains(name), !Self.consumedFields.contains(name), !named.contains(name),
                !name.hasPrefix("proxy-"), !name.hasPrefix("earshot-"),
                !isPrefixed || !Self.siteSpecificFields.contains(name) && !name.hasPrefix("sec-"),
                !isRewritten || !["accept-encoding", "range", "if-range"].contains(name)
            else { continue }
            lines += name.utf8
            lines += ": ".utf8
            lines += field.value
            lines.append(UInt8(ascii: "\n"))
        }
        if head.method == "OPTIONS", let text = head.fields.firstValue(named: "max-forwards"), let left = UInt16(text),
            left > 0
        {
            lines += "max-forwards: \(left - 1)\n".utf8
        }
        lines += "via: \(head.isVersion10 ? "1.0" : "1.1") \(pseudonym)".utf8
        return lines
    }

    private func isProxyLoop(url: FetchURL, fields: HeaderFields) -> Bool {
        if fields.values(named: "via").contains(where: { $0.contains(pseudonym) }) { return true }
        guard let port = url.port, ports.contains(port) else { return false }
        return url.host == "localhost" || url.host == "::1" || url.host.hasPrefix("127.") || url.host == "0.0.0.0"
            || url.host == "::"
    }
}
