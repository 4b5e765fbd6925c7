extension Terminal {
    /// Returns the head with a sequence number, for a terminal that was encoded before its number was assigned.
    public static func head(_ head: [UInt8], numbered sequence: UInt64) -> [UInt8] {
        guard let end = head.firstIndex(of: Ascii.lineFeed) else { return head }
        return head[...end] + Array("seq: \(sequence)\n".utf8) + head[(end + 1)...]
    }
}
