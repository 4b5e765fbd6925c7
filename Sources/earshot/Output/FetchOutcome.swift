internal import EarshotClient
internal import EarshotWire

/// Outcome of one request, as messages and JSON lines show it.
struct FetchOutcome {
    /// Code for a received body that could not be written.
    static let writeFailedCode = "write-failed"
    /// Code for a body with another hash than expected.
    static let digestMismatchCode = "digest-mismatch"

    /// URL as given.
    let url: String
    /// HTTP status; nil without a response.
    var status: Int?
    /// Failure code; nil for success.
    var code: String?
    var detail: String?
    var response: Terminal.Response?
    /// Attempts of a failure without a response; nil if unknown.
    var attempts: Int?
    /// Path of the written body.
    var path: String?
    /// Reason why the existing file stays: `exists`, `unchanged` or `complete`; nil for a new body.
    var skipReason: String?

    /// Whether there is the body of an HTTP failure. One above the setting page-bytes is left out.
    var hasErrorPage: Bool { code == "http-status" && response?.sha256 != nil }

    /// Whether the body came from the cache.
    var isCached: Bool { response?.source == .cache || response?.source == .revalidated }

    /// Message that all or the beginning of the body was stored before, without secrets of the URL. Nil for a body from
    /// a server.
    var storedBodyNotice: String? {
        guard code == nil, let response else { return nil }
        return switch response.source {
        case .cache: "\(URLText.redacted(url)): from the cache, fresh"
        case .revalidated: "\(URLText.redacted(url)): from the cache, revalidated"
        case .resumed where response.resumedBytes > 0:
            "\(URLText.redacted(url)): resumed at \(ByteSize.text(Double(response.resumedBytes)))"
        case .network, .sharedFlight, .clusterNode, .resumed: nil
        }
    }

    /// Message of the form `URL: text (code)`, followed by the next step for some codes.
    ///
    /// - Parameter verbosely: whether the URL is complete, including parts that may be secret.
    func sentence(verbosely: Bool) -> String { "\(verbosely ? url : URLText.redacted(url)): \(cause)" }

    /// Message without the URL: cause, code and next step.
    ///
    /// A detail may hold a next step after a semicolon. It names fields, whose options have other names.
    var cause: String {
        let code = code ?? ""
        var text = detail ?? FetchOutcome.sentencesByCode[code] ?? "failed"
        if code == "http-status", let status { text = "HTTP status \(status)" }
        if text.hasSuffix("."), !text.hasSuffix("..") { text.removeLast() }
        var step = FetchOutcome.nextStepsByCode[code]
        if let url = urlWithScheme {
            step = "write \(url)"
        } else if code != FetchOutcome.workerFailedCode, let semicolon = text.ranges(of: "; ").last {
            step = FetchOutcome.optionNamesByField.reduce(String(text[semicolon.upperBound...])) { step, option in
                step.replacing("give \(option.field)", with: "give \(option.name)")
            }
            text = String(text[..<semicolon.lowerBound])
        }
        return "\(text) (\(code))\(step.map { "; \($0)" } ?? "")"
    }

    /// URL with the scheme that it lacks, for URLs such as `example.org/a` and `localhost:8080/a`; nil for others. A
    /// host with a port gets `http`.
    private var urlWithScheme: String? {
        guard code == "malformed-url" || code == "unsupported-scheme", let text = URLText.wireForm(url) else {
            return nil
        }
        let authority = text.utf8.prefix { ![UInt8(ascii: "/"), UInt8(ascii: "?"), UInt8(ascii: "#")].contains($0) }
        let hostEnd = authority.lastIndex(of: UInt8(ascii: "]")) ?? authority.startIndex
        guard !authority.isEmpty, !authority.contains(UInt8(ascii: "@")) else { return nil }
        guard let colon = authority[hostEnd...].firstIndex(of: UInt8(ascii: ":")) else {
            return code == "malformed-url" ? "https://\(URLText.redacted(url))" : nil
        }
        guard let port = UInt16(String(decoding: authority[authority.index(after: colon)...], as: UTF8.self)), port > 0
        else { return nil }
        return "http://\(URLText.redacted(url))"
    }

    /// Writes the members that the JSON lines of all commands share.
    func write(to line: inout JSONLine) {
        line.appendMember("url", url)
        line.appendMember("status", status)
        line.appendMember("code", code)
        line.appendMember("detail", detail)
        line.appendMember("path", path)
        line.appendMember("skipped", skipReason)
        guard let response else {
            line.appendMember("attempts", attempts)
            return
        }
        line.appendMember("final", response.url == url ? nil : response.url)
        if !response.redirects.isEmpty {
            line.appendMember("redirects", objects: response.redirects) { json, redirect in
                json.member("status", redirect.status)
                if let url = redirect.url { json.member("url", url) }
            }
        }
        line.appendMember("length", response.bodyByteCount)
        line.appendMember("sha256", response.sha256)
        line.appendMember("source", response.source.rawValue)
        line.appendMember("resumed-bytes", response.resumedBytes > 0 ? response.resumedBytes : nil)
        line.appendMember("attempts", response.attempts)
        line.appendMember("queued-ms", response.queuedMilliseconds)
        line.appendMember("elapsed-ms", response.elapsedMilliseconds)
        line.appendMember("headers", fields: response.httpFields)
    }

