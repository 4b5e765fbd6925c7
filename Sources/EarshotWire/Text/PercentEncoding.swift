/// Percent-encoding (RFC 3986, section 2.1), for URLs, file names and words of heads.
package enum PercentEncoding {
    /// Appends the escape of a byte, in upper case.
    package static func appendEscape(of byte: UInt8, to text: inout [UInt8]) {
        text.append(UInt8(ascii: "%"))
        for digit in [byte >> 4, byte & 15] { text.append(digit < 10 ? 0x30 + digit : 0x37 + digit) }
    }

    /// Returns a text with an escape for each byte that is not permitted.
    package static func encoded(_ text: some Sequence<UInt8>, where isPermitted: (UInt8) -> Bool) -> String {
        var encoded: [UInt8] = []
        for byte in text {
            if isPermitted(byte) { encoded.append(byte) } else { appendEscape(of: byte, to: &encoded) }
        }
        return String(decoding: encoded, as: UTF8.self)
    }

    /// Returns the bytes of a text without its escapes, and whether all are well-formed. Others stay in the text.
    package static func decoded(_ text: some Sequence<UInt8>) -> (bytes: [UInt8], isSound: Bool) {
        var decoded: (bytes: [UInt8], isSound: Bool) = ([], true)
        var rest = Array(text)[...]
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "%") else {
                decoded.bytes.append(byte)
                continue
            }
            let digits = rest.prefix(2).compactMap(\.hexValue)
            if digits.count == 2 {
                decoded.bytes.append(digits[0] << 4 | digits[1])
                rest = rest.dropFirst(2)
            } else {
                decoded.bytes.append(byte)
                decoded.isSound = false
            }
        }
        return decoded
    }
}
