internal import DequeModule
internal import EarshotWire

/// Messages without an answer that must not be lost, oldest first, and the messages that wait behind too many of them.
///
/// A log over `most` entries holds back all further messages until an answer confirms older entries. While disconnected
/// nothing confirms them, so the core abandons the session instead.
struct NoticeLog {
    /// A message and its number in the session.
    struct Entry {
        let message: ClientMessage
        let number: UInt64
    }

    /// Maximum sent entries without a confirmation.
    static let most = 1_000

    /// Entries that the broker may not have received.
    private(set) var entries = Deque<Entry>()
    private var held = Deque<ClientMessage>()
    /// Entries among `held`.
    private var heldEntries = 0

    var isEmpty: Bool { entries.isEmpty }
    var isFull: Bool { entries.count > Self.most }
    var isHolding: Bool { !held.isEmpty }

    /// Adds a message that was sent or held back.
    mutating func append(_ message: ClientMessage, number: UInt64) {
        entries.append(Entry(message: message, number: number))
    }

    /// Removes the entries that the broker has received.
    mutating func confirm(through number: UInt64) {
        while let first = entries.first, first.number <= number { entries.removeFirst() }
    }

    /// Returns whether a message may be sent now. Otherwise `release` returns it later.
    mutating func admits(_ message: ClientMessage) -> Bool {
        if held.isEmpty, !message.isNotice || entries.count < Self.most { return true }
        held.append(message)
        if message.isNotice { heldEntries += 1 }
        return false
    }

    /// Returns the messages that may be sent after a confirmation, in their order.
    mutating func release() -> [ClientMessage] {
        var released: [ClientMessage] = []
        while let first = held.first, !first.isNotice || entries.count - heldEntries < Self.most {
            held.removeFirst()
            if first.isNotice { heldEntries -= 1 }
            released.append(first)
        }
        return released
    }
}

extension ClientMessage {
    /// Whether the message has no answer and must not be lost.
    fileprivate var isNotice: Bool {
        switch self {
        case .subscribe, .unsubscribe, .priority, .cookies: true
        case .hello, .fetch, .retry, .remove, .removeRequest, .acknowledge, .query, .set, .read, .take, .bye: false
        }
    }
}
