/// Bounds of a message. A message above a bound is rejected with a code, never truncated.
public enum WireLimits {
    /// Maximum head frame in bytes: a URL, 32 KiB of header fields and reserve for the other fields.
    public static let headBytes = 65_536
    /// Maximum head of a worker in bytes: DONE has all header fields of a response, of which libcurl accepts 300 KiB.
    public static let workerHeadBytes = 1 << 19
    /// Maximum head read by a worker for http and https, in bytes. A JOB contains the fields of a FETCH, cookies, and
    /// validators as long as an earlier response's header fields.
    public static let jobHeadBytes = 1 << 18
    /// Maximum header fields of a response, in bytes. With a URL, a path and all other fields a RESULT stays within
    /// `headBytes`.
    public static let responseFieldBytes = 48 << 10
    /// Maximum length of a handler's name in bytes: enough for a path of identifiers. Bounds the name tables.
    public static let handlerBytes = 200
    /// Maximum length of a request ID or a code in bytes: enough for a UUID with a prefix.
    public static let identifierBytes = 64
    /// Maximum length of `after` in QUERY: a handler, `//` and an ID.
    public static let cursorBytes = handlerBytes + 2 + identifierBytes
    /// Maximum length of a URL in bytes, commonly accepted by servers and proxies.
    public static let urlBytes = 8_192
    /// Maximum bytes of a request's body, regardless of the broker's setting: four frames of this size fit into the
    /// memory for incomplete frames.
    public static let requestBodyBytes = 4 << 20
    /// Maximum bytes of the body of a response of a worker on another machine: the maximum that the gateway relays in
    /// one frame.
    public static let remoteResponseBodyBytes = requestBodyBytes
    /// Maximum length of the body of a response in bytes: the maximum of the setting `spool-size`. A few lengths can be
    /// added without overflow.
    public static let responseBodyBytes = 1 << 50
    /// Maximum length of a file's path in bytes: PATH_MAX of limits.h.
    public static let pathBytes = 4_096
    /// Number of places for files in a worker's table. A job names at most three, and a bus uses few.
    public static let filesPerWorker = 16
    /// Maximum size of a certificate or key file in bytes: four times a system's certificate bundle.
    public static let fileBytes = 1 << 20
    /// Maximum number of words after the verb of a message, far more than any message has.
    public static let wordsPerMessage = 10_000
    /// Maximum number of named fields in one head, including unknown ones.
    public static let fieldsPerHead = 64
    /// Maximum length of the field `redirects` in bytes. With it, 48 KiB of header fields, a URL and a path of the
    /// maximum lengths, a RESULT is no longer than a head.
    public static let redirectsFieldBytes = 2_048
    /// Maximum number of entries of a table in one reply to QUERY.
    public static let queryEntries = 1_000
    /// Maximum number of words of a setting, including its name. An origin's rule has four.
    public static let settingWords = 8
    /// Maximum number of slots of a worker: twice the number that a worker is designed for.
    public static let slotsPerWorker = 10_000
    /// Maximum number of repetitions of a request within an attempt. A worker repeats it once, and libcurl five times
    /// if an HTTP/2 server refuses it.
    public static let repeatsPerAttempt = 16
    /// Maximum compression ratio that a setting accepts, above the ratio of any coding for text.
    public static let decodingRatio = 1_000_000
    /// Maximum length of the name of a scheme that a worker registers, in bytes.
    public static let schemeBytes = 32
    /// Maximum number of unacknowledged terminals of a client, below the broker's limit of unsent messages.
    public static let maximumWindow = 4_096
    /// Window of a HELLO that names none.
    public static let defaultWindow = 256
    /// Maximum bytes of a DATA: few messages for a large body, and a fraction of a millisecond of the broker's time.
    public static let dataBytes = 256 << 10
    /// Number of READs of one session that may have no answer. 16 MiB are on their way then: 200 MB/s over a round trip
    /// of 80 ms.
    public static let openReadsPerSession = 64
    /// Maximum time for which a broker keeps the session of a lost connection, in seconds: an hour.
    public static let leaseSeconds = 3_600
    /// Maximum of any time that a peer supplies, in seconds: a day.
    public static let durationSeconds = 86_400
}
