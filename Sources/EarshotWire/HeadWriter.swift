/// Builds a head frame. Values come from typed messages, whose types keep line ends out of them.
struct HeadWriter {
    private(set) var bytes: [UInt8] = []

    init(_ verb: String) {
        bytes.reserveCapacity(192)
        bytes.append(contentsOf: verb.utf8)
    }

    mutating func operand(_ text: String) {
        bytes.append(Ascii.space)
        append(text)
    }

    mutating func field(_ name: String, _ value: String?) {
        guard let value else { return }
        bytes.append(Ascii.lineFeed)
        bytes.append(contentsOf: name.utf8)
        bytes.append(Ascii.colon)
        bytes.append(Ascii.space)
        append(value)
    }

    mutating func field(_ name: String, _ value: Int?) {
        guard let value else { return }
        field(name, String(value))
    }

    mutating func field(_ name: String, seconds milliseconds: Int?) {
        guard let milliseconds else { return }
        field(name, Decimal.seconds(milliseconds))
    }

    mutating func field(_ name: String, if flag: Bool, _ value: String) {
        if flag { field(name, value) }
    }

    /// Ends the head, with the HTTP fields if there are any.
    consuming func finished(httpFields: [UInt8] = []) -> [UInt8] {
        bytes.append(Ascii.lineFeed)
        if !httpFields.isEmpty {
            bytes.append(Ascii.lineFeed)
            bytes.append(contentsOf: httpFields)
            bytes.append(Ascii.lineFeed)
        }
        return bytes
    }

    /// Appends text with every control character as a space: the last guard against a head split by a value.
    private mutating func append(_ text: String) {
        let start = bytes.count
        bytes.append(contentsOf: text.utf8)
        guard Self.hasControls(bytes.span.extracting(start...)) else { return }
        for index in start..<bytes.count where Ascii.isControl(bytes[index]) { bytes[index] = Ascii.space }
    }

    private static func hasControls(_ bytes: Span<UInt8>) -> Bool {
        for index in bytes.indices where Ascii.isControl(bytes[index]) { return true }
        return false
    }
}
