internal import EarshotWire
internal import ZMTP

/// Work that a port does in one pass: each peer has a turn, until the budget is spent.
///
/// If several users share the port, each causes a quarter of the work at most, and the administrator three quarters. So
/// a message of one user waits for a pass at most, however many connections another one has.
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
    private static let userShareDivisor = 4

    private var remainingItems = itemsPerPass
    private var remainingBytes = bytesPerPass
    private let isSharedPort: Bool
    /// Items and bytes of each user, nil for the administrator. Empty unless the port is shared.
    private var spentByUser: [UInt32?: (items: Int, bytes: Int)] = [:]

    init(isSharedPort: Bool) { self.isSharedPort = isSharedPort }

    var isExhausted: Bool { remainingItems <= 0 || remainingBytes <= 0 }

    /// Turn of the next peer.
    var nextTurn: Turn {
        Turn(items: min(remainingItems, Self.itemsPerTurn), bytes: min(remainingBytes, Self.bytesPerTurn))
    }

    /// Whether a user has caused its part of the work.
    ///
    /// - Parameter user: user ID; nil for the administrator.
    func isExhausted(for user: UInt32?) -> Bool {
        guard isSharedPort, let spent = spentByUser[user] else { return false }
        let parts = user == nil ? Self.userShareDivisor - 1 : 1
        return spent.items >= Self.itemsPerPass / Self.userShareDivisor * parts
            || spent.bytes >= Self.bytesPerPass / Self.userShareDivisor * parts
    }

    /// Counts a turn.
    ///
    /// - Parameter rest: the unused part of it.
    mutating func spend(_ turn: Turn, unused rest: Turn, by user: UInt32?) {
        // A turn without input has a cost, too.
        let usedItems = max(1, turn.remainingItems - rest.remainingItems)
        let usedBytes = turn.remainingBytes - rest.remainingBytes
        remainingItems -= usedItems
        remainingBytes -= usedBytes
        guard isSharedPort else { return }
        let before = spentByUser[user] ?? (0, 0)
        spentByUser[user] = (before.items + usedItems, before.bytes + usedBytes)
    }
}

extension ClientMessage {
    /// Number of messages that one counts as in its sender's turn, by its usual cost.
    func turnWeight(headBytes: Int) -> Int {
        switch self {
        case .query(let query, _) where query.listsTableRows: PassBudget.itemsPerTurn
        case .removeHandlers(.subtree): PassBudget.itemsPerTurn
        // It may create a handler, or free one.
        case .subscribe, .unsubscribe, .removeHandlers: 4
        // Each of its cookies takes some microseconds.
        case .storeCookies(_, _, let fields): 1 + fields.count { $0 == UInt8(ascii: "\n") } / 4
        // The broker compares the fields with those of other requests: 512 bytes take as long as a message.
        case .fetch: 1 + headBytes / 512
        default: 1
        }
    }
}
