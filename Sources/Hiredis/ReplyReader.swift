internal import CHiredis

/// Incremental parser of a server's replies. It never traps on any input.
@safe public struct ReplyReader: ~Copyable {
    /// Owned reader; freed by `deinit`.
    private let reader: UnsafeMutablePointer<redisReader>
    /// Bytes fed since the last complete reply.
    private var pendingBytes = 0
    /// Maximum number of bytes of one reply.
    private let most: Int
    private var hasFailed = false

    /// - Parameter maximumReplyBytes: Bound of one reply; a larger one is an error.
    /// - Throws: `HiredisError` if the library cannot be loaded.
    public init(maximumReplyBytes: Int) throws(HiredisError) {
        try HiredisLibrary.load()
        guard let reader = unsafe hiredis_reader() else { throw HiredisError(.outOfMemory) }
        unsafe self.reader = unsafe reader
        most = maximumReplyBytes
    }

    deinit {
        unsafe hiredis_reader_free(reader)
    }

    /// Parses further bytes and appends the complete replies.
    ///
    /// - Throws: `HiredisError` for malformed or too large replies; all further calls then fail.
    public mutating func feed(_ bytes: Span<UInt8>, into replies: inout [Reply]) throws(HiredisError) {
        guard !hasFailed else { throw HiredisError(.malformedReply) }
        pendingBytes += bytes.count
        let fed = unsafe bytes.withUnsafeBytes { unsafe hiredis_reader_feed(reader, $0.baseAddress, $0.count) }
        guard fed == REDIS_OK else { throw failed() }
        while true {
            var reply: UnsafeMutablePointer<redisReply>?
            guard unsafe hiredis_reader_next(reader, &reply) == REDIS_OK else { throw failed() }
            guard let complete = unsafe reply else { break }
            replies.append(unsafe Reply(complete))
            unsafe hiredis_reply_free(complete)
            pendingBytes = 0
        }
        guard pendingBytes <= most else { throw failed() }
    }

    private mutating func failed() -> HiredisError {
        hasFailed = true
        return HiredisError(.malformedReply)
    }
}
