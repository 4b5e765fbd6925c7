internal import EarshotWire

/// Header fields of a request: their checks, and the canonical form in which requests are compared.
extension HeaderFields {
    /// Parses the lines of a request, and checks that all of them may be sent to a server. One trailing LF is removed.
    public init(request lines: [UInt8]) throws(HeaderFieldError) {
        self.init(lines: lines)
        guard !bytes.isEmpty else { return }
        try Self.checkSize(bytes.count, fields: 0)
        let span = bytes.span
        var start = 0
        var number = 0
        while start < span.count {
            number += 1
            try Self.checkSize(span.count, fields: number)
            let end = HeaderLine.lineEnd(span, from: start)
            try Self.checkLine(span, start..<end, number: number)
            start = end + 1
        }
        // A second trailing LF is an empty line, which the next parser would drop.
        if bytes.last == UInt8(ascii: "\n") { throw HeaderFieldError(code: .invalidName, line: number + 1) }
    }

    /// Canonical form for comparing requests: names in lower case, no blanks around values, sorted by name. Fields of
    /// the same name keep their order, which is significant (RFC 9110, section 5.3).
    ///
    /// O(n log n) in the number of fields.
    public var canonicalBytes: [UInt8] { canonicalBytes { _ in true } }

    /// Returns `canonicalBytes` of the fields that satisfy `isWanted`.
    func canonicalBytes(where isWanted: (HeaderField) -> Bool) -> [UInt8] {
        let fields = filter(isWanted).map { (name: $0.name.map(\.lowercased), value: $0.value) }
        var canonical: [UInt8] = []
        let order = fields.indices.sorted { left, right in
            let (first, second) = (fields[left].name, fields[right].name)
            return first == second ? left < right : first.lexicographicallyPrecedes(second)
        }
        for index in order {
            canonical += fields[index].name
            canonical.append(UInt8(ascii: ":"))
            canonical += fields[index].value
            canonical.append(UInt8(ascii: "\n"))
        }
        return canonical
    }

    /// Names that a request must not set: connection-specific fields (RFC 9110, section 7.6.1), framing, Host and
    /// Expect.
    private static let reservedNames = [
        "connection", "content-length", "expect", "host", "keep-alive", "proxy-connection", "te", "trailer",
        "transfer-encoding", "upgrade",
    ]

    static func checkSize(_ size: Int, fields: Int) throws(HeaderFieldError) {
        if size > HTTPLimits.headerBytes { throw HeaderFieldError(code: .tooLarge, line: fields) }
        if fields > HTTPLimits.headerFields { throw HeaderFieldError(code: .tooManyFields, line: fields) }
    }

    static func checkLine(_ bytes: Span<UInt8>, _ range: Range<Int>, number: Int) throws(HeaderFieldError) {
        let line = try HeaderLine(bytes, range, number: number)
        for index in line.valueRange where bytes[index].isControl && bytes[index] != UInt8(ascii: "\t") {
            throw HeaderFieldError(code: .invalidValue, line: number)
        }
        for name in reservedNames where matchesIgnoringCase(bytes, in: line.nameRange, lowercase: name) {
            throw HeaderFieldError(code: .reservedName, line: number, name: name)
        }
    }
}
