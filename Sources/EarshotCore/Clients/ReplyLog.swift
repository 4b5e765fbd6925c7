internal import DequeModule
internal import EarshotWire

/// Reply of the broker to one message of a client.
enum Reply {
    case message(BrokerMessage)
    /// Answer to a query. It is composed when it is sent, so a kept entry holds no body.
    case answer(Query, QueryPage)
}

/// Latest replies of a session with a lease, kept so that its next connection can get those lost with the former one.
///
/// The client counts the replies that it receives, and reports the number in the HELLO that resumes the session.
struct ReplyLog {
    /// A reply, and the sequence number of the last terminal before it.
    private struct Entry {
        var reply: Reply
        var place: UInt64
    }

    /// Number of replies in the session, discarded ones included.
    private(set) var count: UInt64 = 0
    /// The latest replies, oldest first.
    private var entries: Deque<Entry> = []
    /// Number of entries, from the end, not sent over the current connection.
    private var unsent = 0

    /// Number of replies kept.
    var kept: Int { entries.count }

    /// Whether a reply waits for the terminals that precede it.
    var isBehind: Bool { unsent > 0 }

    mutating func append(_ reply: Reply, after sequence: UInt64) {
        count += 1
        entries.append(Entry(reply: reply, place: sequence))
        unsent += 1
    }

    /// Takes the next reply to send, if all terminals that precede it were sent.
    ///
    /// - Parameter sequence: sequence number of the last terminal sent.
    mutating func next(after sequence: UInt64) -> Reply? {
        guard unsent > 0, entries[entries.count - unsent].place <= sequence else { return nil }
        defer { unsent -= 1 }
        return entries[entries.count - unsent].reply
    }

    /// Discards the oldest replies beyond a maximum number.
    ///
    /// - Returns: whether an unsent reply was discarded.
    mutating func trim(to most: Int) -> Bool {
        guard entries.count > most else { return false }
        entries.removeFirst(entries.count - most)
        guard unsent > most else { return false }
        unsent = most
        return true
    }

    /// Prepares the replies for a connection that resumes the session.
    ///
    /// - Parameter received: number of replies that the client has received; nil for a client that does not count,
    ///   which gets none again.
    /// - Returns: false if missing replies are no longer kept, or if the client counts more replies than there were.
    mutating func resume(after received: UInt64?) -> Bool {
        guard let received else {
            unsent = 0
            return true
        }
        guard received <= count, count - received <= UInt64(entries.count) else { return false }
        unsent = Int(count - received)
        entries.removeFirst(entries.count - unsent)
        return true
    }
}
