internal import EarshotWire

/// Parser for comma-separated field values: RFC 9110, section 5.6.1.
///
/// A comma in a quoted string does not separate. An unterminated quoted string ends with its line, so that it cannot
/// absorb another line of the same field.
enum FieldList {
    /// Returns the members of all lines, trimmed; empty ones are omitted.
    static func members(_ lines: [ArraySlice<UInt8>]) -> [ArraySlice<UInt8>] {
        lines.flatMap { split($0, at: UInt8(ascii: ",")) }
    }

    /// Splits `value` at separators outside quoted strings. Empty parts are omitted.
    static func split(_ value: ArraySlice<UInt8>, at separator: UInt8) -> [ArraySlice<UInt8>] {
        var parts: [ArraySlice<UInt8>] = []
        var start = value.startIndex
        var isQuoted = false
        var isEscaped = false
        for index in value.indices {
            let byte = value[index]
            if isEscaped {
                isEscaped = false
            } else if isQuoted, byte == UInt8(ascii: "\\") {
                isEscaped = true
            } else if byte == UInt8(ascii: "\"") {
                isQuoted.toggle()
            } else if !isQuoted, byte == separator {
                appendNonempty(value[start..<index], to: &parts)
                start = index + 1
            }
        }
        appendNonempty(value[start...], to: &parts)
        return parts
    }

    /// Returns the unescaped content of a quoted string that is all of `text`; nil for other text. RFC 9110, section
    /// 5.6.4.
    static func unquoted(_ text: ArraySlice<UInt8>) -> [UInt8]? {
        guard text.count >= 2, text.first == UInt8(ascii: "\""), text.last == UInt8(ascii: "\"") else { return nil }
        var content: [UInt8] = []
        var isEscaped = false
        for byte in text.dropFirst().dropLast() {
            if !isEscaped {
                if byte == UInt8(ascii: "\"") { return nil }
                isEscaped = byte == UInt8(ascii: "\\")
                if isEscaped { continue }
            }
            content.append(byte)
            isEscaped = false
        }
        return isEscaped ? nil : content
    }

    private static func appendNonempty(_ part: ArraySlice<UInt8>, to parts: inout [ArraySlice<UInt8>]) {
        let part = part.trimmed
        if !part.isEmpty { parts.append(part) }
    }
}
