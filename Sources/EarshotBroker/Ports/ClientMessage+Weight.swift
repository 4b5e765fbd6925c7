internal import EarshotWire

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
