/// Parsed head frame: verb, operands, named fields and HTTP fields. Accepts any bytes without trapping and reads each
/// once.
struct HeadReader {
    private let head: [UInt8]
    private let verbEnd: Int
    /// Positions of the operands, followed by alternating names and values of the fields.
    private var extents: [HeadFields.Extent] = []
    private(set) var operandCount = 0
    /// Number of field lines, including those that repeat a name.
    private var fieldLineCount = 0
    /// Whether a later line has the name of the first field.
    private(set) var repeatsFirstField = false
    /// Bloom filter of the field names that have occurred, one bit for each name.
    private var fieldNameFilter: UInt64 = 0
    private var httpFieldsRange = 0..<0

    /// - Throws: `limit` for a head or field count above its bound, `bad-message` for a violation of the grammar.
    init(_ head: [UInt8], limit: Int = WireLimits.headBytes) throws(WireError) {
        guard head.count <= limit else { throw WireError(.limitExceeded, "the head is longer than \(limit) bytes") }
        guard !head.isEmpty else { throw WireError(.badMessage, "the message is empty") }
        self.head = head
        // Enough for a FETCH or a DONE with some fields.
        extents.reserveCapacity(20)
        let bytes = head.span
        verbEnd = try Self.wordEnd(bytes, from: 0)
        var wordEnd = verbEnd
        while wordEnd < bytes.count, bytes[wordEnd] == Ascii.space {
            guard extents.count < WireLimits.wordsPerMessage else {
                throw WireError(.badMessage, "the first line must have at most \(WireLimits.wordsPerMessage) words")
            }
            let start = wordEnd + 1
            wordEnd = try Self.wordEnd(bytes, from: start)
            extents.append(Self.extent(from: start, to: wordEnd))
        }
        operandCount = extents.count
        try readLines(bytes, from: wordEnd + 1)
    }

    var verb: HeadText { HeadText(head, Self.extent(from: 0, to: verbEnd)) }

    /// The words after the verb.
    var operands: [String] { (0..<operandCount).map { text(at: $0).string } }

    /// The named fields in their order, each name once. The last of several values counts.
    var fields: HeadFields { HeadFields(head, extents[operandCount...]) }

    /// The HTTP header fields as received, separated by LF, without a trailing LF.
    var httpFields: [UInt8] { httpFieldsRange.isEmpty ? [] : Array(head[httpFieldsRange]) }

    private func text(at index: Int) -> HeadText {
        HeadText(head, extents[index])
    }

    private static func extent(from start: Int, to end: Int) -> HeadFields.Extent {
        HeadFields.Extent(start: UInt32(truncatingIfNeeded: start), end: UInt32(truncatingIfNeeded: end))
    }

    /// Returns the end of a non-empty word, followed by a space or the line's end.
    private static func wordEnd(_ bytes: Span<UInt8>, from start: Int) throws(WireError) -> Int {
        var end = start
        while end < bytes.count, Ascii.isWordByte(bytes[end]) { end &+= 1 }
        guard end > start, end == bytes.count || bytes[end] == Ascii.space || bytes[end] == Ascii.lineFeed else {
            throw WireError(
                .badMessage, "the first line must be words without control characters, separated by one space")
        }
        return end
    }

    private mutating func readLines(_ bytes: Span<UInt8>, from start: Int) throws(WireError) {
        var start = start
        while start < bytes.count {
            if bytes[start] == Ascii.lineFeed {
                try readHTTPFields(bytes, from: start + 1)
                return
            }
            start = try readField(bytes, from: start) + 1
        }
    }

