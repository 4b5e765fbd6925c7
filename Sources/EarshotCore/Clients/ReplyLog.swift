internal import DequeModule
internal import EarshotWire

/// Latest replies of a session with a lease, kept so that its next connection can get those lost with the former one.
///
/// The HELLO that resumes the session names the first number whose answer the client lacks. An answer to a QUERY is not
/// kept after it is sent: the client repeats the QUERY.
struct ReplyLog {
    /// A reply, the number of the message that it answers, and the sequence number of the last terminal before it.
    private struct Entry {
        var reply: ClientReply
        var number: UInt64
        var precedingSequence: UInt64

        /// Whether it is kept after it was sent. The client repeats a QUERY instead.
        var isKeptAfterSending: Bool { if case .queryAnswer = reply { false } else { number > 0 } }
    }

    /// Replies that were sent over the current connection, oldest first.
    private var sentReplies: Deque<Entry> = []
    /// Replies that wait for the terminals that precede them, oldest first.
    private var unsentReplies: Deque<Entry> = []
    /// Highest number of a discarded reply; 0 without one.
    private var lastDiscardedNumber: UInt64 = 0

    /// Number of replies kept.
    var keptReplyCount: Int { sentReplies.count + unsentReplies.count }

    /// Whether a reply waits for the terminals that precede it.
    var hasWaitingReply: Bool { !unsentReplies.isEmpty }

    /// Whether all terminals that precede the next reply to send were sent.
    ///
    /// - Parameter sequence: sequence number of the last terminal sent.
    func isReplyNext(after sequence: UInt64) -> Bool {
        unsentReplies.first.map { $0.precedingSequence <= sequence } ?? false
    }

    /// Appends a reply that waits for the terminals that precede it.
    ///
    /// - Parameters:
    ///   - number: number of the message that it answers; 0 for none.
    ///   - sequence: sequence number of the last terminal that precedes it.
    mutating func append(_ reply: ClientReply, answering number: UInt64, after sequence: UInt64) {
        unsentReplies.append(Entry(reply: reply, number: number, precedingSequence: sequence))
    }

    /// Takes the next reply to send, if all terminals that precede it were sent.
    ///
    /// - Parameter sequence: sequence number of the last terminal sent.
    mutating func takeNextReply(after sequence: UInt64) -> (reply: ClientReply, number: UInt64)? {
        guard let first = unsentReplies.first, first.precedingSequence <= sequence else { return nil }
        unsentReplies.removeFirst()
        if first.isKeptAfterSending { sentReplies.append(first) }
        return (first.reply, first.number)
    }

    /// Discards the oldest replies beyond a maximum number.
    ///
    /// - Returns: whether an unsent reply was discarded.
    mutating func discardOldest(beyond most: Int) -> Bool {
        while keptReplyCount > most, let oldest = sentReplies.popFirst() {
            lastDiscardedNumber = max(lastDiscardedNumber, oldest.number)
        }
        guard unsentReplies.count > most else { return false }
        while unsentReplies.count > most, let oldest = unsentReplies.popFirst() {
            lastDiscardedNumber = max(lastDiscardedNumber, oldest.number)
        }
        return true
    }

    /// Prepares the answers for a connection that resumes the session.
    ///
    /// - Parameter first: number from which the client lacks answers.
    /// - Returns: false if such an answer is no longer kept.
    mutating func prepareResumption(from first: UInt64) -> Bool {
        guard first > lastDiscardedNumber else { return false }
        unsentReplies = Deque((sentReplies + unsentReplies).filter { $0.number >= first && $0.isKeptAfterSending })
        sentReplies = []
        return true
    }
}

/// Reply of the broker to one message of a client.
enum ClientReply {
    case message(BrokerMessage)
    /// Answer to a query. It is composed when it is sent, so a kept entry holds no body.
    case queryAnswer(Query, QueryPage)
}

/// Numbers of a session's messages. They rise strictly, so that no message is carried out twice.
struct MessageNumbers {
    /// Number of the last message that was carried out or is being carried out; 0 before the first.
    private(set) var lastNumber: UInt64 = 0
    /// Number of the message that is being carried out and has no answer yet; 0 for none.
    private(set) var currentNumber: UInt64 = 0
    /// Number of messages before the current one whose answers are not due yet.
    private(set) var pendingCount = 0

    /// Begins a message.
    ///
    /// - Parameter number: its number; nil for a message without one.
    /// - Returns: whether the number is above all earlier ones.
    mutating func beginMessage(number: UInt64?) -> Bool {
        currentNumber = 0
        guard let number else { return true }
        guard number > lastNumber else { return false }
        (lastNumber, currentNumber) = (number, number)
        return true
    }

    /// Takes the number of the present message for its answer, which is due.
    mutating func takeCurrentNumber() -> UInt64 {
        defer { currentNumber = 0 }
        return currentNumber
    }

    /// Takes the number of the present message, which is answered later.
    mutating func deferCurrentNumber() -> UInt64 {
        if currentNumber > 0 { pendingCount += 1 }
        return takeCurrentNumber()
    }

    /// Counts an earlier message as answered.
    mutating func deferredNumberAnswered(_ number: UInt64) {
        if number > 0 { pendingCount -= 1 }
    }
}

/// A message that is answered later: its sender, and its number, which is 0 for a message without one.
struct Requester: Equatable {
    let session: GenerationalHandle<ClientSession>
    let number: UInt64
}

/// A requester whose session is alive.
struct LiveRequester {
    let client: Handle<ClientSession>
    let number: UInt64
}
