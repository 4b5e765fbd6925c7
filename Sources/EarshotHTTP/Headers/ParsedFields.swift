internal import EarshotWire

/// Header fields with the positions of their lines, for several lookups in one block.
///
/// A lookup compares names and skips values. Lookups skip malformed lines, as in `HeaderFields`.
struct ParsedFields {
    let fields: HeaderFields
    /// Well-formed lines in order.
    let lines: [HeaderLine]

    init(_ fields: HeaderFields) {
        self.fields = fields
        lines = fields.lines
    }

    /// Creates a block without malformed lines.
    private init(_ bytes: [UInt8], _ lines: [HeaderLine]) {
        fields = HeaderFields(lines: bytes)
        self.lines = lines
    }

    // MARK: Lookups

    /// Returns whether there is a field of this name, in lower case here and in the other lookups.
    func contains(_ name: String) -> Bool { index(of: name, from: 0) != nil }

    /// Returns the values of all fields of this name, in order.
    func values(_ name: String) -> [ArraySlice<UInt8>] {
        var values: [ArraySlice<UInt8>] = []
        var start = 0
        while let index = index(of: name, from: start) {
            values.append(fields.bytes[lines[index].value])
            start = index + 1
        }
        return values
    }

    /// Returns the value of a field that should occur once; nil if it is absent or several values differ.
    func agreed(_ name: String) -> ArraySlice<UInt8>? {
        guard var index = index(of: name, from: 0) else { return nil }
        let value = fields.bytes[lines[index].value]
        while let next = self.index(of: name, from: index + 1) {
            guard fields.bytes[lines[next].value] == value else { return nil }
            index = next
        }
        return value
    }

    /// Returns whether a line of this block has this name.
    func isNamed(_ line: HeaderLine, _ name: String) -> Bool {
        matches(fields.bytes.span, line.name, lowercase: name)
    }

    /// Returns whether there is a field of the same name as a line of another block.
    func hasName(of line: HeaderLine, in other: ParsedFields) -> Bool {
        let name = other.fields.bytes[line.name]
        return lines.contains { isNamed($0, name) }
    }

    /// Returns whether a line of this block has this name, in any case.
    func isNamed(_ line: HeaderLine, _ name: ArraySlice<UInt8>) -> Bool {
        line.name.count == name.count
            && zip(fields.bytes[line.name], name).allSatisfy { $0.lowercased == $1.lowercased }
    }

    private func index(of name: String, from start: Int) -> Int? {
        var index = start
        while index < lines.count {
            if isNamed(lines[index], name) { return index }
            index += 1
        }
        return nil
    }

    // MARK: Parts

    /// Returns the fields that satisfy `isWanted`, without malformed lines.
    func selecting(_ isWanted: (HeaderLine) -> Bool) -> ParsedFields {
        let wanted = lines.filter(isWanted)
        let count = wanted.reduce(-1) { $0 + $1.line.count + 1 }
        return count == fields.bytes.count ? self : ParsedFields([], []).adding(wanted, of: self)
    }

    /// Returns these fields, followed by others.
    func adding(_ other: ParsedFields) -> ParsedFields { adding(other.lines, of: other) }

    private func adding(_ added: [HeaderLine], of other: ParsedFields) -> ParsedFields {
        var (bytes, lines) = (fields.bytes, lines)
        lines.reserveCapacity(lines.count + added.count)
        bytes.reserveCapacity(added.reduce(bytes.count) { $0 + $1.line.count + 1 })
        for line in added {
            if !bytes.isEmpty { bytes.append(UInt8(ascii: "\n")) }
            lines.append(line.moved(by: bytes.count - line.line.lowerBound))
            bytes += other.fields.bytes[line.line]
        }
        return ParsedFields(bytes, lines)
    }
}
