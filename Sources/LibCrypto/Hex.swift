/// Hexadecimal encoding (RFC 4648, section 8): writes lower case, parses either case.
public enum Hex {
    /// Returns two lower-case digits per byte.
    public static func encode(_ bytes: some Collection<UInt8>) -> String {
        unsafe String(unsafeUninitializedCapacity: bytes.count * 2) { digits in
            var place = 0
            for byte in bytes {
                unsafe digits[place] = digit(byte >> 4)
                unsafe digits[place + 1] = digit(byte & 0x0f)
                place += 2
            }
            return place
        }
    }

    /// Decodes `text`; nil for an odd number of characters or an invalid digit.
    public static func decode(_ text: String) -> [UInt8]? {
        let digits = text.utf8
        guard digits.count.isMultiple(of: 2) else { return nil }
        var bytes: [UInt8] = []
        bytes.reserveCapacity(digits.count / 2)
        var high: UInt8?
        for character in digits {
            guard let value = value(of: character) else { return nil }
            if let first = high {
                bytes.append(first << 4 | value)
                high = nil
            } else {
                high = value
            }
        }
        return bytes
    }

    private static func digit(_ value: UInt8) -> UInt8 {
        value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "a") + value - 10
    }

    private static func value(of character: UInt8) -> UInt8? {
        switch character {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): character - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): character - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): character - UInt8(ascii: "A") + 10
        default: nil
        }
    }
}
