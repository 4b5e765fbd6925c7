/// Input that a stream may process before it yields to other peers: one peer's share of a pass.
///
/// A peer chooses how many commands or discarded frames it sends and how fast. So each of them counts as much as a
/// message, and bytes count when they are read from the socket.
public struct Turn {
    /// Messages, commands and discarded frames that may still be processed.
    public private(set) var items: Int
    /// Bytes that may still be read. The last read may exceed them by one input buffer.
    public private(set) var bytes: Int

    public init(items: Int, bytes: Int) {
        self.items = items
        self.bytes = bytes
    }

    /// Whether the turn is over. Input already read waits for the next turn.
    public var isOver: Bool { items <= 0 || bytes <= 0 }

    /// Counts extra work that a message caused.
    public mutating func spend(_ items: Int) { self.items -= items }

    mutating func processedItem() { items -= 1 }

    mutating func read(_ count: Int) { bytes -= count }
}
