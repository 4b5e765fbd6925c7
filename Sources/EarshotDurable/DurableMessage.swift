/// Requests from a loop to the thread of durable requests. Results arrive in the order of the requests.
public enum DurableRequest: Sendable {
    /// Stores a request: `stored` or `refused`. Its principal, nil for the administrator; time in seconds since 1970;
    /// the head of its FETCH.
    case store(id: UInt64, principal: String?, acceptedAt: Int64, head: [UInt8])
    /// Stores the result of a request: `resultRecorded`. A body file is passed as a descriptor, which is closed.
    case storeResult(id: UInt64, DurableEnd, file: Int32?)
    /// Returns the next rows after one, or from the first one on: `rows`. Those of one principal, or of all for nil.
    case rows(after: UInt64?, principal: String?)
    /// Returns the result of a request: `resultRead`.
    case read(id: UInt64)
    /// Deletes the result of a request, and sets the time of its acceptance: `reopened`.
    case reopen(id: UInt64, acceptedAt: Int64)
    /// Deletes a request. Has no result; a missing one is ignored.
    case deleteRequest(id: UInt64)
    /// Sets the maximum total size.
    case setLimit(bytes: Int)
}

/// Result of a request.
public struct DurableEnd: Equatable, Sendable {
    /// Head of its terminal.
    public var terminalHead: [UInt8]
    /// Length of its body in bytes; 0 without one.
    public var bodyLength: Int
    /// Digest of its body, 64 hexadecimal digits; nil without one.
    public var sha256: String?
    /// Body, if it is stored in the database.
    public var body: [UInt8]?

    public init(terminalHead: [UInt8], bodyLength: Int, sha256: String?, body: [UInt8]?) {
        self.terminalHead = terminalHead
        self.bodyLength = bodyLength
        self.sha256 = sha256
        self.body = body
    }
}

/// Results from the thread of durable requests. Confirmed data is flushed to disk.
public enum DurableAnswer: Sendable {
    /// First result: the digests of all body files, and whether the table has rows.
    case tableOpened(files: Set<String>, hasRows: Bool)
    /// One slice of the requests of earlier processes, the oldest first; none after the last.
    case rows([DurableRow])
    /// Sent instead of `tableOpened` if the table belongs to a newer version or another program. Nothing was changed.
    /// Contains a message with the remedy.
    case tableIncompatible(String)
    case stored(id: UInt64)
    /// - isFull: The limit would be exceeded; otherwise the disk failed.
    case refused(id: UInt64, isFull: Bool)
    case resultRecorded(id: UInt64, isStored: Bool)
    /// Nil for a missing result.
    case resultRead(id: UInt64, DurableStoredResult?)
    /// The result was deleted. The head of its FETCH; nil if that failed, or for a missing result.
    case reopened(id: UInt64, head: [UInt8]?)
    /// Problem to report to an administrator.
    case fault(DurableFault)
}

/// Request stored by an earlier process.
public struct DurableRow: Equatable, Sendable {
    /// Identifier, ascending from the oldest to the newest.
    public let id: UInt64
    /// Time of acceptance in seconds since 1970.
    public let acceptedAt: Int64
    /// Head of its FETCH.
    public let fetchHead: [UInt8]
    /// Principal that it belongs to; nil for the administrator.
    public let principal: String?
    /// Whether it has a result.
    public let hasEnded: Bool
    /// Its result in short.
    public let resultSummary: Summary
    /// Digest of the body file; nil without one.
    public let bodyFile: String?
    /// Length of that file in bytes.
    public let bodyFileBytes: Int
    /// Bytes of the result: its head and its body.
    public let resultBytes: Int

    /// Result in short, from the start of its terminal.
    public struct Summary: Equatable, Sendable {
        /// Code of a failure; nil for a success, and without a result.
        public let failure: String?
        /// HTTP status; nil without a response.
        public let status: Int?
        /// Attempts; 0 if unknown.
        public let attempts: Int

        /// - Parameter lines: the start of a terminal; empty without a result.
        init(terminalStart lines: [UInt8]) {
            let lines = lines.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
            let words =
                lines.first?.split(separator: UInt8(ascii: " ")).map { String(decoding: $0, as: UTF8.self) } ?? []
            func number(_ name: String) -> Int? {
                // After the empty line follow fields of a server.
                let own = lines.prefix { !$0.isEmpty }.first { $0.starts(with: "\(name): ".utf8) }
                return own.flatMap { Int(String(decoding: $0.dropFirst(name.utf8.count + 2), as: UTF8.self)) }
            }
            let isFailure = words.count == 4 && words[0] == "FAILED"
            failure = isFailure ? words[3] : nil
            status = isFailure ? number("status") : words.count == 4 ? Int(words[3]) : nil
            attempts = number("attempts") ?? 0
        }
    }
}

/// Stored result of a request.
public struct DurableStoredResult: Sendable {
    /// Location of its body.
    public enum Body: Equatable, Sendable {
        case noBody
        case bytes([UInt8])
        /// File in the spool, not yet named by its content.
        case spoolFile(name: String, sha256: String, length: Int)
    }

    /// Head of its terminal.
    public let terminalHead: [UInt8]
    public let body: Body
}
