/// Writer of JSON (RFC 8259), for answers to QUERY, the API of the door, and the command's output.
package struct JSONText {
    package private(set) var bytes: [UInt8] = []
    private var needsComma = false
    private let needsEscape: (Unicode.Scalar) -> Bool

    /// - Parameter isEscaped: Returns whether a character of a text becomes an escape; C0 controls must.
    package init(escaping isEscaped: @escaping (Unicode.Scalar) -> Bool = { $0.value < 0x20 }) {
        self.needsEscape = isEscaped
    }

    package mutating func list(_ body: (inout JSONText) -> Void) { writeNested("[", "]", body) }

    package mutating func object(_ body: (inout JSONText) -> Void) { writeNested("{", "}", body) }

    package mutating func array<Items: Sequence>(_ items: Items, _ body: (inout JSONText, Items.Element) -> Void) {
        writeNested("[", "]") { json in for item in items { body(&json, item) } }
    }

    package mutating func member(_ name: String, _ body: (inout JSONText) -> Void) {
        value(name)
        bytes.append(UInt8(ascii: ":"))
        needsComma = false
        body(&self)
    }

    package mutating func member(_ name: String, _ number: Int) { member(name) { $0.value(number) } }
    package mutating func member(_ name: String, _ text: String) { member(name) { $0.value(text) } }
    package mutating func member(_ name: String, _ truth: Bool) { member(name) { $0.value(truth) } }

    package mutating func value(_ number: Int) { value(literal: String(number)) }
    package mutating func value(_ truth: Bool) { value(literal: truth ? "true" : "false") }

    /// Writes a number, or another value without quotation marks, as it is.
    package mutating func value(literal: String) {
        separateElements()
        bytes += literal.utf8
    }

    package mutating func value(_ text: String) {
        separateElements()
        Self.append(text, to: &bytes, escaping: needsEscape)
    }

    /// Returns a text in quotation marks.
    package static func quoted(_ text: String, escaping isEscaped: (Unicode.Scalar) -> Bool) -> String {
        var bytes: [UInt8] = []
        append(text, to: &bytes, escaping: isEscaped)
        return String(decoding: bytes, as: UTF8.self)
    }

    private static func append(_ text: String, to bytes: inout [UInt8], escaping isEscaped: (Unicode.Scalar) -> Bool) {
        bytes.append(UInt8(ascii: "\""))
        // Most texts need no escapes. A check of each character takes ten times as long.
        let isPlain = text.utf8.allSatisfy { byte in
            (byte.isVisible || byte == 0x20) && byte != UInt8(ascii: "\"") && byte != UInt8(ascii: "\\")
        }
        if isPlain {
            bytes += text.utf8
        } else {
            for scalar in text.unicodeScalars { append(scalar, to: &bytes, escaping: isEscaped) }
        }
        bytes.append(UInt8(ascii: "\""))
    }

    private static func append(
        _ scalar: Unicode.Scalar, to bytes: inout [UInt8], escaping isEscaped: (Unicode.Scalar) -> Bool
    ) {
        switch scalar {
        case "\"": bytes += "\\\"".utf8
        case "\\": bytes += "\\\\".utf8
        case _ where isEscaped(scalar):
            for unit in UTF16.encode(scalar) ?? UTF16.encodedReplacementCharacter {
                let digits = String(unit, radix: 16)
                bytes += "\\u\(String(repeating: "0", count: 4 - digits.utf8.count))\(digits)".utf8
            }
        default: bytes += UTF8.encode(scalar) ?? UTF8.encodedReplacementCharacter
        }
    }

    private mutating func writeNested(
        _ open: Unicode.Scalar, _ close: Unicode.Scalar, _ body: (inout JSONText) -> Void
    ) {
        separateElements()
        bytes.append(UInt8(ascii: open))
        needsComma = false
        body(&self)
        bytes.append(UInt8(ascii: close))
        needsComma = true
    }

    private mutating func separateElements() {
        if needsComma { bytes.append(UInt8(ascii: ",")) }
        needsComma = true
    }
}
