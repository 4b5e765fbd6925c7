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
        let lineEnd = head.firstIndex(of: Ascii.lineFeed) ?? head.endIndex
        var words: [String] = []
        for word in head[..<lineEnd].split(
            separator: Ascii.space, maxSplits: WireLimits.heldAttempts, omittingEmptySubsequences: false)
        {
            guard !word.isEmpty, word.allSatisfy({ $0 > Ascii.space && $0 != 0x7f }) else {
                throw WireError(.badMessage, "the first line is words without control characters, one space apart")
            }
            words.append(String(decoding: word, as: UTF8.self))
        }
        guard let verb = words.first else { throw WireError(.badMessage, "the message is empty") }
        self.verb = verb
        operands = Array(words.dropFirst())
        try readLines(of: head, from: lineEnd + 1)
    }

    private mutating func readLines(of head: [UInt8], from start: Int) throws(WireError) {
        var start = start
        while start < head.endIndex {
            let end = head[start...].firstIndex(of: Ascii.lineFeed) ?? head.endIndex
            if end == start {
                try readHTTPFields(head[(end + 1)...])
                return
            }
            try readField(head[start..<end])
            start = end + 1
        }
    }

    private mutating func readField(_ line: ArraySlice<UInt8>) throws(WireError) {
        guard let colon = line.firstIndex(of: Ascii.colon), colon > line.startIndex,
            line[..<colon].allSatisfy(Ascii.isVisible)
        else {
            throw WireError(.badMessage, "a field is a name, a colon, a space and a value")
        }
        var value = line[(colon + 1)...]
        while value.first == Ascii.space { value.removeFirst() }
        while value.last == Ascii.space { value.removeLast() }
        guard value.allSatisfy({ $0 >= Ascii.space && $0 != 0x7f }) else {
            throw WireError(.badMessage, "a field's value holds a control character")
        }
        guard fields.count < WireLimits.fields else {
            throw WireError(.limit, "the head has more than \(WireLimits.fields) fields")
        }
        fields.append(
            (String(decoding: line[..<colon], as: UTF8.self), String(decoding: value, as: UTF8.self)))
    }

    private mutating func readHTTPFields(_ block: ArraySlice<UInt8>) throws(WireError) {
        var block = block
        if block.last == Ascii.lineFeed { block.removeLast() }
        guard block.allSatisfy({ $0 >= Ascii.space && $0 != 0x7f || $0 == Ascii.lineFeed || $0 == Ascii.tab }) else {
            throw WireError(.badMessage, "an HTTP field holds a control character; lines end in LF alone")
        }
        var lineStart = true
        for byte in block {
            guard !lineStart || byte != Ascii.lineFeed else {
                throw WireError(.badMessage, "the HTTP fields hold an empty line")
            }
            lineStart = byte == Ascii.lineFeed
        }
        httpFields = Array(block)
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
