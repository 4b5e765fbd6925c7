extension Terminal {
    /// The head of a terminal under another number: one that was encoded before it had its place among those of a
    /// client.
    public static func head(_ head: [UInt8], numbered sequence: UInt64) -> [UInt8] {
        let name = Array("seq: ".utf8)
        var start = 0
        // The fields begin in the second line; an empty one ends them.
        while let end = head[start...].firstIndex(of: Ascii.lineFeed), end > start {
            start = end + 1
            guard head[start...].starts(with: name),
                let last = head[start...].firstIndex(of: Ascii.lineFeed)
            else { continue }
            return head[..<(start + name.count)] + Array(String(sequence).utf8) + head[last...]
        }
        return head
    }
}
