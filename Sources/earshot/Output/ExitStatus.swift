/// How the program ends. Numbers are curl's where curl has one for it, else those of sysexits.h.
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
    case noInput = 66
    case noBroker = 69
    case cannotServe = 73
    case configuration = 78
    case interrupted = 130

    /// The status for requests that all failed by `code`.
    init(code: String) {
        self =
            switch code {
            case "unsupported-scheme": .unsupportedScheme
            case "malformed-url": .malformedURL
            case "unknown-host", "dns-failed": .unknownHost
            case "connect-refused", "connect-failed", "address-refused": .cannotConnect
            case "protocol-error": .notHTTP
            case "truncated": .truncated
            case "http-status": .errorStatus
            case "spool-full", "spool-failed", FetchOutcome.writeFailed: .cannotWrite
            case "timeout", "connect-timeout", "deadline": .timedOut
            case "bad-header", "unsupported-method", "bad-message", "limit": .badRequest
            case "redirect-loop", "too-many-redirects", "redirect-refused": .redirects
            case "reset": .reset
            case "tls": .untrusted
            case "encoding-error": .badEncoding
            case "too-large", "too-compressed": .tooLarge
            default: .other
            }
    }

    /// What it means, in a few words.
    var meaning: String {
        switch self {
        case .done: "all done"
        case .unsupportedScheme: "no worker fetches URLs of this scheme"
        case .someFailed: "some failed, or all by different causes"
        case .malformedURL: "not a URL"
        case .other: "another failure: the code on standard error says which"
        case .unknownHost: "the host is unknown, or DNS failed"
        case .cannotConnect: "cannot connect"
        case .notHTTP: "the answer is not HTTP"
        case .truncated: "the body ended too early"
        case .errorStatus: "an HTTP status of 400 or more"
        case .cannotWrite: "cannot write the output, or the spool is full or cannot be used"
        case .timedOut: "a time-out, or the deadline"
        case .badRequest: "a header or method that is not allowed"
        case .redirects: "a redirect loop, too many redirects, or one that was refused"
        case .reset: "the connection broke"
        case .untrusted: "the certificate, or TLS at all"
        case .badEncoding: "a content encoding that cannot be read"
        case .tooLarge: "larger than --max-bytes"
        case .usage: "wrong arguments"
        case .noInput: "an empty list, or input that cannot be read"
        case .noBroker: "no broker runs, or it went and did not come back"
        case .cannotServe: "cannot serve: a folder is taken, unfit or open to others, or the broker refuses the worker"
        case .configuration: "settings that are wrong or cannot be read, or durable requests that need a newer version"
        case .interrupted: "interrupted; what was asked for is removed"
        }
    }

    /// All of them, for the help.
    static var table: String {
        allCases.map { status in
            let number = String(status.rawValue)
            return String(repeating: " ", count: 5 - number.count) + number + "  " + status.meaning
        }.joined(separator: "\n")
    }
}
