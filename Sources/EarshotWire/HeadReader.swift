/// A head frame taken apart: verb, operands, named fields, HTTP fields. Reads any bytes without trapping.
struct HeadReader {
    let verb: String
    /// Text after the verb, split at single spaces.
    let operands: [String]
    /// Named fields in their order; a name may come twice, the last one counts.
    private(set) var fields: [(name: String, value: String)] = []
    /// HTTP header fields as they came, lines separated by LF, without one at the end.
    private(set) var httpFields: [UInt8] = []

    /// - Throws: `limit` for a head over its bound, `bad-message` for one out of the grammar.
    init(_ head: [UInt8], limit: Int = WireLimits.headBytes) throws(WireError) {
        guard head.count <= limit else { throw WireError(.limit, "the head is longer than \(limit) bytes") }
        guard !head.isEmpty else { throw WireError(.badMessage, "the message is empty") }
        let lineEnd = Self.lineEnd(head.span, from: 0)
        var wordEnd = try Self.wordEnd(head.span, from: 0, to: lineEnd)
        verb = String(decoding: head[..<wordEnd], as: UTF8.self)
        var operands: [String] = []
        while wordEnd < lineEnd {
            guard operands.count < WireLimits.heldAttempts else {
                throw WireError(.badMessage, "the first line has more than \(WireLimits.heldAttempts) words")
            }
            let start = wordEnd + 1
            wordEnd = try Self.wordEnd(head.span, from: start, to: lineEnd)
            operands.append(String(decoding: head[start..<wordEnd], as: UTF8.self))
        }
        self.operands = operands
        try readLines(of: head, from: lineEnd + 1)
    }

    private static func lineEnd(_ head: Span<UInt8>, from start: Int) -> Int {
        var end = start
        while end < head.count, head[end] != Ascii.lineFeed { end += 1 }
        return end
    }

    /// The end of a word of at least one byte.
    private static func wordEnd(_ head: Span<UInt8>, from start: Int, to lineEnd: Int) throws(WireError) -> Int {
        var end = start
        while end < lineEnd, head[end] > Ascii.space, head[end] != 0x7f { end += 1 }
        guard end > start, end == lineEnd || head[end] == Ascii.space else {
            throw WireError(.badMessage, "the first line is words without control characters, one space apart")
        }
        return end
    }

    private mutating func readLines(of head: [UInt8], from start: Int) throws(WireError) {
        var start = start
        while start < head.endIndex {
            let end = Self.lineEnd(head.span, from: start)
            if end == start {
                try readHTTPFields(head, from: end + 1)
                return
            }
            try readField(head, start, end)
            start = end + 1
        }
    }

    private mutating func readField(_ head: [UInt8], _ start: Int, _ lineEnd: Int) throws(WireError) {
        let bytes = head.span
        var colon = start
        while colon < lineEnd, bytes[colon] != Ascii.colon, Ascii.isVisible(bytes[colon]) { colon += 1 }
        guard colon > start, colon < lineEnd, bytes[colon] == Ascii.colon else {
            throw WireError(.badMessage, "a field is a name, a colon, a space and a value")
        }
        var first = colon + 1
        var end = lineEnd
        while first < end, bytes[first] == Ascii.space { first += 1 }
        while first < end, bytes[end - 1] == Ascii.space { end -= 1 }
        for index in first..<end where Ascii.isControl(bytes[index]) {
            throw WireError(.badMessage, "a field's value holds a control character")
        }
        guard fields.count < WireLimits.fields else {
            throw WireError(.limit, "the head has more than \(WireLimits.fields) fields")
        }
        fields.append(
            (String(decoding: head[start..<colon], as: UTF8.self), String(decoding: head[first..<end], as: UTF8.self)))
    }

    private mutating func readHTTPFields(_ head: [UInt8], from start: Int) throws(WireError) {
        let bytes = head.span
        var end = head.endIndex
        if end > start, bytes[end - 1] == Ascii.lineFeed { end -= 1 }
        var isLineStart = true
        for index in start..<end {
            let byte = bytes[index]
            let isLineEnd = byte == Ascii.lineFeed
            guard !Ascii.isControl(byte) || isLineEnd || byte == Ascii.tab else {
                throw WireError(.badMessage, "an HTTP field holds a control character; lines end in LF alone")
            }
            guard !isLineStart || !isLineEnd else {
                throw WireError(.badMessage, "the HTTP fields hold an empty line")
            }
            isLineStart = isLineEnd
        }
        httpFields = Array(head[start..<end])
    }

    // MARK: Operands

    func operand(_ index: Int, _ what: StaticString) throws(WireError) -> String {
        guard index < operands.count else { throw WireError(.badMessage, "\(verb) lacks its \(what)") }
        return operands[index]
    }

    func expectOperands(_ count: Int) throws(WireError) {
        guard operands.count <= count else { throw WireError(.badMessage, "\(verb) takes \(count) operands") }
    }

