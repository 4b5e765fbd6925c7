internal import EarshotWire

/// Block of header fields as raw lines, parsed on access.
///
/// Lookups, iteration and removal skip malformed lines, so that a server's block needs no prior check. `init(request:)`
/// and `append` check fields that are sent to a server. Each lookup is O(bytes).
public struct HeaderFields: Hashable, Sendable {
    /// Lines separated by LF, without a trailing one.
    public private(set) var bytes: [UInt8]

    /// Creates an empty block.
    public init() {
        bytes = []
    }

    /// Creates a block of unchecked lines. One trailing LF is removed.
    public init(lines: [UInt8]) {
        bytes = lines
        if bytes.last == UInt8(ascii: "\n") { bytes.removeLast() }
    }

    /// Whether the block has no bytes.
    public var isEmpty: Bool { bytes.isEmpty }

    /// Returns whether there is a field of this name.
    ///
    /// - Parameter name: Name in lower case, here and in the other lookups.
    public func contains(_ name: String) -> Bool { line(named: name, from: 0) != nil }

    /// Returns the value of the first field of this name; bytes that are not UTF-8 become U+FFFD.
    public func firstValue(named name: String) -> String? {
        line(named: name, from: 0).map { String(decoding: bytes[$0.valueRange], as: UTF8.self) }
    }

    /// Returns the values of all fields of this name, in order.
    public func values(named name: String) -> [String] {
        valueBytes(named: name).map { String(decoding: $0, as: UTF8.self) }
    }

    /// Returns `values(named:)` as bytes.
    func valueBytes(named name: String) -> [ArraySlice<UInt8>] {
        var values: [ArraySlice<UInt8>] = []
        var start = 0
        while let line = line(named: name, from: start) {
            values.append(bytes[line.valueRange])
            start = line.lineRange.upperBound + 1
        }
        return values
    }

    /// Removes the fields of this name.
    public mutating func removeAll(named name: String) {
        guard contains(name) else { return }
        removeAll { $0.isNamed(name) }
    }

    /// Removes the fields that satisfy `isUnwanted`. Malformed lines stay.
    public mutating func removeAll(where isUnwanted: (HeaderField) -> Bool) {
        var kept: [UInt8] = []
        var start = 0
        var hasRemoved = false
        for line in lines where isUnwanted(field(at: line)) {
            kept += bytes[start..<line.lineRange.lowerBound]
            start = Swift.min(line.lineRange.upperBound + 1, bytes.count)
            hasRemoved = true
        }
        guard hasRemoved else { return }
        kept += bytes[start...]
        // Removing the last field leaves the LF before it.
        if start == bytes.count, kept.last == UInt8(ascii: "\n") { kept.removeLast() }
        bytes = kept
    }

    /// Appends a field after checking that it may be sent to a server.
    public mutating func append(_ name: String, _ value: String) throws(HeaderFieldError) {
        var lines = bytes
        if !lines.isEmpty { lines.append(UInt8(ascii: "\n")) }
        let start = lines.count
        lines += name.utf8
        lines += ": ".utf8
        lines += value.utf8
        // A LF in the value or a colon in the name would change the structure of the block.
        let number = self.lines.count + 1
        guard name.utf8.allSatisfy(\.isTokenByte) else { throw HeaderFieldError(code: .invalidName, line: number) }
        guard !value.utf8.contains(UInt8(ascii: "\n")) else {
            throw HeaderFieldError(code: .invalidValue, line: number)
        }
        try Self.checkSize(lines.count, fields: number)
        try Self.checkLine(lines.span, start..<lines.count, number: number)
        bytes = lines
    }

    /// Well-formed fields in order.
    var lines: [HeaderLine] {
        var lines: [HeaderLine] = []
        var start = 0
        while let line = HeaderLine.firstWellFormed(in: bytes.span, from: start) {
            lines.append(line)
            start = line.lineRange.upperBound + 1
        }
        return lines
    }

    func field(at line: HeaderLine) -> HeaderField {
        HeaderField(name: bytes[line.nameRange], value: bytes[line.valueRange])
    }

    private func line(named name: String, from start: Int) -> HeaderLine? {
        let span = bytes.span
        var start = start
        while start < span.count {
            let end = HeaderLine.lineEnd(span, from: start)
            if let line = Self.line(span, start..<end, named: name) { return line }
            start = end + 1
        }
        return nil
    }

    /// Parses the line if it is a field of this name.
    private static func line(_ bytes: Span<UInt8>, _ line: Range<Int>, named name: String) -> HeaderLine? {
        let length = name.utf8.count
        // Fast path: the length and the name are compared before the line is parsed.
        guard line.count > length, bytes[line.lowerBound + length] == UInt8(ascii: ":"),
            matchesIgnoringCase(bytes, in: line.lowerBound..<line.lowerBound + length, lowercase: name)
        else { return nil }
        return try? HeaderLine(bytes, line, number: 0)
    }

    /// Returns `valueBytes(named:)` of a field in a single scan; nil if the field `other` is present.
    func valueBytes(named name: String, unlessPresent other: String) -> [ArraySlice<UInt8>]? {
        var values: [ArraySlice<UInt8>] = []
        let span = bytes.span
        var start = 0
        while start < span.count {
            let end = HeaderLine.lineEnd(span, from: start)
            if Self.line(span, start..<end, named: other) != nil { return nil }
            if let line = Self.line(span, start..<end, named: name) { values.append(bytes[line.valueRange]) }
            start = end + 1
        }
        return values
    }
}

extension HeaderFields: Sequence {
    /// Iterates over the well-formed fields in order.
    public struct Iterator: IteratorProtocol {
        private let fields: HeaderFields
        private var position = 0

        init(_ fields: HeaderFields) {
            self.fields = fields
        }

        public mutating func next() -> HeaderField? {
            guard let line = HeaderLine.firstWellFormed(in: fields.bytes.span, from: position) else { return nil }
            position = line.lineRange.upperBound + 1
            return fields.field(at: line)
        }
    }

    public func makeIterator() -> Iterator { Iterator(self) }
}

extension HeaderFields {
    /// Returns the value of a field that should occur once; nil if it is absent or several values differ.
    func singleValue(named name: String) -> ArraySlice<UInt8>? {
        let values = valueBytes(named: name)
        guard let first = values.first, values.allSatisfy({ $0 == first }) else { return nil }
        return first
    }

    /// Adds a field without checks.
    ///
    /// - Parameters:
    ///   - name: Valid token.
    ///   - value: Valid value without LF, which would begin another line.
    mutating func appendUnchecked(_ name: some Sequence<UInt8>, _ value: some Sequence<UInt8>) {
        var lines = bytes
        if !lines.isEmpty { lines.append(UInt8(ascii: "\n")) }
        lines += name
        lines += ": ".utf8
        lines += value
        self = HeaderFields(lines: lines)
    }
}

/// Field of a `HeaderFields` as bytes, because a server's fields need not be UTF-8.
public struct HeaderField: Hashable, Sendable {
    /// Name with its original spelling, a token.
    public let name: ArraySlice<UInt8>

    /// Value without leading and trailing blanks.
    public let value: ArraySlice<UInt8>

    /// Returns whether the field has this name, in any case.
    ///
    /// - Parameter lowercase: Name in lower case.
    public func isNamed(_ lowercase: String) -> Bool {
        name.count == lowercase.utf8.count && zip(name, lowercase.utf8).allSatisfy { $0.lowercased == $1 }
    }
}