    /// - Returns: The end of the line.
    private mutating func readField(_ bytes: Span<UInt8>, from start: Int) throws(WireError) -> Int {
        var colon = start
        while colon < bytes.count, bytes[colon] != Ascii.colon, bytes[colon].isVisible { colon += 1 }
        guard colon > start, colon < bytes.count, bytes[colon] == Ascii.colon else {
            throw WireError(.badMessage, "a field must be a name, a colon, a space and a value")
        }
        var first = colon + 1
        while first < bytes.count, bytes[first] == Ascii.space { first += 1 }
        var lineEnd = first
        while lineEnd < bytes.count, !bytes[lineEnd].isControl { lineEnd &+= 1 }
        guard lineEnd == bytes.count || bytes[lineEnd] == Ascii.lineFeed else {
            throw WireError(.badMessage, "the value of a field must not contain control characters")
        }
        guard fieldLineCount < WireLimits.fieldsPerHead else {
            throw WireError(.limitExceeded, "the head has more than \(WireLimits.fieldsPerHead) fields")
        }
        fieldLineCount &+= 1
        var end = lineEnd
        while end > first, bytes[end - 1] == Ascii.space { end -= 1 }
        let mark = Self.filterBit(bytes, start, colon)
        if fieldNameFilter & mark != 0, let earlier = indexOfEarlierField(bytes, start, colon) {
            extents[earlier + 1] = Self.extent(from: first, to: end)
            if earlier == operandCount { repeatsFirstField = true }
            return lineEnd
        }
        fieldNameFilter |= mark
        extents.append(Self.extent(from: start, to: colon))
        extents.append(Self.extent(from: first, to: end))
        return lineEnd
    }

    /// Returns one of 64 bits for a name, selected by its length, first byte and last byte.
    private static func filterBit(_ bytes: Span<UInt8>, _ start: Int, _ end: Int) -> UInt64 {
        1 &<< (UInt64(bytes[start]) &+ UInt64(bytes[end &- 1]) &* 7 &+ UInt64(end &- start) &* 19)
    }

    /// Returns the index in `extents` of an earlier field with this name; nil if there is none.
    private func indexOfEarlierField(_ bytes: Span<UInt8>, _ start: Int, _ end: Int) -> Int? {
        var index = operandCount
        while index < extents.count {
            let other = Int(extents[index].start)
            var length = Int(extents[index].end) - other
            if length == end - start {
                while length > 0, bytes[other + length - 1] == bytes[start + length - 1] { length -= 1 }
                if length == 0 { return index }
            }
            index += 2
        }
        return nil
    }

    private mutating func readHTTPFields(_ bytes: Span<UInt8>, from start: Int) throws(WireError) {
        var end = bytes.count
        if end > start, bytes[end - 1] == Ascii.lineFeed { end -= 1 }
        // The second LF of two after the last line.
        if end > start + 1, bytes[end - 1] == Ascii.lineFeed, bytes[end - 2] != Ascii.lineFeed { end -= 1 }
        guard !Self.hasControlCharacters(bytes.extracting(start..<end)) else {
            throw WireError(
                .badMessage, "an HTTP field must not contain control characters; lines end in LF without CR")
        }
        guard !Self.hasEmptyLine(bytes.extracting(start..<end)) else {
            throw WireError(.badMessage, "the HTTP fields must not contain an empty line")
        }
        httpFieldsRange = start..<end
    }

    /// Returns whether text contains a control character other than TAB and LF. Without a branch for each byte, so that
    /// the compiler vectorizes the comparison.
    static func hasControlCharacters(_ text: Span<UInt8>) -> Bool {
        var controls: UInt8 = 0
        for index in text.indices {
            let byte = text[index]
            let isAllowed: UInt8 = (byte == Ascii.lineFeed ? 1 : 0) | (byte == Ascii.tab ? 1 : 0)
            let isControl: UInt8 = (byte < 0x20 ? 1 : 0) | (byte == 0x7f ? 1 : 0)
            controls |= isControl & ~isAllowed
        }
        return controls != 0
    }

    /// Returns whether the text begins with LF or contains two in a row. Without a branch for each byte, like
    /// `hasControlCharacters`.
    static func hasEmptyLine(_ text: Span<UInt8>) -> Bool {
        var empty: UInt8 = 0
        var previous = Ascii.lineFeed
        for index in text.indices {
            let byte = text[index]
            empty |= (byte == Ascii.lineFeed ? 1 : 0) & (previous == Ascii.lineFeed ? 1 : 0)
            previous = byte
        }
        return empty != 0
    }

