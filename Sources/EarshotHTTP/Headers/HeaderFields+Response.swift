extension HeaderFields {
    /// The value of a field that should be there once: nil if there is none, or if there are several that differ.
    func agreed(_ name: String) -> ArraySlice<UInt8>? {
        let values = values(bytes: name)
        guard let first = values.first, values.allSatisfy({ $0 == first }) else { return nil }
        return first
    }

    /// Adds a field whose value, as bytes, is known to be a value.
    ///
    /// - Parameters:
    ///   - name: A token.
    ///   - value: Without a LF, or it would become two lines.
    mutating func add(_ name: some Sequence<UInt8>, _ value: some Sequence<UInt8>) {
        var lines = bytes
        if !lines.isEmpty { lines.append(UInt8(ascii: "\n")) }
        lines += name
        lines += ": ".utf8
        lines += value
        self = HeaderFields(lines: lines)
    }
}
