internal import EarshotWire

/// A durable request as it is named on the disk, over all lives of a broker.
public struct DurableID: Hashable, Sendable {
    /// The largest that is read from a disk: more than are ever given, with room for those of many lives.
    static let most = UInt64(1) << 62

    /// 1 to 2^63 - 1, rising.
    public var rawValue: UInt64

    public init(rawValue: UInt64) {
        self.rawValue = rawValue
    }
}

/// A durable request that an earlier broker left.
public struct DurableEntry: Equatable, Sendable {
    public var id: DurableID
    /// Seconds since 1970.
    public var acceptedAt: Int64
    /// The FETCH.
    public var head: [UInt8]
    /// Whether its result is there too.
    public var hasResult: Bool
    /// The spool file of the result's body, if the spool still has it: a client may have been told its path.
    public var file: String?
    /// Bytes of that file.
    public var fileBytes: Int

    public init(
        id: DurableID, acceptedAt: Int64, head: [UInt8], hasResult: Bool, file: String? = nil, fileBytes: Int = 0
    ) {
        self.id = id
        self.acceptedAt = acceptedAt
        self.head = head
        self.hasResult = hasResult
        self.file = file
        self.fileBytes = fileBytes
    }
}

/// How a durable request ended, to be written.
public struct DurableResult: Equatable, Sendable {
    /// The terminal without a path, numbered 0.
    public var head: [UInt8]
    /// Bytes of its body; 0 if it has none.
    public var length: Int
    /// Of the body, 64 hexadecimal digits.
    public var sha256: String?
    /// The body, if it is held inline.
    public var body: BodyID?
    /// The body by its name, if it is in the spool.
    public var file: String?
}

/// What was written of how a durable request ended.
public struct DurableContent: Equatable, Sendable {
    /// The terminal, as in `DurableResult`.
    public var head: [UInt8]
    /// `missing` for one without a body, too.
    public var body: CachedBody

    public init(head: [UInt8], body: CachedBody) {
        self.head = head
        self.body = body
    }
}

/// What a durable request has besides its `Interest`.
struct DurableRecord {
    /// What is needed only until the request is on the disk.
    final class Entering {
        let fetch: Fetch
        /// Sessions to answer, each once.
        var askers: [Asker]

        init(_ fetch: Fetch, by asker: Asker) {
            self.fetch = fetch
            askers = [asker]
        }
    }

    /// A session that awaits ACCEPTED, over whatever connection it is then.
    struct Asker: Equatable {
        let client: Int32
        /// The session's: its number may be another's by then.
        let serial: UInt64
    }

    let id: DurableID
    /// When it was accepted, be it in an earlier broker's life.
    let acceptedAt: Tick
    /// Nil once it is on the disk.
    var entering: Entering?
    /// Whether its result is on the disk.
    var hasResult = false
    /// Bytes of body on their way there.
    var recordingBytes = 0
    /// Whether its result is to be read, or being read.
    var isClaimed = false
    /// The spool file that an earlier broker left for it.
    var heldFile: String?
}