    // MARK: Operands

    func operand(at index: Int, named name: StaticString) throws(WireError) -> HeadText {
        guard index < operandCount else { throw WireError(.badMessage, "\(verb.string) lacks its \(name)") }
        return text(at: index)
    }

    func expectOperands(_ count: Int) throws(WireError) {
        guard operandCount <= count else {
            throw WireError(.badMessage, "\(verb.string) takes at most \(count) operands")
        }
    }

    func handler(at index: Int) throws(WireError) -> HandlerID {
        guard let handler = HandlerID(try operand(at: index, named: "handler").bytes) else {
            throw WireError(
                .badMessage,
                "a handler must be 1 to \(WireLimits.handlerBytes) visible ASCII bytes in segments separated by /")
        }
        return handler
    }

    func request(at index: Int) throws(WireError) -> RequestID {
        guard let request = RequestID(try operand(at: index, named: "request ID").bytes) else {
            throw WireError(.badMessage, "a request ID must be 1 to \(WireLimits.identifierBytes) visible ASCII bytes")
        }
        return request
    }

    func pattern(at index: Int) throws(WireError) -> HandlerPattern {
        guard let pattern = HandlerPattern(try operand(at: index, named: "handler").string) else {
            throw WireError(
                .badMessage, "a handler must be visible ASCII in segments separated by /; a subtree ends in /")
        }
        return pattern
    }

    func attempt(at index: Int) throws(WireError) -> AttemptID {
        guard let attempt = AttemptID(try operand(at: index, named: "attempt").bytes) else {
            throw WireError(.badMessage, "an attempt must have the form instance.flight.attempt")
        }
        return attempt
    }

    func number(at index: Int, named name: StaticString) throws(WireError) -> UInt64 {
        guard let number = Decimal.parseUnsigned(try operand(at: index, named: name).bytes) else {
            throw WireError(.badMessage, "the \(name) of \(verb.string) must be a decimal number")
        }
        return number
    }

    func expectVersion(_ name: String) throws(WireError) {
        guard try operand(at: 0, named: "version") == name else {
            throw WireError(.unsupportedVersion, "this side speaks \(name)")
        }
        try expectOperands(1)
    }
}

extension HeadReader {
    // MARK: Values of fields

    static func parseInteger(
        _ text: HeadText, in range: ClosedRange<Int>, named name: String
    ) throws(WireError) -> Int {
        guard let number = Decimal.parseUnsigned(text.bytes), let value = Int(exactly: number), range.contains(value)
        else {
            throw WireError(.badMessage, "\(name) must be a number from \(range.lowerBound) to \(range.upperBound)")
        }
        return value
    }

    static func parseMilliseconds(_ text: HeadText, named name: String) throws(WireError) -> Int {
        guard let value = Decimal.parseMilliseconds(text.bytes), value > 0 else {
            throw WireError(
                .badMessage, "\(name) must be a number of seconds above 0 and at most \(WireLimits.durationSeconds)")
        }
        return value
    }

    static func parseFlag(_ text: HeadText, named name: String) throws(WireError) -> Bool {
        switch text {
        case "yes": return true
        case "no": return false
        default: throw WireError(.badMessage, "\(name) must be yes or no")
        }
    }

    /// Parses `bodies` of HELLO and WELCOME.
    static func parsePulling(_ text: HeadText) throws(WireError) -> Bool {
        switch text {
        case "pull": return true
        case "path": return false
        default: throw WireError(.badMessage, "bodies must be path or pull")
        }
    }

    /// Parses `errors` of FETCH and JOB.
    static func parseErrorDelivery(_ text: HeadText) throws(WireError) -> Bool {
        switch text {
        case "deliver": return true
        case "fail": return false
        default: throw WireError(.badMessage, "errors must be fail or deliver")
        }
    }

    /// Parses `rights` of HELLO.
    static func parseUserRights(_ text: HeadText) throws(WireError) -> Bool {
        switch text {
        case "user": return true
        case "all": return false
        default: throw WireError(.badMessage, "rights must be all or user")
        }
    }

