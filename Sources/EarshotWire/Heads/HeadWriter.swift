/// Builder of a head frame. Values come from typed messages, whose types exclude line ends.
struct HeadWriter {
    private(set) var bytes: [UInt8] = []

    /// - Parameter capacity: Approximate length of the head in bytes.
    init(_ verb: String, capacity: Int = 192) {
        bytes.reserveCapacity(capacity)
        bytes.append(contentsOf: verb.utf8)
    }

    mutating func writeOperand(_ text: String) {
        bytes.append(Ascii.space)
        append(text)
    }

    mutating func writeOperand(_ number: Int) {
        bytes.append(Ascii.space)
        append(number)
    }

    mutating func writeOperand(_ attempt: AttemptID) {
        bytes.append(Ascii.space)
        Hexadecimal.append(attempt.broker.rawValue, to: &bytes)
        bytes.append(Ascii.dot)
        append(attempt.flight)
        bytes.append(Ascii.dot)
        append(UInt64(attempt.attempt))
    }

    mutating func writeField(_ name: String, _ value: String?) {
        guard let value else { return }
        bytes.append(addingCapacity: name.utf8.count + 3) { Self.beginField(name, in: &$0) }
        append(value)
    }

    mutating func writeField(_ name: String, _ value: Int?) {
        guard let value else { return }
        bytes.append(addingCapacity: name.utf8.count + 24) { output in
            Self.beginField(name, in: &output)
            if value < 0 { output.append(UInt8(ascii: "-")) }
            Decimal.append(UInt64(value.magnitude), to: &output)
        }
    }

    mutating func writeField(_ name: String, _ value: UInt64) {
        bytes.append(addingCapacity: name.utf8.count + 23) { output in
            Self.beginField(name, in: &output)
            Decimal.append(value, to: &output)
        }
    }

    mutating func writeSecondsField(_ name: String, milliseconds: Int?) {
        guard let milliseconds else { return }
        writeField(name, Decimal.secondsText(milliseconds: milliseconds))
    }

    mutating func writeField(_ name: String, if flag: Bool, _ value: String) {
        if flag { writeField(name, value) }
    }

    /// Returns the head, completed by the HTTP fields if there are any.
    consuming func finished(httpFields: [UInt8] = []) -> [UInt8] {
        bytes.append(Ascii.lineFeed)
        if !httpFields.isEmpty {
            bytes.append(Ascii.lineFeed)
            bytes.append(contentsOf: httpFields)
            bytes.append(Ascii.lineFeed)
        }
        return bytes
    }

    private static func beginField(_ name: String, in output: inout OutputSpan<UInt8>) {
        let utf8 = name.utf8
        let name = utf8.span
        output.append(Ascii.lineFeed)
        for index in name.indices { output.append(name[index]) }
        output.append(Ascii.colon)
        output.append(Ascii.space)
    }

    private mutating func append(_ number: Int) {
        if number < 0 { bytes.append(UInt8(ascii: "-")) }
        append(UInt64(number.magnitude))
    }

    private mutating func append(_ number: UInt64) {
        bytes.append(addingCapacity: 20) { Decimal.append(number, to: &$0) }
    }

    /// Appends text with spaces in place of control characters, the last protection against a value that splits the
    /// head.
    private mutating func append(_ text: String) {
        let utf8 = text.utf8
        guard utf8.count > Self.shortTextBytes else {
            bytes.append(addingCapacity: utf8.count) { output in
                let text = utf8.span
                for index in text.indices {
                    let byte = text[index]
                    output.append(byte.isControl ? Ascii.space : byte)
                }
            }
            return
        }
        let start = bytes.count
        bytes.append(contentsOf: utf8)
        guard Self.hasControlCharacters(bytes.span.extracting(start...)) else { return }
        for index in start..<bytes.count where bytes[index].isControl { bytes[index] = Ascii.space }
    }

    /// Maximum length of text for which copying byte by byte is faster than a call, in bytes.
    private static let shortTextBytes = 24

    private static func hasControlCharacters(_ bytes: Span<UInt8>) -> Bool {
        for index in bytes.indices where bytes[index].isControl { return true }
        return false
    }
}
