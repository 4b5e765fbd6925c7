internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire

/// Translation of a request to the forward proxy into a FETCH: RFC 9110, section 7.6.
struct ProxyRequest {
    enum Reading {
        case fetch(Fetch)
        /// The proxy answers by itself.
        case answer(WebResponse)
    }

    /// Name of this bus in `Via`, random for each door.
    let pseudonym: String
    /// Ports of the door's own listeners.
    var ports: Set<UInt16> = []
    /// Hosts whose indexes are rewritten below the prefix.
    var rewrites: Set<String> = []
    /// Maximum wait for a cool-down of the origin.
    var waitMilliseconds: Int

    /// Fields about the connection between client and proxy, besides those that `Connection` names: RFC 9110, section 7.6.1.
    static let connectionFields: Set<String> = [
        "connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
    ]
    /// Further fields of a request that are not passed on.
    private static let consumedFields: Set<String> = ["content-length", "expect", "host", "max-forwards"]
    /// Fields that clients send to the door as if all sites under the prefix were one: not passed on.
    private static let fieldsOfSites: Set<String> = ["authorization", "cookie", "origin", "referer"]
    private let access = AccessRule()
    private static let allow = [("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")]

    /// - Parameter isProved: whether the request has a token. Then the name of the server does not matter.
    func read(
        _ head: RequestHead, _ body: [UInt8], handler: HandlerID, id: RequestID, isProved: Bool = false
    ) -> Reading {
        switch head.method {
        case "CONNECT":
            return refusal(
                405,
                "tunnels are not supported, because they share and cache nothing; request /https://HOST/PATH at this address",
                Self.allow)
        case "TRACE", "TRACK": return refusal(405, "the method \(head.method) is not supported", Self.allow)
        case "OPTIONS" where head.target == "*" || head.fields.first("max-forwards") == "0":
            return .answer(WebResponse(200, text: "a proxy for http URLs", fields: Self.allow))
        case "GET" where !body.isEmpty, "HEAD" where !body.isEmpty:
            return refusal(400, "\(head.method) has no body")
        default: break
        }
        let isPrefixed = head.target.hasPrefix("/")
        if isPrefixed, let refusal = refusalUnderPrefix(head, isProved) { return .answer(refusal) }
        guard let target = isPrefixed ? Self.prefixed(head.target) : head.target, target != "*" else {
            return refusal(404, "set http_proxy to this address, or request /https://HOST/PATH here")
        }
        guard target.utf8.count <= WireLimits.urlBytes else {
            return refusal(414, "the URL has more than \(WireLimits.urlBytes) bytes")
        }
        guard !target.utf8.contains(UInt8(ascii: "#")), let url = try? FetchURL(target), url.isHTTP else {
            return refusal(400, "the target is no http URL")
        }
        guard isPrefixed || url.scheme == "http" else {
            return refusal(501, "the proxy fetches http URLs only; request /https://HOST/PATH at its own address")
        }
        guard !url.hasUserinfo else { return refusal(400, "user and password belong to the field Authorization") }
        guard !isLoop(url, head.fields) else { return refusal(508, "the request came from this proxy, or aims at it") }
        var fetch = Fetch(handler: handler, request: id, url: target)
        let isRewritten = isPrefixed && rewrites.contains(String(url.host))
        fetch.httpFields = passedFields(of: head, isPrefixed: isPrefixed, isRewritten)
        fetch.body = body.isEmpty ? nil : body
        fetch.options = options(head)
        if isRewritten {
            // The whole text is read. No other request of the proxy is decoded.
            fetch.options.route.decodes = true
            fetch.options.streams = false
        }
        let values: [(String, String?)] = [
            ("method", head.method), ("priority", head.fields.first("earshot-priority")),
            ("deadline", head.fields.first("earshot-deadline")),
        ]
        do throws(WireError) {
            for case (let option, let value?) in values { try fetch.options.set(option, to: value) }
        } catch {
            return refusal(400, error.detail)
        }
        return .fetch(fetch)
    }

    private func refusal(_ status: Int, _ sentence: String, _ fields: [(String, String)] = []) -> Reading {
        .answer(WebResponse(status, text: sentence, fields: fields))
    }

    private func options(_ head: RequestHead) -> Fetch.Options {
        var options = Fetch.Options()
        options.coalesces = head.method == "GET" || head.isHead
        options.redirect = .manual
        options.retries = 0
        options.streams = !head.isHead
        options.waitMilliseconds = waitMilliseconds
        options.route.decodes = false
        options.route.deliversErrors = true
        return options
    }

    /// Returns the URL of a target such as `/https://host/path`; nil for another one. Intermediaries fold the slashes, and pip
    /// escapes the colons.
    private static func prefixed(_ target: String) -> String? {
        let parts = target.dropFirst().split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
        guard parts.count == 2, case let scheme = colons(parts[0]), scheme == "https:" || scheme == "http:" else {
            return nil
        }
        let rest = parts[1].drop { $0 == "/" }
        let authority = rest.prefix { $0 != "/" && $0 != "?" }
        return scheme + "//" + colons(authority) + rest[authority.endIndex...]
    }

    private static func colons(_ text: Substring) -> String {
        // Few targets have one, and `replacing` costs more than all else that is read here.
        guard text.utf8.contains(UInt8(ascii: "%")) else { return String(text) }
        return String(text).replacing("%3A", with: ":").replacing("%3a", with: ":")
    }

    /// Returns the refusal of a request in origin form that a page of another site may have caused, or that is no reading.
    private func refusalUnderPrefix(_ head: RequestHead, _ isProved: Bool) -> WebResponse? {
        switch access.refusal(of: head, anyHost: isProved) {
        case .unknownHost?: return WebResponse(421, text: "unknown host name; use localhost or an address")
        case .crossSite?: return WebResponse(403, text: "requests from pages of other sites are rejected")
        case nil: break
        }
        guard head.method == "GET" || head.isHead else {
            return WebResponse(405, text: "only GET and HEAD are supported here", fields: [("Allow", "GET, HEAD")])
        }
        return nil
    }

    private func passedFields(of head: RequestHead, isPrefixed: Bool, _ isRewritten: Bool) -> [UInt8] {
        let named = Set(head.fields.connectionOptions)
        var lines: [UInt8] = []
        for field in head.fields {
            let name = String(decoding: field.name, as: UTF8.self).lowercased()
            guard !Self.connectionFields.contains(name), !Self.consumedFields.contains(name), !named.contains(name),
                !name.hasPrefix("proxy-"), !name.hasPrefix("earshot-"),
                !isPrefixed || !Self.fieldsOfSites.contains(name) && !name.hasPrefix("sec-"),
                !isRewritten || !["accept-encoding", "range", "if-range"].contains(name)
            else { continue }
            lines += name.utf8
            lines += ": ".utf8
            lines += field.value
            lines.append(UInt8(ascii: "\n"))
        }
        if head.method == "OPTIONS", let text = head.fields.first("max-forwards"), let left = UInt16(text), left > 0 {
            lines += "max-forwards: \(left - 1)\n".utf8
        }
        lines += "via: \(head.isVersion10 ? "1.0" : "1.1") \(pseudonym)".utf8
        return lines
    }

    private func isLoop(_ url: FetchURL, _ fields: HeaderFields) -> Bool {
        if fields.values("via").contains(where: { $0.contains(pseudonym) }) { return true }
        guard let port = url.port, ports.contains(port) else { return false }
        return url.host == "localhost" || url.host == "::1" || url.host.hasPrefix("127.") || url.host == "0.0.0.0"
            || url.host == "::"
    }
}
