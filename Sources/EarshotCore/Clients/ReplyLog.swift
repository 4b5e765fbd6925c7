internal import DequeModule
internal import EarshotWire

/// Reply of the broker to one message of a client.
enum Reply {
    case message(BrokerMessage)
    /// The answer to a query. It is made when it is sent, so a kept one costs no body.
    case answer(Query, QueryPage)
}

/// Replies of one session with a lease, the newest of them kept so that the next connection can get those that were
/// lost with the one before.
///
/// The client counts the replies that it receives and says the number in the HELLO that resumes the session.
struct ReplyLog {
    /// A reply, and the number of the last terminal sent before it.
    private struct Entry {
        var reply: Reply
        var place: UInt64
    }

    /// All replies of the session, discarded ones included.
    private(set) var count: UInt64 = 0
    /// The newest of them, oldest first.
    private var entries: Deque<Entry> = []
    /// Number of entries at the end that the present connection has not been sent.
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
    /// - Parameter sequence: the number of the last terminal sent.
    mutating func next(after sequence: UInt64) -> Reply? {
        guard unsent > 0, entries[entries.count - unsent].place <= sequence else { return nil }
        defer { unsent -= 1 }
        return entries[entries.count - unsent].reply
    }

    /// Discards the oldest replies beyond a number.
    ///
    /// - Returns: whether one of them was not sent.
    mutating func trim(to most: Int) -> Bool {
        guard entries.count > most else { return false }
        entries.removeFirst(entries.count - most)
        guard unsent > most else { return false }
        unsent = most
        return true
    }

    /// Prepares the replies for a connection that resumes the session.
    ///
    /// - Parameter received: how many the client has received; nil from a client that does not count, which gets none
    ///   again.
    /// - Returns: false if some that it lacks are no longer kept, or if it counts more than there were.
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
