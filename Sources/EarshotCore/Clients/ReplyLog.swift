internal import DequeModule
internal import EarshotWire

/// Latest replies of a session with a lease, kept so that its next connection can get those lost with the former one.
///
/// The HELLO that resumes the session names the first number whose answer the client lacks. An answer to a QUERY is not
/// kept once it is sent: the client asks again.
struct ReplyLog {
    /// A reply, the number of the message that it answers, and the sequence number of the last terminal before it.
    private struct Entry {
        var reply: ClientReply
        var number: UInt64
        var place: UInt64

        /// Whether it is kept after it was sent. The client asks again for the answer to a QUERY.
        var isKept: Bool { if case .answer = reply { false } else { number > 0 } }
    }

    /// Replies that were sent over the current connection, oldest first.
    private var sent: Deque<Entry> = []
    /// Replies that wait for the terminals that precede them, oldest first.
    private var unsent: Deque<Entry> = []
    /// Highest number of a discarded reply; 0 without one.
    private var discarded: UInt64 = 0

    /// Number of replies kept.
    var keptCount: Int { sent.count + unsent.count }

    /// Whether a reply waits for the terminals that precede it.
    var isBehind: Bool { !unsent.isEmpty }

    /// Whether all terminals that precede the next reply to send were sent.
    ///
    /// - Parameter sequence: sequence number of the last terminal sent.
    func isNext(after sequence: UInt64) -> Bool { unsent.first.map { $0.place <= sequence } ?? false }

    /// - Parameter handle: number of the message that it answers; 0 for none.
    mutating func append(_ reply: ClientReply, answering number: UInt64, after sequence: UInt64) {
        unsent.append(Entry(reply: reply, number: number, place: sequence))
    }

    /// Takes the next reply to send, if all terminals that precede it were sent.
    ///
    /// - Parameter sequence: sequence number of the last terminal sent.
    mutating func next(after sequence: UInt64) -> (reply: ClientReply, number: UInt64)? {
        guard let first = unsent.first, first.place <= sequence else { return nil }
        unsent.removeFirst()
        if first.isKept { sent.append(first) }
        return (first.reply, first.number)
    }

    /// Discards the oldest replies beyond a maximum number.
    ///
    /// - Returns: whether an unsent reply was discarded.
    mutating func trim(to most: Int) -> Bool {
        while keptCount > most, let oldest = sent.popFirst() { discarded = max(discarded, oldest.number) }
        guard unsent.count > most else { return false }
        while unsent.count > most, let oldest = unsent.popFirst() { discarded = max(discarded, oldest.number) }
        return true
    }

    /// Prepares the answers for a connection that resumes the session.
    ///
    /// - Parameter first: number from which the client lacks answers.
    /// - Returns: false if such an answer is no longer kept.
    mutating func resume(from first: UInt64) -> Bool {
        guard first > discarded else { return false }
        unsent = Deque((sent + unsent).filter { $0.number >= first && $0.isKept })
        sent = []
        return true
    }
}

/// Reply of the broker to one message of a client.
enum ClientReply {
    case message(BrokerMessage)
    /// Answer to a query. It is composed when it is sent, so a kept entry holds no body.
    case answer(Query, QueryPage)
}
