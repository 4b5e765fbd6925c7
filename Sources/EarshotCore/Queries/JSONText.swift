/// Writer of JSON (RFC 8259).
package struct JSONText {
    package private(set) var bytes: [UInt8] = []
    private var needsComma = false

    package init() {}

    package mutating func list(_ body: (inout JSONText) -> Void) { nest("[", "]", body) }

    package mutating func object(_ body: (inout JSONText) -> Void) { nest("{", "}", body) }

    package mutating func array<Items: Sequence>(_ items: Items, _ body: (inout JSONText, Items.Element) -> Void) {
        nest("[", "]") { json in for item in items { body(&json, item) } }
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

    package mutating func value(_ number: Int) { token(String(number)) }
    package mutating func value(_ truth: Bool) { token(truth ? "true" : "false") }

    package mutating func value(_ text: String) {
        separate()
        bytes.append(UInt8(ascii: "\""))
        for byte in text.utf8 {
            switch byte {
            case UInt8(ascii: "\""), UInt8(ascii: "\\"):
                bytes.append(UInt8(ascii: "\\"))
                bytes.append(byte)
            case 0..<0x20:
                let digits = String(byte, radix: 16)
                bytes += "\\u00".utf8
                bytes += (digits.utf8.count == 1 ? "0" + digits : digits).utf8
            default: bytes.append(byte)
            }
        }
        bytes.append(UInt8(ascii: "\""))
    }

    private mutating func token(_ text: String) {
        separate()
        bytes += text.utf8
    }

    private mutating func nest(_ open: Unicode.Scalar, _ close: Unicode.Scalar, _ body: (inout JSONText) -> Void) {
        separate()
        bytes.append(UInt8(ascii: open))
        needsComma = false
        body(&self)
        bytes.append(UInt8(ascii: close))
        needsComma = true
    }

    private mutating func separate() {
        if needsComma { bytes.append(UInt8(ascii: ",")) }
        needsComma = true
    }
}
