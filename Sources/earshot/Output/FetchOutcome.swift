internal import EarshotClient
internal import EarshotWire

/// Outcome of one request, as messages and JSON lines show it.
struct FetchOutcome {
    /// Code for a received body that could not be written.
    static let writeFailed = "write-failed"
    /// Code for a body with another hash than expected.
    static let digestMismatch = "digest-mismatch"

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
    var skipped: String?

    /// Whether the body came from the cache.
    var isCached: Bool { response?.source == .cache || response?.source == .revalidated }

    /// Message that the body came from the cache, without secrets of the URL. Nil for a body from a server.
    var cacheSentence: String? {
        guard code == nil else { return nil }
        return switch response?.source {
        case .cache: "\(URLText.discreet(url)): from the cache, fresh"
        case .revalidated: "\(URLText.discreet(url)): from the cache, revalidated"
        case .network, .shared, .resumed, nil: nil
        }
    }

    /// Message of the form `URL: text (code)`, followed by the next step for some codes.
    ///
    /// - Parameter verbosely: whether the URL is complete, including parts that may be secret.
    func sentence(verbosely: Bool) -> String { "\(verbosely ? url : URLText.discreet(url)): \(cause)" }

    /// Message without the URL.
    var cause: String {
        let code = code ?? ""
        var text = detail ?? FetchOutcome.sentences[code] ?? "failed"
        if code == "http-status", let status { text = "HTTP status \(status)" }
        if text.hasSuffix("."), !text.hasSuffix("..") { text.removeLast() }
        // A text with a semicolon has its own next step.
        let usual = text.utf8.contains(UInt8(ascii: ";")) ? nil : FetchOutcome.nextSteps[code]
        let step = isSchemeMissing ? "write https://\(URLText.discreet(url))" : usual
        return "\(text) (\(code))\(step.map { "; \($0)" } ?? "")"
    }

    /// Whether a malformed URL would be valid with a scheme, such as `example.org/a`.
    private var isSchemeMissing: Bool {
        guard code == "malformed-url", URLText.wire(url) != nil else { return false }
        let authority = url.utf8.prefix { ![UInt8(ascii: "/"), UInt8(ascii: "?"), UInt8(ascii: "#")].contains($0) }
        return !authority.isEmpty && !authority.contains(UInt8(ascii: ":"))
    }

    /// Writes the members that the JSON lines of all commands share.
    func write(to line: inout JSONLine) {
        line.member("url", url)
        line.member("status", status)
        line.member("code", code)
        line.member("detail", detail)
        line.member("path", path)
        line.member("skipped", skipped)
        guard let response else {
            line.member("attempts", attempts)
            return
        }
        line.member("final", response.url == url ? nil : response.url)
        if !response.redirects.isEmpty {
            line.member("redirects", objects: response.redirects) { line, redirect in
                line.member("status", redirect.status)
                line.member("url", redirect.url)
            }
        }
        line.member("length", response.length)
        line.member("sha256", response.sha256)
        line.member("source", response.source.rawValue)
        line.member("attempts", response.attempts)
        line.member("queued-ms", response.queuedMilliseconds)
        line.member("elapsed-ms", response.elapsedMilliseconds)
        line.member("headers", fields: response.httpFields)
    }

    /// Texts for codes without a detail.
    private static let sentences = [
        "connect-refused": "the server refused the connection",
        "connect-failed": "cannot connect to the server",
        "address-refused": "the address policy forbids the address",
        "unknown-host": "unknown host name",
        "dns-failed": "cannot resolve the host name",
        "timeout": "no data within the timeout",
        "connect-timeout": "no connection within the timeout",
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
        "worker-lost": "the workers of this request died",
        "not-stored": "the request could not be stored on disk",
        "expired": "the result expired without a subscriber",
        "stopping": "the broker is stopping",
    ]

    /// Next steps for codes that the user can influence.
    private static let nextSteps = [
        "digest-mismatch": "check --checksum and the source",
        "connect-refused": "check host and port",
        "address-refused": "see `earshot help set`, address",
        "unknown-host": "check the name",
        "dns-failed": "check the network",
        "timeout": "retry, or raise --timeout",
        "too-large": "raise --max-bytes",
        "too-compressed": "raise the setting max-ratio",
        "tls": "give --ca-file for a private CA",
        "unsupported-scheme": "serve it with `earshot work`",
        "malformed-url": "percent-encode it",
        "spool-full": "free disk space, or raise the setting spool-size",
        "spool-failed": "check the directory with `earshot status`",
        "deadline": "raise --deadline",
        "queue-full": "retry later, or raise the setting requests",
        "worker-lost": "see the log of `earshot serve`",
        "not-stored": "free disk space, or raise the setting durable-size",
        "stopping": "retry after a restart",
    ]
}

extension FetchOutcome {
    /// Code for an invalid option of a list.
    static let badOption = "bad-option"

    // Uses the memberwise initializer: the compiler would copy a large value that is set field by field.
    /// Creates a failure that this program detected.
    init(url: String, code: String, detail: String) {
        self.init(url: url, status: nil, code: code, detail: detail)
    }

    /// Records that a body which the broker sent could not be stored.
    ///
    /// - Parameter number: `errno` value.
    mutating func storeFailed(_ number: Int32) {
        code = FetchOutcome.writeFailed
        detail = "cannot store the body: \(SystemCause.text(number, at: nil))"
    }

    /// Creates the failure of text that is no URL.
    init(malformed url: String) {
        let detail = "malformed URL: it contains spaces or control characters, or exceeds \(WireLimits.urlBytes) bytes"
        self.init(url: url, code: "malformed-url", detail: detail)
    }

    init(url: String, _ terminal: Terminal) {
        switch terminal.outcome {
        case .result(let status, let response): self.init(url: url, status: status, response: response)
        case .failed(let failure):
            self.init(
                url: url, status: failure.status, code: failure.code, detail: failure.detail,
                response: failure.response, attempts: failure.attempts)
        }
    }
}

extension FetchOutcome {
    /// Codes of failures that end a durable request for good.
    private static let finalCodes: Set = ["removed", "cancelled", "expired", "not-stored"]

    /// Whether the failure of a durable request stays on disk if the session keeps failures.
    func staysFailed(_ terminal: Terminal) -> Bool {
        terminal.isDurable && code.map { !Self.finalCodes.contains($0) } ?? false
    }
}
