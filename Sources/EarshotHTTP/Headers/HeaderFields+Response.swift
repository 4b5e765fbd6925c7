extension HeaderFields {
    /// Returns the value of a field that should occur once; nil if it is absent or several values differ.
    func agreed(_ name: String) -> ArraySlice<UInt8>? {
        let values = values(bytes: name)
        guard let first = values.first, values.allSatisfy({ $0 == first }) else { return nil }
        return first
    }

    /// Adds a field without checks.
    ///
    /// - Parameters:
    ///   - name: Valid token.
    ///   - value: Valid value without LF, which would begin another line.
    mutating func add(_ name: some Sequence<UInt8>, _ value: some Sequence<UInt8>) {
        var lines = bytes
        if !lines.isEmpty { lines.append(UInt8(ascii: "\n")) }
        lines += name
        lines += ": ".utf8
        lines += value
        self = HeaderFields(lines: lines)
    }
}
