/// Exit status of the program. The numbers are those of curl where curl has one, else those of sysexits.h.
enum ExitStatus: Int32, CaseIterable {
    case success = 0
    case unsupportedScheme = 1
    case someRequestsFailed = 2
    case malformedURL = 3
    case generalError = 5
    case unknownHost = 6
    case cannotConnect = 7
    case notHTTP = 8
    case bodyTruncated = 18
    case httpErrorStatus = 22
    case cannotWrite = 23
    case timedOut = 28
    case badRequest = 43
    case tooManyRedirects = 47
    case connectionReset = 56
    case untrustedCertificate = 60
    case badEncoding = 61
    case bodyTooLarge = 63
    case usageError = 64
    case unexpectedContent = 65
    case noInput = 66
    case noBroker = 69
    case cannotServe = 73
    case notPermitted = 77
    case configurationError = 78
    case proxyRefused = 97
    case interrupted = 130

    /// A selection matched no request.
    static let nothingMatched = unsupportedScheme

    /// Creates the status for requests that all failed with `code`.
    init(code: String) {
        self =
            switch code {
            case "unsupported-scheme": .unsupportedScheme
            case "malformed-url": .malformedURL
            case "unknown-host", "dns-failed": .unknownHost
            case "connect-refused", "connect-failed", "address-refused": .cannotConnect
            case "proxy-refused", "proxy-unavailable": .proxyRefused
            case "protocol-error": .notHTTP
            case "truncated": .bodyTruncated
            case "http-status": .httpErrorStatus
            case "spool-full", "spool-failed", FetchOutcome.writeFailedCode: .cannotWrite
            case "timeout", "connect-timeout", "deadline": .timedOut
            case FetchOutcome.badOptionCode: .usageError
            case "bad-header", "unsupported-method", "bad-message", "limit": .badRequest
            case "redirect-loop", "too-many-redirects", "redirect-refused": .tooManyRedirects
            case "reset": .connectionReset
            case "tls": .untrustedCertificate
            case "encoding-error": .badEncoding
            case "too-large", "too-compressed": .bodyTooLarge
            case "digest-mismatch": .unexpectedContent
            default: .generalError
            }
    }

    /// Whether the meaning of the status of a child helps an operator.
    var reportsCause: Bool { self == .usageError || self == .cannotServe || self == .configurationError }

    /// Description for `earshot help exit-codes`, the man pages and the documents.
    var meaning: String {
        switch self {
        case .success: "success"
        case .unsupportedScheme: "unsupported URL scheme: no worker serves it; or no request matched"
        case .someRequestsFailed: "some requests failed, or all failed for different reasons"
        case .malformedURL: "malformed URL"
        case .generalError: "other failure; the code on standard error names it"
        case .unknownHost: "cannot resolve the host name"
        case .cannotConnect: "cannot connect, or the address policy forbids the address"
        case .notHTTP: "invalid HTTP response"
        case .bodyTruncated: "truncated body: the connection closed before its end"
        case .httpErrorStatus: "HTTP status 400 or higher"
        case .cannotWrite: "cannot write the output, or the spool is full or unusable"
        case .timedOut: "timeout, or deadline exceeded"
        case .badRequest: "invalid method or header field, or a limit exceeded"
        case .tooManyRedirects: "redirect loop, too many redirects, or a forbidden redirect"
        case .connectionReset: "connection reset"
        case .untrustedCertificate: "TLS failure, such as an untrusted certificate"
        case .badEncoding: "unsupported or malformed content encoding"
        case .bodyTooLarge: "body larger than --max-bytes or max-ratio permits"
        case .usageError: "usage error: invalid command, option or argument"
        case .unexpectedContent: "the body does not match --checksum"
        case .noInput: "no readable input, empty list, or no such request or program"
        case .noBroker: "no broker runs or accepts the key, or the connection to it was lost"
        case .cannotServe: "cannot start: unfit directory, library or limit, or worker rejected"
        case .notPermitted: "reserved for the administrator of the bus"
        case .configurationError: "invalid configuration or key, or durable requests of a newer version"
        case .proxyRefused: "the proxy does not connect to the server"
        case .interrupted: "interrupted by a signal; get removes its pending requests"
        }
    }
}
