/// Character classes of ASCII: RFC 5234 and RFC 9110.
extension UInt8 {
    /// DIGIT.
    @inlinable package var isDigit: Bool { self &- 0x30 < 10 }

    /// `a` to `z`.
    @inlinable package var isLowercase: Bool { self &- 0x61 < 26 }

    /// `A` to `Z`.
    @inlinable package var isUppercase: Bool { self &- 0x41 < 26 }

    /// ALPHA.
    @inlinable package var isLetter: Bool { (self | 0x20).isLowercase }

    /// VCHAR.
    @inlinable package var isVisible: Bool { self > 0x20 && self < 0x7f }

    /// CTL: C0 control or DEL.
    @inlinable package var isControl: Bool { self < 0x20 || self == 0x7f }

    /// A space or a tab: OWS of RFC 9110, section 5.6.3.
    @inlinable package var isBlank: Bool { self == 0x20 || self == 0x09 }

    /// Byte with `A` to `Z` converted to `a` to `z`.
    @inlinable package var lowercased: UInt8 { isUppercase ? self | 0x20 : self }

    /// Value of a hexadecimal digit in either case; nil for any other byte.
    @inlinable package var hexValue: UInt8? {
        if isDigit { return self - 0x30 }
        let letter = self | 0x20
        return letter &- 0x61 < 6 ? letter - 0x57 : nil
    }

    /// tchar: a byte permitted in field names and methods, RFC 9110, section 5.6.2.
    @inlinable package var isTokenByte: Bool {
        if isLetter || isDigit { return true }
        return switch self {
        case UInt8(ascii: "!"), UInt8(ascii: "#"), UInt8(ascii: "$"), UInt8(ascii: "%"), UInt8(ascii: "&"),
            UInt8(ascii: "'"), UInt8(ascii: "*"), UInt8(ascii: "+"), UInt8(ascii: "-"), UInt8(ascii: "."),
            UInt8(ascii: "^"), UInt8(ascii: "_"), UInt8(ascii: "`"), UInt8(ascii: "|"), UInt8(ascii: "~"):
            true
        default: false
        }
    }
}

extension ArraySlice<UInt8> {
    /// The bytes without spaces and tabs at both ends.
    @inlinable package var trimmed: Self {
        guard let first = firstIndex(where: { !$0.isBlank }), let last = lastIndex(where: { !$0.isBlank }) else {
            return self[endIndex...]
        }
        return self[first...last]
    }
}
