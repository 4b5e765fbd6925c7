/// Bounds on what one message may hold; a message over a bound is refused with a code, never cut.
public enum WireLimits {
    /// Bytes of a head frame: a URL, 32 KiB of header fields and room for the rest.
    public static let headBytes = 65_536
    /// Bytes of a worker's head: READY lists all it holds.
    public static let workerHeadBytes = 1 << 19
    /// Bytes of a head that a worker of http and https reads: a JOB has all that a FETCH may have, and cookies and the
    /// validators of an earlier response, which may be as long as that response's header fields.
    public static let jobHeadBytes = 1 << 18
    /// Bytes of header fields of a response: with a URL, a path and all other fields a RESULT stays within `headBytes`.
    public static let responseFieldBytes = 48 << 10
    /// Frames of a message, a mirrored empty one not counted: head and body.
    public static let frames = 2
    /// Bytes of a handler's name: fits a path of identifiers, bounds the name tables.
    public static let handlerBytes = 200
    /// Bytes of a request ID, a tag, a client instance: a UUID and a prefix fit.
    public static let identifierBytes = 64
    /// Bytes of a URL: what servers and proxies commonly accept.
    public static let urlBytes = 8_192
    /// Maximum bytes of a request's body, regardless of the broker's setting: four frames of this size fit into the
    /// memory for incomplete frames.
    public static let requestBodyBytes = 4 << 20
    /// Bytes of a file's path: what the kernel takes, PATH_MAX of limits.h.
    public static let pathBytes = 4_096
    /// Bytes of a client's own coalescing key.
    public static let keyBytes = 200
    /// Named fields of one head, unknown ones included.
    public static let fields = 64
    /// Entries of a table in one answer to QUERY.
    public static let queryEntries = 1_000
    /// Words of a setting, its name included: an origin's rule has four.
    public static let settingWords = 8
    /// Attempts a worker may list as held: twice what a worker is designed to run.
    public static let heldAttempts = 10_000
    /// Decoded bytes for each encoded one that a setting can name: more than any coding makes of text.
    public static let ratio = 1_000_000
    /// Bytes of a scheme's name that a worker registers.
    public static let schemeBytes = 32
    /// Terminals a client may leave unacknowledged: stays below the broker's send high-water mark.
    public static let window = 4_096
    /// Seconds for which a broker keeps the session of a client whose connection is gone, at most: an hour.
    public static let leaseSeconds = 3_600
    /// Seconds any time given by a peer may last: a day.
    public static let seconds = 86_400
}
