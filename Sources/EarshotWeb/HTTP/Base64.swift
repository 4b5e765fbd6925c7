/// Decoder of Base64 (RFC 4648, section 4).
enum Base64 {
    /// Decodes `text`; nil if it is malformed. Padding is optional.
    static func decoded(_ text: String) -> [UInt8]? {
        var bytes: [UInt8] = []
        var (bits, count): (UInt32, Int) = (0, 0)
        var digits = text.utf8[...]
        while digits.last == UInt8(ascii: "=") { digits = digits.dropLast() }
        for digit in digits {
            guard let value = value(of: digit) else { return nil }
            bits = (bits << 6 | value) & 0xffff
            count += 6
            if count >= 8 {
                count -= 8
                bytes.append(UInt8(truncatingIfNeeded: bits >> count))
            }
        }
        return bytes
    }

    private static func value(of digit: UInt8) -> UInt32? {
        switch digit {
        case UInt8(ascii: "A")...UInt8(ascii: "Z"): UInt32(digit - UInt8(ascii: "A"))
        case UInt8(ascii: "a")...UInt8(ascii: "z"): UInt32(digit - UInt8(ascii: "a")) + 26
        case UInt8(ascii: "0")...UInt8(ascii: "9"): UInt32(digit - UInt8(ascii: "0")) + 52
        case UInt8(ascii: "+"): 62
        case UInt8(ascii: "/"): 63
        default: nil
        }
    }
}