    /// Texts for codes without a detail.
    private static let sentencesByCode = [
        "connect-refused": "the server refused the connection",
        "connect-failed": "cannot connect to the server",
        "address-refused": "the address policy forbids the address",
        "unknown-host": "unknown host name",
        "dns-failed": "cannot resolve the host name",
        "timeout": "no data within the timeout",
        "connect-timeout": "no connection within the timeout",
        "proxy-refused": "the proxy refused to connect to the server",
        "proxy-unavailable": "the proxy cannot connect to the server at present",
        "too-large": "the body exceeds its maximum size",
        "too-compressed": "the decoded body exceeds max-ratio",
        "tls": "TLS failure",
        "redirect-loop": "redirect loop",
        "too-many-redirects": "too many redirects",
        "redirect-refused": "forbidden redirect",
        "truncated": "truncated body",
        "reset": "connection reset",
        "unsupported-scheme": "no worker serves this scheme",
        "worker-failed": "the program for this scheme failed",
        "malformed-url": "malformed URL",
        "bad-header": "invalid header field",
        "protocol-error": "invalid HTTP response",
        "encoding-error": "invalid content encoding",
        "spool-full": "the spool is full",
        "spool-failed": "the spool is unusable",
        "deadline": "deadline exceeded",
        "digest-mismatch": "the body does not match its digest",
        "removed": "the handler was removed",
        "cancelled": "the request was cancelled",
        "queue-full": "the queue of the broker is full",
        "quota": "this user has reached a quota",
        "worker-lost": "the workers of this request died",
        "not-stored": "the request could not be stored on disk",
        "expired": "the result expired without a subscriber",
        "stopping": "the broker is stopping",
    ]

    private static let workerFailedCode = "worker-failed"

    /// Fields that next steps name, and their options.
    private static let optionNamesByField = [
        (field: "ca-file", name: "--ca-file"), (field: "client-certificate", name: "--cert"),
        (field: "client-key", name: "--key"),
    ]

    /// Next steps for codes that the user can influence.
    private static let nextStepsByCode = [
        "digest-mismatch": "check --checksum and the source",
        "connect-refused": "check host and port",
        "address-refused": "see `earshot help set`, address",
        "unknown-host": "check the name",
        "dns-failed": "check the network",
        "timeout": "retry, or raise --timeout",
        "too-large": "raise --max-bytes",
        "too-compressed": "raise the setting max-ratio",
        "unsupported-scheme": "serve it with `earshot work`",
        "spool-full": "free disk space, or raise the setting spool-size",
        "spool-failed": "check the directory with `earshot status`",
        "deadline": "raise --deadline",
        "queue-full": "retry later, or raise the setting requests",
        "quota": "retry later, or ask the administrator of the bus",
        "worker-lost": "see the log of `earshot serve`",
        "not-stored": "free disk space, or raise the setting durable-size",
        "stopping": "retry after a restart",
    ]
}

extension FetchOutcome {
    /// Code for an invalid option of a list.
    static let badOptionCode = "bad-option"

    // Uses the memberwise initializer: the compiler would copy a large value that is set field by field.
    /// Creates a failure that this program detected.
    init(url: String, code: String, detail: String) {
        self.init(url: url, status: nil, code: code, detail: detail)
    }

    /// Records that a body which the broker sent could not be stored.
    ///
    /// - Parameter number: `errno` value.
    mutating func recordStoreFailure(_ number: Int32) {
        code = FetchOutcome.writeFailedCode
        detail = "cannot store the body: \(SystemCause.text(number, at: nil))"
    }

    /// Creates the failure of text that is no URL.
    init(malformedURL url: String) {
        let detail =
            if url.isEmpty {
                "the URL is empty; give one such as https://example.org/"
            } else if url.utf8.contains(where: { $0 <= 0x20 || $0 == 0x7f }) {
                "malformed URL: it contains spaces or control characters; percent-encode it"
            } else {
                "malformed URL: it exceeds \(WireLimits.urlBytes) bytes"
            }
        self.init(url: url, code: "malformed-url", detail: detail)
    }

    init(url: String, _ terminal: Terminal) {
        switch terminal.outcome {
        case .result(let status, let response): self.init(url: url, status: status, response: response)
        case .failed(let failure):
            self.init(
                url: url, status: failure.status, code: failure.code, detail: failure.detail,
                response: failure.errorPageResponse, attempts: failure.attempts)
        }
    }
}

extension FetchOutcome {
    /// Codes of failures that end a durable request for good.
    private static let permanentFailureCodes: Set = ["removed", "cancelled", "expired", "not-stored"]

    /// Whether the failure of a durable request stays on disk if the session keeps failures.
    func isFailureKept(_ terminal: Terminal) -> Bool {
        terminal.isDurable && code.map { !Self.permanentFailureCodes.contains($0) } ?? false
    }
}
