internal import EarshotClient
internal import EarshotWire

/// Outcome of one request, as messages and JSON lines show it.
struct FetchOutcome {
    /// Code for a received body that could not be written.
    static let writeFailed = "write-failed"

    /// URL as given.
    let url: String
    /// HTTP status; nil without a response.
    var status: Int?
    /// Failure code; nil for success.
    var code: String?
    var detail: String?
    var response: Terminal.Response?
    /// Path of the written body.
    var path: String?

    /// Whether the body came from the cache.
    var isCached: Bool { response?.source == .cache || response?.source == .revalidated }

    /// Message that the body came from the cache, without secrets of the URL. Nil for a body from a server.
    var cacheSentence: String? {
        guard code == nil else { return nil }
        return switch response?.source {
        case .cache: "\(URLText.discreet(url)): from the cache, without asking the server"
        case .revalidated: "\(URLText.discreet(url)): from the cache, unchanged at the server"
        case .network, .shared, .resumed, nil: nil
        }
    }

    /// Message of the form `URL: text (code)`.
    ///
    /// - Parameter verbosely: whether the URL is complete, including parts that may be secret.
    func sentence(verbosely: Bool) -> String {
        let code = code ?? ""
        var text = detail ?? FetchOutcome.sentences[code] ?? "it failed"
        if code == "http-status", let status { text = "the origin answered \(status)" }
        return "\(verbosely ? url : URLText.discreet(url)): \(text) (\(code))"
    }

    /// Writes the members that the JSON lines of all commands share.
    func write(to line: inout JSONLine) {
        line.member("url", url)
        line.member("status", status)
        line.member("code", code)
        line.member("detail", detail)
        line.member("path", path)
        guard let response else { return }
        line.member("final", response.url == url ? nil : response.url)
        line.member("length", response.length)
        line.member("sha256", response.sha256)
        line.member("source", response.source.rawValue)
        line.member("attempts", response.attempts)
        line.member("queued-ms", response.queuedMilliseconds)
        line.member("elapsed-ms", response.elapsedMilliseconds)
    }

    /// Texts for codes without a detail.
    private static let sentences = [
        "connect-refused": "the host refuses the connection",
        "connect-failed": "cannot connect to the host",
        "address-refused": "the policy for addresses does not allow to connect to it",
        "unknown-host": "the host is unknown",
        "dns-failed": "the host's name could not be looked up",
        "timeout": "nothing came for too long",
        "connect-timeout": "the host does not answer",
        "too-large": "the body is larger than allowed",
        "too-compressed": "the body decodes to more than max-ratio allows for its size",
        "tls": "the connection is not to be trusted",
        "redirect-loop": "the redirects go round in a circle",
        "too-many-redirects": "there are too many redirects",
        "redirect-refused": "it is redirected to where it may not go",
        "truncated": "the body ended too early",
        "reset": "the connection broke",
        "unsupported-scheme": "no worker fetches URLs of this scheme",
        "worker-failed": "the worker for this scheme could not do it",
        "malformed-url": "this is not a URL",
        "bad-header": "one of the header fields is not allowed",
        "protocol-error": "the answer is not HTTP",
        "encoding-error": "the content encoding cannot be read",
        "spool-full": "there is no room for the body",
        "spool-failed": "the folder for the body cannot be used",
        "deadline": "it took longer than allowed",
        "digest-mismatch": "the body is not the one expected",
        "removed": "its handler was removed",
        "cancelled": "it was cancelled",
        "queue-full": "the broker's queue is full",
        "worker-lost": "the workers that fetched it died",
        "not-stored": "it could not be kept on the disk",
        "expired": "nobody took it for as long as it is kept",
        "stopping": "the broker is stopping",
    ]
}

extension FetchOutcome {
    // Uses the memberwise initializer: the compiler would copy a large value that is set field by field.
    /// A failure that this program found.
    init(url: String, code: String, detail: String) {
        self.init(url: url, status: nil, code: code, detail: detail)
    }

    init(url: String, _ terminal: Terminal) {
        switch terminal.outcome {
        case .result(let status, let response): self.init(url: url, status: status, response: response)
        case .failed(let failure):
            self.init(
                url: url, status: failure.status, code: failure.code, detail: failure.detail,
                response: failure.response)
        }
    }
}