    /// Parses `failures` of HELLO.
    static func parseFailureRetention(_ text: HeadText) throws(WireError) -> Bool {
        switch text {
        case "keep": return true
        case "take": return false
        default: throw WireError(.badMessage, "failures must be take or keep")
        }
    }

    static func parseIdentifier(_ text: HeadText, named name: String) throws(WireError) -> String {
        guard Ascii.isIdentifier(text.bytes) else {
            throw WireError(.badMessage, "\(name) must be 1 to \(WireLimits.identifierBytes) visible ASCII bytes")
        }
        return text.string
    }

    static func parsePriorityClass(_ text: HeadText) throws(WireError) -> PriorityClass {
        guard let priority = PriorityClass(name: text.string) else {
            throw WireError(.badMessage, "a class must be background, low, normal or high")
        }
        return priority
    }

    static func parseSHA256(_ text: HeadText, named name: String) throws(WireError) -> String {
        guard Ascii.isSHA256(text.bytes) else {
            throw WireError(.badMessage, "\(name) must be 64 lower-case hexadecimal digits")
        }
        return text.string
    }

    static func parseBrokerInstance(_ text: HeadText) throws(WireError) -> BrokerInstance {
        guard let instance = BrokerInstance(text.string) else {
            throw WireError(.badMessage, "a broker instance must be 16 lower-case hexadecimal digits")
        }
        return instance
    }

    /// Parses seconds, including 0, into milliseconds.
    static func parseLeaseMilliseconds(_ text: HeadText) throws(WireError) -> Int {
        guard let value = Decimal.parseMilliseconds(text.bytes) else {
            throw WireError(.badMessage, "lease must be a number of seconds of at most \(WireLimits.durationSeconds)")
        }
        return value
    }

    static func parseSessionToken(_ text: HeadText) throws(WireError) -> SessionToken {
        guard let token = SessionToken(text.string) else {
            throw WireError(.badMessage, "a token must be 32 lower-case hexadecimal digits")
        }
        return token
    }

    static func parsePrincipal(_ text: HeadText) throws(WireError) -> PrincipalName {
        guard let principal = PrincipalName(text.string) else {
            throw WireError(
                .badMessage,
                "principal must be 1 to \(WireLimits.identifierBytes) ASCII letters, digits, dots and _ : @ -")
        }
        return principal
    }

    static func parseGatewayProof(_ text: HeadText) throws(WireError) -> GatewayProof {
        guard let proof = GatewayProof(text.string) else {
            throw WireError(.badMessage, "proof must be 64 lower-case hexadecimal digits")
        }
        return proof
    }

    static func parseCount(_ text: HeadText, named name: String) throws(WireError) -> Int {
        try parseInteger(text, in: 0...Int.max, named: name)
    }

    /// Parses `received/total`. The total is `-` if unknown.
    static func parseProgress(_ text: HeadText) throws(WireError) -> (received: Int, total: Int?) {
        guard let slash = text.bytes.firstIndex(of: Ascii.slash),
            let received = Decimal.parseUnsigned(text.bytes[..<slash]).flatMap({ Int(exactly: $0) })
        else {
            throw WireError(.badMessage, "progress must have the form received/total in bytes")
        }
        let rest = text.bytes[(slash + 1)...]
        if rest.elementsEqual("-".utf8) { return (received, nil) }
        guard let total = Decimal.parseUnsigned(rest).flatMap({ Int(exactly: $0) }) else {
            throw WireError(.badMessage, "progress must have the form received/total in bytes")
        }
        return (received, total)
    }
}

/// Header fields that a message carries after its own fields: lines separated by LF.
public enum FieldBlock {
    /// Returns whether a message can carry these lines: without control characters and empty lines.
    public static func isValid(_ lines: [UInt8]) -> Bool {
        !HeadReader.hasControlCharacters(lines.span) && !HeadReader.hasEmptyLine(lines.span)
    }
}
