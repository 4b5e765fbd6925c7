extension Terminal {
    /// The head of a terminal under its number: one that was encoded before it had its place among those of a client.
    public static func head(_ head: [UInt8], numbered sequence: UInt64) -> [UInt8] {
        guard let end = head.firstIndex(of: Ascii.lineFeed) else { return head }
        return head[...end] + Array("seq: \(sequence)\n".utf8) + head[(end + 1)...]
    }
}
