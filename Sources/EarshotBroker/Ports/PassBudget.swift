internal import EarshotWire
internal import ZMTP

/// Work that a port does in one pass: each peer has a turn, until the budget is spent.
///
/// If several users share the port, each causes a quarter of the work at most, and the administrator three. So a message of one
/// user waits for a pass at most, however many connections another one has.
struct PassBudget {
    /// Maximum number of messages, commands and discarded frames processed in one pass, so that a port never starves
    /// the other one or the timers.
    private static let itemsPerPass = 512
    /// Maximum bytes read in one pass: about 2 ms.
    private static let bytesPerPass = 8 << 20
    /// Maximum number of items of one peer processed in one pass. Replies to the first of many messages are sent before
    /// the last is read, so that their receivers work meanwhile.
    static let itemsPerTurn = 32
    /// Maximum bytes read of one peer in one pass: sixteen messages with bodies of 64 KiB.
    private static let bytesPerTurn = 1 << 20
    private static let parts = 4

    private var remainingItems = itemsPerPass
    private var bytes = bytesPerPass
    private let isShared: Bool
    /// Items and bytes of each user, nil for the administrator. Empty unless the port is shared.
    private var spentByUser: [UInt32?: (items: Int, bytes: Int)] = [:]

    init(isShared: Bool) { self.isShared = isShared }

    var isSpent: Bool { remainingItems <= 0 || bytes <= 0 }

    /// Turn of the next peer.
    var turn: Turn { Turn(items: min(remainingItems, Self.itemsPerTurn), bytes: min(bytes, Self.bytesPerTurn)) }

    /// Whether a user has caused its part of the work.
    ///
    /// - Parameter user: user ID; nil for the administrator.
    func isSpent(by user: UInt32?) -> Bool {
        guard isShared, let spent = spentByUser[user] else { return false }
        let parts = user == nil ? Self.parts - 1 : 1
        return spent.items >= Self.itemsPerPass / Self.parts * parts
            || spent.bytes >= Self.bytesPerPass / Self.parts * parts
    }

    /// Counts a turn.
    ///
    /// - Parameter rest: the unused part of it.
    mutating func spend(_ turn: Turn, _ rest: Turn, by user: UInt32?) {
        // A turn without input has a cost, too.
        let (usedItems, usedBytes) = (max(1, turn.items - rest.items), turn.bytes - rest.bytes)
        remainingItems -= usedItems
        bytes -= usedBytes
        guard isShared else { return }
        let before = spentByUser[user] ?? (0, 0)
        spentByUser[user] = (before.items + usedItems, before.bytes + usedBytes)
    }
}

extension ClientMessage {
    /// Number of messages that one counts as in its sender's turn, by its usual cost.
    func weight(headBytes: Int) -> Int {
        switch self {
        case .query(let query, _) where query.isOfTables: PassBudget.itemsPerTurn
        case .remove(.subtree): PassBudget.itemsPerTurn
        // It may create a handler, or free one.
        case .subscribe, .unsubscribe, .remove: 4
        // Each of its cookies takes some microseconds.
        case .cookies(_, _, let fields): 1 + fields.count { $0 == UInt8(ascii: "\n") } / 4
        // Fields are compared with those of other requests: as many in the time of a message.
        case .fetch: 1 + headBytes / 512
        default: 1
        }
    }
}
