/// Bytes and byte classes of the grammar of heads, for the readers of this module.
enum Ascii {
    static let lineFeed: UInt8 = 0x0a
    static let tab: UInt8 = 0x09
    static let space: UInt8 = 0x20
    static let slash: UInt8 = 0x2f
    static let colon: UInt8 = 0x3a
    static let zero: UInt8 = 0x30
    static let dot: UInt8 = 0x2e

    /// Returns whether a byte may occur in the words of a first line: any byte except spaces and controls.
    static func isWordByte(_ byte: UInt8) -> Bool { byte > 0x20 && byte != 0x7f }

    /// Returns whether the bytes are 1 to 64 visible ASCII bytes: a request ID, a tag or a code.
    static func isIdentifier(_ bytes: some Collection<UInt8>) -> Bool {
        (1...WireLimits.identifierBytes).contains(bytes.count) && bytes.allSatisfy(\.isVisible)
    }

    /// Returns whether the bytes are 64 lower-case hexadecimal digits.
    static func isSHA256(_ bytes: ArraySlice<UInt8>) -> Bool {
        guard bytes.count == 64 else { return false }
        let span = bytes.span
        // Without a branch for each byte, so that the compiler vectorizes the comparison.
        var others: UInt8 = 0
        for index in span.indices {
            let isDigit: UInt8 = span[index] &- UInt8(ascii: "0") < 10 ? 1 : 0
            let isLetter: UInt8 = span[index] &- UInt8(ascii: "a") < 6 ? 1 : 0
            others |= 1 ^ (isDigit | isLetter)
        }
        return others == 0
    }
}

/// 64 bits as 16 lower-case hexadecimal digits.
package enum Hexadecimal {
    /// Parses a number; nil if `text` is not 16 such digits.
    package static func parse(_ text: some StringProtocol) -> UInt64? { parse(Array(text.utf8)[...]) }

    /// Parses a number; nil if `bytes` are not 16 such digits.
    static func parse(_ bytes: ArraySlice<UInt8>) -> UInt64? { parse(bytes.span) }

    /// Parses 128 bits; nil if `text` is not 32 such digits.
    package static func parse128Bits(_ text: some StringProtocol) -> (high: UInt64, low: UInt64)? {
        let digits = Array(text.utf8)
        guard digits.count == 32, let high = parse(digits[..<16]), let low = parse(digits[16...]) else { return nil }
        return (high, low)
    }

    private static func parse(_ digits: Span<UInt8>) -> UInt64? {
        guard digits.count == 16 else { return nil }
        var value: UInt64 = 0
        for index in digits.indices {
            guard !digits[index].isUppercase, let digit = digits[index].hexValue else { return nil }
            value = value << 4 | UInt64(digit)
        }
        return value
    }

    package static func text(_ value: UInt64) -> String {
        var digits: [UInt8] = []
        append(value, to: &digits)
        return String(decoding: digits, as: UTF8.self)
    }

    static func append(_ value: UInt64, to bytes: inout [UInt8]) {
        bytes.append(addingCapacity: 16) { output in
            for position in 0..<16 {
                let digit = UInt8(truncatingIfNeeded: value >> (60 - 4 * UInt64(position))) & 0xf
                output.append(digit < 10 ? digit + 0x30 : digit + 0x57)
            }
        }
    }
}

/// Decimal numbers in the form of the wire: digits only, without sign or space.
package enum Decimal {
    /// Appends a number's digits. `output` must have room for 20 bytes.
    static func append(_ number: UInt64, to output: inout OutputSpan<UInt8>) {
        var digits = InlineArray<20, UInt8>(repeating: 0)
        var first = digits.count
        var rest = number
        repeat {
            first -= 1
            digits[first] = Ascii.zero + UInt8(truncatingIfNeeded: rest % 10)
            rest /= 10
        } while rest > 0
        for index in first..<digits.count { output.append(digits[index]) }
    }

    /// Parses a number; nil if the bytes are empty, contain other bytes than digits, or exceed 64 bits.
    static func parseUnsigned(_ bytes: some Collection<UInt8>) -> UInt64? {
        guard !bytes.isEmpty else { return nil }
        var value: UInt64 = 0
        for byte in bytes {
            guard byte.isDigit else { return nil }
            let (product, overflow) = value.multipliedReportingOverflow(by: 10)
            let (sum, carry) = product.addingReportingOverflow(UInt64(byte - Ascii.zero))
            guard !overflow, !carry else { return nil }
            value = sum
        }
        return value
    }

    /// Parses a number; nil for other text, and for a number that the type cannot represent.
    package static func parse<Number: FixedWidthInteger>(_ text: some StringProtocol) -> Number? {
        parseUnsigned(text.utf8).flatMap { Number(exactly: $0) }
    }

    /// Parses seconds such as `30` or `0.25` into milliseconds. Digits after the third decimal place are ignored. Nil
    /// for more than `limit` seconds.
    static func parseMilliseconds(
        _ bytes: some Collection<UInt8>, atMost limit: Int = WireLimits.durationSeconds
    ) -> Int? {
        let dot = bytes.firstIndex(of: Ascii.dot)
        guard let whole = parseUnsigned(bytes[..<(dot ?? bytes.endIndex)]), whole <= UInt64(limit) else { return nil }
        var fraction = 0
        if let dot {
            let digits = bytes[dot...].dropFirst()
            guard !digits.isEmpty, digits.count <= 9, digits.allSatisfy(\.isDigit) else { return nil }
            var scale = 100
            for byte in digits.prefix(3) {
                fraction += Int(byte - Ascii.zero) * scale
                scale /= 10
            }
        }
        let total = Int(whole) * 1000 + fraction
        return total <= limit * 1000 ? total : nil
    }

    /// Inverse of `parseMilliseconds`: returns `30` or `0.25`.
    static func secondsText(milliseconds: Int) -> String {
        let whole = milliseconds / 1000
        var fraction = milliseconds % 1000
        guard fraction != 0 else { return String(whole) }
        var digits = 3
        while fraction % 10 == 0 {
            fraction /= 10
            digits -= 1
        }
        let text = String(fraction)
        return "\(whole)." + String(repeating: "0", count: digits - text.utf8.count) + text
    }
}
