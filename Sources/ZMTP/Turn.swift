/// Input that a stream may process before it yields to other peers: one peer's share of a pass.
///
/// A peer chooses how many commands or discarded frames it sends and how fast. So each of them counts as much as a
/// message, and bytes count when they are read from the socket.
public struct Turn {
    /// Messages, commands and discarded frames that may still be processed.
    public private(set) var remainingItems: Int
    /// Bytes that may still be read. The last read may exceed them by one input buffer.
    public private(set) var remainingBytes: Int

    public init(items: Int, bytes: Int) {
        self.remainingItems = items
        self.remainingBytes = bytes
    }

    /// Whether the turn is over. Input already read waits for the next turn.
    public var isOver: Bool { remainingItems <= 0 || remainingBytes <= 0 }

    /// Counts extra work that a message caused.
    public mutating func spendItems(_ items: Int) { self.remainingItems -= items }

    mutating func processedItem() { remainingItems -= 1 }

    mutating func spendBytes(_ count: Int) { remainingBytes -= count }
}
