internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire

/// Heads of responses of the proxy: those of origins, and its own about failures of the bus. The API has another form
/// of both.
struct ProxyResponse {
    /// End of the body: RFC 9112, section 6.
    enum Framing: Equatable {
        case none
        case length(Int)
        case chunked
        /// The end of the connection, for clients of HTTP/1.0.
        case untilConnectionCloses
    }

    let pseudonym: String
    /// Value of `Via`.
    var viaFieldValue: String { "1.1 \(pseudonym)" }
    /// Further fields of a response of the API; nil for the proxy.
    var apiFields: [(name: String, value: String)]?

    /// Returns the head of a response that the bus has got.
    ///
    /// - Parameters:
    ///   - url: URL of the response, to which a redirect may be relative.
    ///   - length: length of the body; nil if it still grows and its length is unknown.
    ///   - source: where the bus has it from; nil while it arrives.
    func responseHead(
        status: Int, fields: HeaderFields, of url: String = "", length: Int?, source: Terminal.Source?,
        to request: RequestHead
    ) -> (bytes: [UInt8], framing: Framing, keepsAlive: Bool) {
        let framing = Self.framing(status: apiFields == nil ? status : 200, length: length, to: request)
        let keepsAlive = request.keepsAlive && framing != .untilConnectionCloses
        if let apiFields {
            var own = [("Earshot-Status", "\(status)"), ("Earshot-URL", url)]
            if let type = fields.firstValue(named: "content-type") { own.append(("Earshot-Type", type)) }
            if let source { own.append(("Earshot-Source", source.rawValue)) }
            if case .length(let count) = framing { own.append(("Content-Length", "\(count)")) }
            if framing == .chunked { own.append(("Transfer-Encoding", "chunked")) }
            let bytes = WebResponse.head(200, "application/octet-stream", apiFields + own, keepsAlive: keepsAlive)
            return (bytes, framing, keepsAlive)
        }
        let named = Set(fields.connectionOptions)
        let isPrefixed = request.target.hasPrefix("/")
        var lines = Array("HTTP/1.1 \(status) \(WebResponse.reasonPhrase(status))\r\n".utf8)
        for field in fields {
            let name = String(decoding: field.name, as: UTF8.self).lowercased()
            guard !ProxyRequest.connectionFields.contains(name), !named.contains(name), name != "content-length",
                !name.hasPrefix("proxy-auth"), !name.hasPrefix("earshot-"),
                !isPrefixed || !Self.siteSpecificFields.contains(name) && !name.hasPrefix("access-control-")
            else { continue }
            if isPrefixed, name == "location" {
                lines += "Location: \(location(field, of: url, for: request))\r\n".utf8
                continue
            }
            lines += field.name
            lines += ": ".utf8
            lines += field.value
            lines += "\r\n".utf8
        }
        var own: [(String, String)] = [("Via", viaFieldValue)]
        if !fields.contains("date") { own.append(("Date", CalendarTime.httpDate())) }
        if let source { own.append(("Earshot-Source", source.rawValue)) }
        if isPrefixed {
            own += [("Content-Security-Policy", "sandbox"), ("X-Content-Type-Options", "nosniff")]
        }
        switch framing {
        case .none:
            // The length that a GET would have.
            if request.isHEADMethod, case .bytes(let count) = ContentLength(fields) {
                own.append(("Content-Length", "\(count)"))
            }
        case .length(let count): own.append(("Content-Length", "\(count)"))
        case .chunked: own.append(("Transfer-Encoding", "chunked"))
        case .untilConnectionCloses: break
        }
        if !keepsAlive || request.isVersion10 { own.append(("Connection", keepsAlive ? "keep-alive" : "close")) }
        for (name, value) in own {
            lines += name.utf8
            lines += ": ".utf8
            lines += value.utf8
            lines += "\r\n".utf8
        }
        lines += "\r\n".utf8
        return (lines, framing, keepsAlive)
    }

    /// Fields with which a site would change the browser's treatment of all sites under the prefix.
    private static let siteSpecificFields: Set<String> = [
        "set-cookie", "clear-site-data", "strict-transport-security", "service-worker-allowed", "alt-svc", "refresh",
        "nel", "report-to", "reporting-endpoints",
    ]

    /// Target of a redirect, as an absolute URL below the prefix of the requested address. One to another site has this
    /// address in another form, because programs compare hosts to see whether a redirect leaves the site.
    private func location(_ field: HeaderField, of url: String, for request: RequestHead) -> String {
        let text = String(decoding: field.value, as: UTF8.self)
        guard let own = try? FetchURL(url), let target = try? own.resolve(text), target.isHTTP else { return text }
        let leaves = own.origin != target.origin && request.host.hasPrefix("127.0.0.1:")
        return "http://\(leaves ? "[::ffff:127.0.0.1]" + request.host.dropFirst(9) : request.host)/\(target)"
    }

