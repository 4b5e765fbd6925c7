/// What a loop asks of the thread that keeps durable requests. Answers come in the order of the questions.
public enum DurableRequest: Sendable {
    /// Keep this request: `stored` or `refused`. Seconds since 1970; the head is that of its FETCH.
    case store(id: UInt64, acceptedAt: Int64, head: [UInt8])
    /// Keep how it ended: `recorded`. A body that is a file is given as a descriptor, which
    /// is closed.
    case record(id: UInt64, DurableEnd, file: Int32?)
    /// How it ended: `read`.
    case read(id: UInt64)
    /// Keep nothing of it any longer. Not answered; one that is not there is none the less forgotten.
    case forget(id: UInt64)
    /// Keep so many bytes at most.
    case limit(bytes: Int)
}

/// How a request ended.
public struct DurableEnd: Equatable, Sendable {
    /// That of its terminal.
    public var head: [UInt8]
    /// Bytes of its body; 0 if it has none.
    public var length: Int
    /// Of its body, 64 hexadecimal digits; nil if it has none.
    public var sha256: String?
    /// The body, if it is kept in the database.
    public var body: [UInt8]?

    public init(head: [UInt8], length: Int, sha256: String?, body: [UInt8]?) {
        self.head = head
        self.length = length
        self.sha256 = sha256
        self.body = body
    }
}

/// What that thread answers. What it says is kept, is on the disk.
public enum DurableAnswer: Sendable {
    /// First of all: what earlier processes left, oldest first.
    case opened([DurableRow])
    /// In place of `opened`: the table is of a newer version, or of another program. Nothing was changed; a sentence
    /// that says what to do.
    case foreign(String)
    case stored(id: UInt64)
    /// - isFull: it would have been more than the limit; else the disk failed.
    case refused(id: UInt64, isFull: Bool)
    case recorded(id: UInt64, isStored: Bool)
    /// Nil for what is not there.
    case read(id: UInt64, DurableReading?)
    /// Something that a person should know.
    case trouble(String)
}

/// A request as an earlier process left it.
public struct DurableRow: Equatable, Sendable {
    /// Rising from the oldest to the newest.
    public let id: UInt64
    /// Seconds since 1970.
    public let acceptedAt: Int64
    /// That of its FETCH.
    public let head: [UInt8]
    /// Whether it has ended.
    public let hasEnded: Bool
    /// The sum of the body that is a file; nil if there is none.
    public let file: String?
    /// Bytes of that file.
    public let fileBytes: Int
}

/// How a request ended, as it was written.
public struct DurableReading: Sendable {
    /// Where its body is.
    public enum Body: Equatable, Sendable {
        case none
        case bytes([UInt8])
        /// A file of the spool, not named by its content yet.
        case file(part: String, sha256: String, length: Int)
    }

    /// That of its terminal.
    public let head: [UInt8]
    public let body: Body
}
