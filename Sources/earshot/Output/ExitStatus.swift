/// Exit status of the program. The numbers are those of curl where curl has one, else those of sysexits.h.
enum ExitStatus: Int32, CaseIterable {
    case done = 0
    case unsupportedScheme = 1
    case someFailed = 2
    case malformedURL = 3
    case other = 5
    case unknownHost = 6
    case cannotConnect = 7
    case notHTTP = 8
    case truncated = 18
    case errorStatus = 22
    case cannotWrite = 23
    case timedOut = 28
    case badRequest = 43
    case redirects = 47
    case reset = 56
    case untrusted = 60
    case badEncoding = 61
    case tooLarge = 63
    case usage = 64
    case wrongContent = 65
    case noInput = 66
    case noBroker = 69
    case cannotServe = 73
    case notPermitted = 77
    case configuration = 78
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
            case "truncated": .truncated
            case "http-status": .errorStatus
            case "spool-full", "spool-failed", FetchOutcome.writeFailed: .cannotWrite
            case "timeout", "connect-timeout", "deadline": .timedOut
            case FetchOutcome.badOption: .usage
            case "bad-header", "unsupported-method", "bad-message", "limit": .badRequest
            case "redirect-loop", "too-many-redirects", "redirect-refused": .redirects
            case "reset": .reset
            case "tls": .untrusted
            case "encoding-error": .badEncoding
            case "too-large", "too-compressed": .tooLarge
            case "digest-mismatch": .wrongContent
            default: .other
            }
    }

    /// Whether the meaning of the status of a child helps an operator.
    var reportsCause: Bool { self == .usage || self == .cannotServe || self == .configuration }

    /// Description for `earshot help exit-codes`, the man pages and the documents.
    var meaning: String {
        switch self {
        case .done: "success"
        case .unsupportedScheme: "unsupported URL scheme: no worker serves it; or no request matched"
        case .someFailed: "some requests failed, or all failed for different reasons"
        case .malformedURL: "malformed URL"
        case .other: "other failure; the code on standard error names it"
        case .unknownHost: "cannot resolve the host name"
        case .cannotConnect: "cannot connect, or the address policy forbids the address"
        case .notHTTP: "invalid HTTP response"
        case .truncated: "truncated body: the connection closed before its end"
        case .errorStatus: "HTTP status 400 or higher"
        case .cannotWrite: "cannot write the output, or the spool is full or unusable"
        case .timedOut: "timeout, or deadline exceeded"
        case .badRequest: "invalid method or header field, or a limit exceeded"
        case .redirects: "redirect loop, too many redirects, or a forbidden redirect"
        case .reset: "connection reset"
        case .untrusted: "TLS failure, such as an untrusted certificate"
        case .badEncoding: "unsupported or malformed content encoding"
        case .tooLarge: "body larger than --max-bytes or max-ratio permits"
        case .usage: "usage error: invalid command, option or argument"
        case .wrongContent: "the body does not match --checksum"
        case .noInput: "no readable input, empty list, or no such request or program"
        case .noBroker: "no broker runs or accepts the key, or the connection to it was lost"
        case .cannotServe: "cannot start: unfit directory, library or limit, or worker rejected"
        case .notPermitted: "reserved for the administrator of the bus"
        case .configuration: "invalid configuration or key, or durable requests of a newer version"
        case .proxyRefused: "the proxy does not connect to the server"
        case .interrupted: "interrupted by a signal; get removes its pending requests"
        }
    }
}
