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
    func values(named name: String) -> [ArraySlice<UInt8>] {
        var values: [ArraySlice<UInt8>] = []
        var start = 0
        while let index = index(of: name, from: start) {
            values.append(fields.bytes[lines[index].valueRange])
            start = index + 1
        }
        return values
    }

    /// Returns the value of a field that should occur once; nil if it is absent or several values differ.
    func singleValue(named name: String) -> ArraySlice<UInt8>? {
        guard var index = index(of: name, from: 0) else { return nil }
        let value = fields.bytes[lines[index].valueRange]
        while let next = self.index(of: name, from: index + 1) {
            guard fields.bytes[lines[next].valueRange] == value else { return nil }
            index = next
        }
        return value
    }

    /// Returns whether a line of this block has this name.
    func isNamed(_ line: HeaderLine, _ name: String) -> Bool {
        matchesIgnoringCase(fields.bytes.span, in: line.nameRange, lowercase: name)
    }

    /// Returns whether there is a field of the same name as a line of another block.
    func hasField(namedAs line: HeaderLine, in other: ParsedFields) -> Bool {
        let name = other.fields.bytes[line.nameRange]
        return lines.contains { isNamed($0, name) }
    }

    /// Returns whether a line of this block has this name, in any case.
    func isNamed(_ line: HeaderLine, _ name: ArraySlice<UInt8>) -> Bool {
        line.nameRange.count == name.count
            && zip(fields.bytes[line.nameRange], name).allSatisfy { $0.lowercased == $1.lowercased }
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
        let count = wanted.reduce(-1) { $0 + $1.lineRange.count + 1 }
        return count == fields.bytes.count ? self : ParsedFields([], []).adding(wanted, of: self)
    }

    /// Returns these fields, followed by others.
    func adding(_ other: ParsedFields) -> ParsedFields { adding(other.lines, of: other) }

    private func adding(_ added: [HeaderLine], of other: ParsedFields) -> ParsedFields {
        var (bytes, lines) = (fields.bytes, lines)
        lines.reserveCapacity(lines.count + added.count)
        bytes.reserveCapacity(added.reduce(bytes.count) { $0 + $1.lineRange.count + 1 })
        for line in added {
            if !bytes.isEmpty { bytes.append(UInt8(ascii: "\n")) }
            lines.append(line.moved(by: bytes.count - line.lineRange.lowerBound))
            bytes += other.fields.bytes[line.lineRange]
        }
        return ParsedFields(bytes, lines)
    }
}

extension ParsedFields {
    /// Fields of a response that may be stored: RFC 9111, section 3.1. Malformed lines are removed.
    ///
    /// A `Connection` field cannot remove the fields that control caching: RFC 9110, section 7.6.1, forbids that, and a
    /// sender could otherwise remove a `no-cache`.
    var storableFields: ParsedFields {
        let named = FieldList.members(values(named: "connection"))
        return selecting { line in
            !Self.unstorableFieldNames.contains { isNamed(line, $0) }
                && (!named.contains { isNamed(line, $0) } || Self.cachingFieldNames.contains { isNamed(line, $0) })
        }
    }

    /// Returns these fields of a stored response, updated by those of a 304 or of a response to HEAD: RFC 9111, section
    /// 3.2.
    ///
    /// Length, coding and range stay those of the stored body, which was decoded on receipt. `Content-Type` is updated,
    /// because it does not affect the stored bytes. `Date` and `Age` are taken from the newer response even if absent
    /// there, because they describe the response, not the body.
    ///
    /// - Parameter keepsEntityTag: Whether the stored tag stays even if the newer response has another.
    func updated(by newer: ParsedFields, keepsEntityTag: Bool) -> ParsedFields {
        let storable = newer.storableFields
        let newer = storable.selecting { line in
            !Self.bodyFieldNames.contains { storable.isNamed(line, $0) }
                && !(keepsEntityTag && storable.isNamed(line, "etag"))
        }
        let kept = selecting { line in
            !isNamed(line, "date") && !isNamed(line, "age") && !newer.hasField(namedAs: line, in: self)
        }
        return kept.adding(newer)
    }

    /// Connection-specific fields (RFC 9110, section 7.6.1), and fields for a proxy, which is not part of a `CacheKey`.
    private static let unstorableFieldNames = [
        "connection", "keep-alive", "proxy-authenticate", "proxy-authentication-info", "proxy-authorization",
        "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
    ]

    /// Fields that control caching.
    private static let cachingFieldNames = ["age", "cache-control", "date", "etag", "expires", "last-modified", "vary"]

    /// Fields that describe the stored body.
    private static let bodyFieldNames = ["content-encoding", "content-length", "content-range"]
}
