internal import DequeModule
internal import EarshotWire

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
    static let most = 1_000

    private(set) var entries = Deque<Entry>()

    var isEmpty: Bool { entries.isEmpty }
    var isFull: Bool { entries.count > Self.most }

    mutating func append(_ message: ClientMessage, number: UInt64) {
        entries.append(Entry(message: message, number: number))
    }

    /// Removes the entries that the broker has received.
    mutating func confirm(through number: UInt64) {
        while let first = entries.first, first.number <= number { entries.removeFirst() }
    }
}