    func handler(_ index: Int) throws(WireError) -> HandlerID {
        guard let handler = HandlerID(try operand(index, "handler")) else {
            throw WireError(
                .badMessage,
                "a handler is 1 to \(WireLimits.handlerBytes) visible ASCII bytes in segments separated by /")
        }
        return handler
    }

    func request(_ index: Int) throws(WireError) -> RequestID {
        guard let request = RequestID(try operand(index, "request ID")) else {
            throw WireError(.badMessage, "a request ID is 1 to \(WireLimits.identifierBytes) visible ASCII bytes")
        }
        return request
    }

    func pattern(_ index: Int) throws(WireError) -> HandlerPattern {
        guard let pattern = HandlerPattern(try operand(index, "handler")) else {
            throw WireError(.badMessage, "a handler is visible ASCII in segments separated by /, a subtree ends in /")
        }
        return pattern
    }

    func attempt(_ index: Int) throws(WireError) -> AttemptID {
        guard let attempt = AttemptID(try operand(index, "attempt")) else {
            throw WireError(.badMessage, "an attempt is instance.flight.attempt")
        }
        return attempt
    }

    func number(_ index: Int, _ what: StaticString) throws(WireError) -> UInt64 {
        guard let number = Decimal.unsigned(try operand(index, what).utf8) else {
            throw WireError(.badMessage, "\(verb)'s \(what) is not a decimal number")
        }
        return number
    }

    func version(_ name: String) throws(WireError) {
        guard try operand(0, "version") == name else { throw WireError(.version, "this side speaks \(name)") }
        try expectOperands(1)
    }
}

extension HeadReader {
    // MARK: Values of fields

    static func integer(_ text: String, in range: ClosedRange<Int>, _ name: StaticString) throws(WireError) -> Int {
        guard let number = Decimal.unsigned(text.utf8), let value = Int(exactly: number), range.contains(value) else {
            throw WireError(.badMessage, "\(name) is a number from \(range.lowerBound) to \(range.upperBound)")
        }
        return value
    }

    static func milliseconds(_ text: String, _ name: StaticString) throws(WireError) -> Int {
        guard let value = Decimal.milliseconds(text), value > 0 else {
            throw WireError(.badMessage, "\(name) is seconds, over 0 and at most \(WireLimits.seconds)")
        }
        return value
    }

    static func flag(_ text: String, _ name: StaticString) throws(WireError) -> Bool {
        switch text {
        case "yes": return true
        case "no": return false
        default: throw WireError(.badMessage, "\(name) is yes or no")
        }
    }

    static func identifier(_ text: String, _ name: StaticString) throws(WireError) -> String {
        guard Ascii.isIdentifier(text.utf8) else {
            throw WireError(.badMessage, "\(name) is 1 to \(WireLimits.identifierBytes) visible ASCII bytes")
        }
        return text
    }

    static func priorityClass(_ text: String) throws(WireError) -> PriorityClass {
        guard let named = PriorityClass(name: text) else {
            throw WireError(.badMessage, "a class is background, low, normal or high")
        }
        return named
    }

    static func sha256(_ text: String, _ name: StaticString) throws(WireError) -> String {
        guard Ascii.isSHA256(text) else {
            throw WireError(.badMessage, "\(name) is 64 lower-case hexadecimal digits")
        }
        return text
    }

    static func instance(_ text: String) throws(WireError) -> BrokerInstance {
        guard let instance = BrokerInstance(text) else {
            throw WireError(.badMessage, "a broker instance is 16 lower-case hexadecimal digits")
        }
        return instance
    }

    /// Seconds, 0 among them.
    static func lease(_ text: String) throws(WireError) -> Int {
        guard let value = Decimal.milliseconds(text) else {
            throw WireError(.badMessage, "lease is seconds, at most \(WireLimits.seconds)")
        }
        return value
    }

    static func token(_ text: String) throws(WireError) -> SessionToken {
        guard let token = SessionToken(text) else {
            throw WireError(.badMessage, "a token is 32 lower-case hexadecimal digits")
        }
        return token
    }

    static func count(_ text: String, _ name: StaticString) throws(WireError) -> Int {
        try integer(text, in: 0...Int.max, name)
    }

    /// `received/total`, the total `-` when it is not known.
    static func progress(_ text: String) throws(WireError) -> (received: Int, total: Int?) {
        let parts = text.utf8.split(separator: Ascii.slash, maxSplits: 2, omittingEmptySubsequences: false)
        guard parts.count == 2, let received = Decimal.unsigned(parts[0]).flatMap({ Int(exactly: $0) }) else {
            throw WireError(.badMessage, "progress is received/total in bytes")
        }
        if parts[1].elementsEqual("-".utf8) { return (received, nil) }
        guard let total = Decimal.unsigned(parts[1]).flatMap({ Int(exactly: $0) }) else {
            throw WireError(.badMessage, "progress is received/total in bytes")
        }
        return (received, total)
    }
}
