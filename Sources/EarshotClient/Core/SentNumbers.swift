internal import DequeModule
internal import EarshotWire

/// Numbers of a session's messages, and the messages that wait until the broker has answered earlier ones.
///
/// The broker keeps a limited number of answers for the next connection, so no more may be unanswered.
struct SentNumbers {
    /// Maximum unanswered numbers.
    static let maximumUnanswered = 256

    /// Number of the last message, including messages that wait for a connection or for answers.
    private(set) var lastAssignedNumber: UInt64 = 0
    /// Number of the last message that was sent over the present connection.
    private var lastSentNumber: UInt64 = 0
    private var lastAnsweredNumber: UInt64 = 0
    /// Numbers of messages that count as unanswered, in rising order.
    private var openNumbers = Deque<UInt64>()
    /// Messages that wait for answers, in their order.
    private var heldMessages = Deque<ClientMessage>()
    /// Number of messages among `heldMessages` that count as unanswered.
    private var heldOpenCount = 0

    /// The number that HELLO names: the lowest without an answer.
    var lowestUnansweredNumber: UInt64 { min(openNumbers.first ?? .max, lastAnsweredNumber + 1) }
    var hasHeldMessages: Bool { !heldMessages.isEmpty }

    /// Assigns the next number to a message, if it takes one.
    mutating func add(_ message: ClientMessage) {
        guard message.canHaveNumber else { return }
        lastAssignedNumber += 1
        if message.countsAsUnanswered { openNumbers.append(lastAssignedNumber) }
    }

    /// Returns whether the message that was added last may be sent now. Otherwise `releaseMessages` returns it later.
    mutating func admits(_ message: ClientMessage) -> Bool {
        guard message.canHaveNumber else { return true }
        if heldMessages.isEmpty, !message.countsAsUnanswered || openNumbers.count <= Self.maximumUnanswered {
            return true
        }
        heldMessages.append(message)
        if message.countsAsUnanswered { heldOpenCount += 1 }
        return false
    }

    /// Returns the messages that may be sent after an answer, in their order.
    mutating func releaseMessages() -> [ClientMessage] {
        var released: [ClientMessage] = []
        while let first = heldMessages.first,
            !first.countsAsUnanswered || openNumbers.count - heldOpenCount < Self.maximumUnanswered
        {
            heldMessages.removeFirst()
            if first.countsAsUnanswered { heldOpenCount -= 1 }
            released.append(first)
        }
        return released
    }

    /// Returns a message with its number. Called in the order in which messages are sent.
    mutating func numbered(_ message: ClientMessage) -> NumberedMessage {
        guard message.canHaveNumber else { return NumberedMessage(message) }
        lastSentNumber += 1
        return NumberedMessage(message, number: lastSentNumber)
    }

    /// Records an answer.
    mutating func recordAnswer(to number: UInt64) {
        lastAnsweredNumber = max(lastAnsweredNumber, number)
        closeNumber(number)
    }

    /// Records that a message needs no answer any more.
    mutating func closeNumber(_ number: UInt64) {
        guard let first = openNumbers.first, number >= first, let index = openNumbers.firstIndex(of: number) else {
            return
        }
        openNumbers.remove(at: index)
    }

    /// Resumes a session in which the broker knows the messages up to a number. Later ones get new numbers.
    mutating func resume(after number: UInt64) {
        (lastAssignedNumber, lastSentNumber) = (number, number)
        openNumbers.removeAll { $0 > number }
        (heldMessages, heldOpenCount) = ([], 0)
    }
}

/// Requests of the FETCHes of a session by their numbers, because an ERROR names only the number.
struct SentFetches {
    /// Maximum number of entries without an open request that are kept when there are few requests.
    static let maximumSpareEntries = 64

    /// In rising order of the numbers.
    private var entries = Deque<(number: UInt64, key: RequestKey)>()

    var count: Int { entries.count }

    mutating func add(_ key: RequestKey, number: UInt64) { entries.append((number, key)) }

    /// Returns the request of a number. O(log n).
    func requestKey(ofNumber number: UInt64) -> RequestKey? {
        var (low, high) = (entries.startIndex, entries.endIndex)
        while low < high {
            let middle = low + (high - low) / 2
            if entries[middle].number < number { low = middle + 1 } else { high = middle }
        }
        return low < entries.endIndex && entries[low].number == number ? entries[low].key : nil
    }

    /// Removes entries. O(n).
    mutating func removeAll(where isRemoved: (UInt64, RequestKey) -> Bool) {
        entries.removeAll { isRemoved($0.number, $0.key) }
    }

    /// Resumes a session in which the broker knows the messages up to a number. Later ones get new numbers.
    mutating func resume(after number: UInt64) {
        while let last = entries.last, last.number > number { entries.removeLast() }
    }
}

/// Messages that OK answers, oldest first, until their answer. A resumption repeats those that the broker did not
/// receive.
///
/// While disconnected the log grows, so the core abandons the session when it is full.
struct NoticeLog {
    /// A message and its number in the session.
    struct Entry {
        let message: ClientMessage
        let number: UInt64
    }

    /// Maximum entries for a resumption.
    static let maximumEntries = 1_000

    private(set) var entries = Deque<Entry>()

    var isEmpty: Bool { entries.isEmpty }
    var isFull: Bool { entries.count > Self.maximumEntries }

    mutating func append(_ message: ClientMessage, number: UInt64) {
        entries.append(Entry(message: message, number: number))
    }

    /// Removes the entries that the broker has received.
    mutating func removeConfirmed(through number: UInt64) {
        while let first = entries.first, first.number <= number { entries.removeFirst() }
    }
}