    private static func framing(status: Int, length: Int?, to request: RequestHead) -> Framing {
        if request.isHEADMethod || status == 204 || status == 304 { return .none }
        if let length { return .length(length) }
        return request.isVersion10 ? .untilConnectionCloses : .chunked
    }

    // MARK: Failures

    /// Returns a response of the bus itself, in the form of the API if the request used the API.
    func busResponse(_ response: WebResponse) -> WebResponse {
        guard let apiFields else { return response }
        var problem = response.asProblemDetails
        problem.fields += apiFields
        return problem
    }

    /// Returns the response to a request that the bus could not fetch. `Proxy-Status` (RFC 9209) marks it as
    /// a response of the bus.
    static func failureResponse(_ failure: Terminal.Failure) -> WebResponse {
        let (status, error) = statusesByFailureCode[failure.code] ?? (502, "proxy_internal_error")
        let seconds = failure.retryAfterSeconds ?? (status == 503 ? 1 : nil)
        return busResponse(
            status: status, error: error, detail: failure.detail ?? failure.code, code: failure.code,
            retryAfter: seconds)
    }

    /// Response if the broker does not answer.
    static let brokerUnavailable = busResponse(
        status: 503, error: "proxy_internal_error", detail: "the broker does not answer", code: nil, retryAfter: 1)

    /// Returns the response if the bodies in memory leave no room for another one.
    static func memoryFull(_ bytes: Int) -> WebResponse {
        let most = Door.Limits.maximumStoredBodyBytes >> 20
        let detail =
            "no room for a body of \(bytes) bytes: the HTTP door keeps at most \(most) MiB in memory, and "
            + "\(most / Door.Limits.shareDivisorPerUser) MiB for a user other than that of the bus"
        return busResponse(status: 503, error: "connection_limit_reached", detail: detail, code: nil, retryAfter: 1)
    }

    /// Response for a body that a session of the API did not keep.
    static let discardedBodyResponse = busResponse(
        status: 410, error: "proxy_internal_error",
        detail: "the session has too many bodies in memory; acknowledge the result and fetch it again",
        code: "unknown-body", retryAfter: nil)

    /// Returns the response to a request that the broker refuses.
    static func refusalResponse(_ error: ErrorReply, hasBody: Bool) -> WebResponse {
        let status = error.code == "quota" ? 503 : error.code == "limit" && hasBody ? 413 : 400
        return busResponse(
            status: status, error: status == 503 ? "connection_limit_reached" : "http_request_error",
            detail: error.detail ?? error.code, code: error.code, retryAfter: status == 503 ? 1 : nil)
    }

    private static func busResponse(
        status: Int, error: String, detail: String, code: String?, retryAfter: Int?
    ) -> WebResponse {
        let text = String(decoding: detail.utf8.filter { $0.isVisible || $0 == 0x20 }, as: UTF8.self)
        let quoted = text.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"")
        var fields = [("Proxy-Status", "earshot; error=\(error); details=\"\(quoted)\"")]
        if let retryAfter { fields.append(("Retry-After", "\(retryAfter)")) }
        var response = WebResponse(status, text: (code.map { "\($0): " } ?? "") + text, fields: fields)
        response.errorCode = code
        return response
    }

    /// Status, and error of RFC 9209, of each failure code. Codes that are missing here cannot end a request of the
    /// proxy.
    private static let statusesByFailureCode: [String: (Int, String)] = [
        "connect-refused": (502, "connection_refused"), "connect-failed": (502, "destination_unavailable"),
        "address-refused": (403, "destination_ip_prohibited"), "unknown-host": (502, "dns_error"),
        "dns-failed": (502, "dns_error"), "timeout": (504, "http_response_timeout"),
        "connect-timeout": (504, "connection_timeout"), "deadline": (504, "http_response_timeout"),
        "proxy-refused": (502, "http_request_denied"), "proxy-unavailable": (502, "destination_unavailable"),
        "too-large": (502, "http_response_body_size"), "tls": (502, "tls_protocol_error"),
        "truncated": (502, "http_response_incomplete"), "reset": (502, "connection_terminated"),
        "malformed-url": (400, "http_request_error"), "bad-header": (400, "http_request_error"),
        "unsupported-method": (501, "http_request_error"), "protocol-error": (502, "http_protocol_error"),
        "redirect-refused": (502, "http_protocol_error"), "encoding-error": (502, "http_response_content_coding"),
        "spool-full": (503, "proxy_internal_error"), "spool-failed": (503, "proxy_internal_error"),
        "removed": (503, "proxy_internal_error"), "queue-full": (503, "connection_limit_reached"),
        "quota": (503, "connection_limit_reached"), "origin-cooling": (503, "destination_unavailable"),
        "worker-lost": (502, "proxy_internal_error"), "not-cached": (504, "destination_not_found"),
        "stopping": (503, "proxy_internal_error"),
    ]
}
